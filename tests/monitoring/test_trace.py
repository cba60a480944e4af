"""Looks into trace.json, for test_trace.sh."""
import json


def spans(path):
    with open(path) as f:
        events = json.load(f)["traceEvents"]
    assert {e["ph"] for e in events} == {"M", "X"}
    assert all(e["ts"] >= 0 and e["dur"] >= 0 for e in events if e["ph"] == "X")
    return events, [e for e in events if e["ph"] == "X"]


def check_ranks(path):
    events, x = spans(path)
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {"rank 0", "rank 1"}
    assert sum(e["ts"] == 0 for e in x) == 1  # the first of all ranks
    commits = []
    for rank in (0, 1):
        of = {}
        for e in x:
            if e["pid"] == rank:
                of.setdefault(e["cat"], []).append(e)
        kinds = {"data", "forward", "backward", "bucket", "comm", "commit", "evaluation", "loader"}
        assert kinds <= set(of), (rank, kinds - set(of))
        assert len(of["commit"]) == 3, len(of["commit"])
        assert {"read", "decode", "augment"} <= {e["name"] for e in of["loader"]}
        assert any(e["name"].startswith("iris.") for e in of["forward"]), {e["name"] for e in of["forward"]}
        assert len({e["name"] for e in of["bucket"]}) > 1
        commits.append(sorted(e["ts"] for e in of["commit"]))
    assert {"write", "wait for the writer", "begin a save"} == {
        e["name"] for e in x if e["cat"] == "checkpoint" and e["pid"] == 0}
    # a step ends with a sum over both ranks: no rank commits before the other has begun that step
    for k in range(2):
        assert commits[0][k] < commits[1][k + 1] and commits[1][k] < commits[0][k + 1], commits


def check_asked(path):
    _, x = spans(path)
    assert sum(e["cat"] == "commit" for e in x) == 10


def check_slow(path):
    _, x = spans(path)
    end = max(e["ts"] + e["dur"] for e in x)
    reads = [(e["ts"], e["dur"], end - e["ts"] - e["dur"]) for e in x if e["name"] == "read"]
    assert any(left < 50 for _, _, left in reads), (end, reads[-5:])
