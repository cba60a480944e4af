"""Functions of test_best_metric.sh: what it trains on, and checks of what it wrote."""
import json
from small_set import records


def check_people(state):
    s = json.load(open(state))
    assert s["best_value"] == records(state.split("checkpoints")[0] + "metrics.jsonl", "eval")[0]["eer"], s


def check_rare(state):
    s = json.load(open(state))
    assert s["resolved"]["best"] == "macro_f1" and "  best: auto" in s["config"], s
