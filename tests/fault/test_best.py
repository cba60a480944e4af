"""Functions of test_best.sh: what it trains on, and checks of what it wrote."""
import glob, json
from small_set import records


def check_best(run, evaluated):
    saved = {json.load(open(m))["step"] for m in glob.glob(run + "/checkpoints/step-*/manifest.json")
             if json.load(open(m))["best"]}
    told = [r for r in records(run + "/result.json") if r["split"] == "test" and r["weights"].startswith("best")]
    (told,), best = told, json.load(open(evaluated))
    assert told["step"] == best["step"] and told["loss"] == best["loss"], (told, best)
    assert best["step"] in saved, (best, saved)
