"""bench_facts.py FILE: the rows of bench_gpu.py as facts of tests/gpu/run.sh, one a goal"""
import json, sys
rows = {}
for line in open(sys.argv[1]):
    r = json.loads(line)
    rows[r["name"]] = r  # the last of a name counts
for name, r in rows.items():
    text = []
    for side in ("dtrain", "eager", "compiled"):
        s = r.get(side)
        if not s:
            continue
        text.append(f"{side} " + (f"not run ({s['not_run']})" if "not_run" in s else f"FAILED ({s['failed'][:120]})" if "failed" in s else f"{s['start_s']:.2f} s" if "start_s" in s else f"{s['samples_per_s']:.0f}/s"))
    if (r.get("dtrain") or {}).get("waits_for_data", 0) > 0.02:
        text.append(f"dtrain waits for data {100 * r['dtrain']['waits_for_data']:.0f} % of the time")
    print(f"fact: {name}, batch {r['batch']} {r['precision']}, data {r['data']} = {', '.join(text) or 'not run'}")
    for g in r["goals"]:
        got = "nothing" if g["got"] is None else f"{g['got']:.4g}"
        print(f"fact: {name}, goal {g['goal']} = {got}: {g['state']}")
