"""Of test_gpu_run.sh: the scheduler of tests/gpu/run.py on a clock of its own, and what reports say."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.environ["SOURCE"], "tests", "gpu"))
import run


def ran(part, total, takes=lambda item: item.seconds):
    """Names in the order in which they ran, those that were dropped, and the time at the end."""
    now, done, dropped = [0.0], [], []

    def execute(item, limit):
        assert limit >= item.seconds or limit >= takes(item)
        now[0] += min(takes(item), limit)
        return item.name

    for item, result in run.run_items(run.PARTS[part], total, execute, lambda: now[0]):
        (done if result else dropped).append(item.name)
    assert now[0] <= total
    return done, dropped


def order():
    for part, items in run.PARTS.items():
        names = [i.name for i in items]
        assert all(callable(getattr(run, n)) for n in names)
        done, dropped = ran(part, 1000)  # time for all: in the order of the part
        assert (done, dropped) == (names, []), (done, dropped)
        for total in range(60, 541, 30):  # what is worth least goes first
            done, dropped = ran(part, total)
            assert sorted(done + dropped) == sorted(names) and [n for n in names if n in done] == done
    assert ran("a", 540)[1] == ["speed_graphs"] and ran("b", 540)[1] == [] and ran("c", 540)[1] == []
    assert ran("a", 300) == (["ceilings", "ops", "speed"], ["losses", "bits", "speed_more", "speed_graphs"])
    assert ran("a", 540, lambda i: i.seconds / 2)[1] == []  # others end early: it runs after all
    assert ran("a", 540, lambda i: 500 if i.name == "ops" else 1)[0]  # one that hangs is ended in time


def kernels():
    sums = run.sum_kernels(["==PROF== Connected\n", '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n',
                            '"0","bn_apply(dt_bn_args)","dram__bytes.sum","Gbyte","3"\n', '"0","bn_apply(dt_bn_args)","gpu__time_duration.sum","usecond","1,000"\n',
                            '"1","bn_apply(dt_bn_args)","gpu__time_duration.sum","msecond","1"\n'])
    assert sums == {"bn_apply": [2, 0.002, 3e9]}, sums


def quick(*words):
    """run.py with items of 5 seconds each."""
    run.PARTS = {part: [i._replace(seconds=5) for i in items] for part, items in run.PARTS.items()}
    run.MARGIN_S, sys.argv = 0, ["run.py", *words]
    sys.exit(run.main())


def part_a(path):
    items = {i["item"]: i for i in json.load(open(path))["items"]}
    assert {n: i["state"] for n, i in items.items()} == {"ops": "FAILED", "losses": "passed", "bits": "out of time"}, items
    assert items["ops"]["facts"] == {"test_ops_custom_cuda": "passed", "test_ops_dnnl_cuda": "exit 3"}
    assert items["losses"]["facts"]["fp32, largest difference to one CPU thread"] == "5.00e-04 in 1 steps (goal 0.001)"
    assert items["bits"]["facts"]["fp32, stopped and resumed"] == "the same bits" and items["bits"]["facts"]["bf16, a second run"] == "OTHER BITS"


def part_c(path):
    (item,) = json.load(open(path))["items"]
    assert item["state"] == "not run" and ("need 2.30" in item["why"] or "no mpirun" in item["why"]), item
