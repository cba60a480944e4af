"""Functions of test_launch.sh: what it trains on, and checks of what it wrote."""
import yaml


def check_odd(path):
    task = yaml.safe_load(open(path))
    assert task["name"] == "off" and task["resources"]["infra"] == "aws/us east: #1", task
    assert task["resources"]["accelerators"] == 'A "100" #x:8', task
    assert task["file_mounts"]["/dtrain/data"]["source"] == "s3://a b/'c': \"d\" #e\n- f", task
    assert task["file_mounts"]["/dtrain/runs"]["source"] == "no", task


def check_sky(*paths):
    import sky
    for path in paths:
        task = sky.Task.from_yaml(path)
        assert "dtrain launch hosts" in task.run, path
        one, = task.resources
        print(path, task.num_nodes, one)
    by = {p.split("cloud-")[1]: next(iter(sky.Task.from_yaml(p).resources)) for p in paths}
    assert by["fusion.yaml"].use_spot and not by["pose.yaml"].use_spot
    assert by["fusion.yaml"].accelerators == {"A100": 8}
