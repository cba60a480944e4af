"""Functions of test_class_names.sh: what it trains on, and checks of what it wrote."""
import json, random
from small_set import bmp, read_safetensors, table, write_tar


def make(work):
    random.seed(3)
    def make(name, classes, n=96, second=False):
        samples = []
        for i in range(n):
            word, shade = classes[i % len(classes)]
            pixels = [max(0, min(255, shade + random.randrange(-20, 21))) for _ in range(12 * 12 * 3)]
            columns = {"label": word, "hand": "LR"[i % 2]} if second else {"label": word}
            samples.append({"bmp": bmp(12, 12, pixels), "json": json.dumps(columns)})
        write_tar(f"{work}/{name}.tar", samples)
    names = [("ant", 30), ("bee", 90), ("cat", 150), ("dog", 220)]
    make("set", names, 128, second=True)
    make("some", [names[3], names[1]])           # sorted: bee 0, dog 1; in the run: 1 and 3
    make("other", [names[0], ("elk", 120)])
    make("numbers", [("0", 30), ("1", 90), ("2", 150), ("3", 220)])
    make("digits", [("0", 30), ("1", 90), ("2", 150), ("3", 220)], 128)
    make("few", [("3", 220), ("1", 90)])


def check_predictions(path):
    rows = table(path)
    assert len(rows) == 96 and sum(r["label"] == ("dog", "bee")[i % 2] for i, r in enumerate(rows)) > 90


def check_checkpoint(*steps):
    metadata = read_safetensors(steps[-1] + "/model.safetensors")[2]
    assert json.loads(metadata["classes"]) == {"label": ["ant", "bee", "cat", "dog"]}, metadata
    assert json.load(open(steps[-1] + "/state.json"))["classes"] == {"label": ["ant", "bee", "cat", "dog"]}
