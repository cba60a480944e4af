"""Functions of test_how_to.sh: what it trains on, and checks of what it wrote."""
import glob, importlib.util, json, math, os, random, re, shlex, shutil, struct, wave, yaml


def make():
    random.seed(1)
    def picture(path, shade):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(b"P6 16 16 255\n" + bytes(max(0, min(255, shade + random.randrange(-20, 21))) for _ in range(768)))
    for i in range(60):
        c = i % 10
        for root in ("photos", "new", "new_photos", "mnist/train"):
            picture(f"{root}/class{c}/{'left' if i % 3 else 'right'}_{i}.ppm", 25 * c)
        picture(f"mnist/test/class{c}/left_{i}.ppm", 25 * c)
    write_tables()
    write_sounds()
    write_rows()
    os.makedirs("data")
    for i in 0, 1: # a set of Hugging Face
        shutil.copy(os.environ["SOURCE"] + "/tests/golden/parquet/images.parquet", f"data/train-0000{i}-of-00002.parquet")
    shutil.copy("data/train-00000-of-00002.parquet", "data/test-00000-of-00001.parquet")
    for i in range(120):
        picture(f"heads/{('left', 'right', 'straight', 'up')[i % 4]}/{i % 24}_{i % 2}_{i}.ppm", 50 * (i % 4))


def write_sounds():
    """Forty clips that are called as ESC-50's, a tone or noise, and its table."""
    os.makedirs("ESC-50/audio")
    os.makedirs("ESC-50/meta")
    with open("ESC-50/meta/esc50.csv", "w") as table:
        table.write("filename,fold,target,category,esc10,src_file,take\n")
        for i in range(40):
            name, target = f"{i % 5 + 1}-{1000 + i}-A-{i // 5 % 2}.wav", i // 5 % 2
            table.write(f"{name},{i % 5 + 1},{target},{('dog', 'rain')[target]},True,{1000 + i},A\n")
            with wave.open("ESC-50/audio/" + name, "wb") as f:
                f.setnchannels(1), f.setsampwidth(2), f.setframerate(8000)
                f.writeframes(b"".join(struct.pack("<h", random.randrange(-9000, 9001) if target else int(9000 * math.sin(k * (0.2 + i / 99))))
                                       for k in range(4000)))


def write_rows():
    """Tables of numbers, annotations of pictures, a sky in two bands."""
    with open("iris.csv", "w") as iris, open("prices.csv", "w") as prices, open("X_train.txt", "w") as x, open("y_train.txt", "w") as y:
        iris.write("sepal_length,sepal_width,petal_length,petal_width,species\n")
        prices.write("area,rooms,price\n")
        for i in range(60):
            iris.write(",".join(f"{random.gauss(5 + i % 3, 1):.1f}" for _ in range(4)) + f",{('setosa', 'versicolor', 'virginica')[i % 3]}\n")
            prices.write(f"{50 + i},{1 + i % 5},{200000 + 3000 * i}.5\n")
            x.write(" ".join(f"{random.gauss(0, 1):.4f}" for _ in range(6)) + "\n")
            y.write(f"{i % 6 + 1}\n")
    json.dump({"images": [{"id": i, "file_name": f"{i}.jpg"} for i in range(3)],
               "annotations": [{"id": 10 + i, "image_id": i % 3, "category_id": i} for i in range(6)]}, open("instances.json", "w"))
    for band in 1, 2:
        os.makedirs(f"raw/sky/Band{band}")
        for i in range(8):
            os.link(sorted(glob.glob("raw/lens/images/*/*.fits"))[i], f"raw/sky/Band{band}/img-{i}.fits")


def write_tables():
    """Sixty pictures as X-rays, with a table as they are published and three that are right."""
    rows = []
    for i in range(60):
        rows.append(f"{i}.ppm,{('Pneumonia/Viral/COVID-19', 'No Finding')[i % 2]},{'PA' if i % 3 else 'L'},{20 + i}.5")
        os.makedirs("xrays", exist_ok=True)
        os.link(f"photos/class{i % 10}/{'left' if i % 3 else 'right'}_{i}.ppm", f"xrays/{i}.ppm")
    head = "filename,finding,view,age"
    with open("metadata.csv", "w") as f: # a comma at the end, rows too long, a file twice
        f.write("".join(line + "\n" for line in [head + ","] + [row + (",a,b" if i in (7, 29) else ",") for i, row in enumerate(rows)]))
        f.write(rows[11] + ",\n")
    for name, part in (("train", rows[:40]), ("test", rows[40:])):
        open(name + ".csv", "w").write("\n".join([head] + part) + "\n")
    open("sites.csv", "w").write("key,site\n" + "".join(f"{i},{i % 4}\n" for i in range(60)))


def check(config, words):
    return f"dtrain check configs/{config}.yaml " + " ".join("'" + w.replace("'", "'\\''") + "'" for w in words)


LABELS = ['data.columns={a: "case when n > 30 then 1 else 0 end", b: "case when n % 2 = 0 then 1 else 0 end"}',
          "data.fields.finding={kind: vector, source: [a, b]}", "data.fields.label=null", "train.loss=bce"]


def of_imbalance(page):
    """A check for each row of the page's table, of three classes or of two labels."""
    rows = re.findall(r"^\| `([\w.]+): (.+?)` \|", page, re.M)
    assert len(rows) == 6, rows
    return [
        check("photos", [f"{key}={value.replace('leak', 'class1')}"] + (LABELS if key == "train.pos_weight" else
              ["data.where=label in ('class0', 'class1', 'class2')", "data.columns.importance=n + 1"])) for key, value in rows]


# What does not run here, by what its lines say, and why.
SKIPPED = [
    (r"\b(s3|gs)://", "a bucket"), (r"\b(curl|hf download|pip install)\b", "the network"),
    (r"tritonserver|tritonclient", "a Triton server"), (r"CUDA|device\.kind=cuda|tests/gpu", "a GPU"), (r"launch/(quickstart|packages|build)|tests/run\.sh", "installs and builds"),
    (r"^import (torch|timm)|safetensors import", "PyTorch")]
STARTS = r"(\$ |dtrain |build/dtrain |mpirun |setsid |until |for |jq |launch/\w|tests/\w|curl |[A-Z_]+=\S+ )"
SHOW = ("README", "fine-tune", "metadata-tables", "quantize", "serve", "watch-a-run") # what else may stand in a block: output
BASES = {"lenses": "lens_multiscale", "choose-records": "photos", "foreign-sets": "photos", "watch-a-run": "photos"}


def check_of(page, block):
    """The command that checks a YAML block of a page."""
    if page in ("fine-tune", "several-targets", "metadata-tables", "imbalance", "split", *BASES):
        base = BASES.get(page) or ("fusion" if "view" in block.get("data", {}) else "photos")
        words = [f"{section}.{key}={json.dumps(value)}" for section, keys in block.items() for key, value in keys.items()]
        if page == "fine-tune": # a network that has the names, and weights that are here
            words += ["model.depth=18"]
        if page in ("several-targets", "metadata-tables"):
            words += ["data.fields.label=null"]
        if page == "imbalance": # of a class and labels, or of labels
            words += LABELS[:3] + ["data.fields.view={kind: class, source: camera}"] if "train" in block else LABELS
        return check(base, words)
    raise SystemExit(f"{page}: a YAML block that nothing checks: {block}")


def commands(source, out):
    """A script for each page with all of its blocks as they stand; SHOWN/page: output that the page shows."""
    os.makedirs(out), os.makedirs(f"{out}/shown")
    n_skipped = 0
    for path in [f"{source}/README.md"] + sorted(glob.glob(f"{source}/docs/how-to/*.md")):
        page, text = os.path.basename(path)[:-3], open(path).read()
        script = of_imbalance(text) if page == "imbalance" else []
        for kind, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.S):
            why = next((why for what, why in SKIPPED if re.search(what, block, re.M)), None)
            if why:
                n_skipped += 1
                script.append(f": skipped, {why}: " + shlex.quote(block.splitlines()[0][:60]))
            elif kind == "yaml" and page == "README":
                open("photos.yaml", "w").write(block)
            elif kind == "yaml" and "scrape_configs" in yaml.safe_load(block): # Prometheus's, whose package the tests have
                script.append(f"cat >prometheus.yml <<'END'\n{block}END\n! command -v promtool >/dev/null || promtool check config prometheus.yml")
            elif kind == "yaml" and "run" in yaml.safe_load(block): # a whole config
                script.append(f"cat >configs/{yaml.safe_load(block)['run']['name']}.yaml <<'END'\n{block}END")
            elif kind == "yaml":
                script.append(check_of(page, yaml.safe_load(block)))
            elif kind == "python" and not all(importlib.util.find_spec(m) for m in re.findall(r"^(?:import|from) (\w+)", block, re.M)):
                script.append(": skipped, a package of Python that is not here")
            elif kind == "python":
                script.append(f"\"$PYTHON\" - <<'END'\n{block}END")
            elif re.match(STARTS, block):
                script.append(re.sub(r"^\$ ", "", block, flags=re.M).rstrip())
            else:
                assert kind == "" and page in SHOW, (page, kind, block)
                open(f"{out}/shown/{page}", "a").write(block)
        if script:
            open(f"{out}/{page}.sh", "w").write("set -euo pipefail\n" + "\n".join(script) + "\nwait\n")
    print(n_skipped, "blocks are skipped")


def shows(shown, got):
    """Whether a page's words are in this order in a command's output; numbers are not compared, nor thread with threads."""
    def words(text):
        return [w.rstrip("s") for w in re.findall(r"(?<![\w.+-])[A-Za-z][\w.:'-]*", text)]
    want, have = words(open(shown).read()), words(open(got).read())
    at = 0
    for w in want:
        assert w in have[at:], (w, "is not in", " ".join(have[at:])[:600])
        at = have.index(w, at) + 1


def labels():
    print("\n".join(LABELS))
