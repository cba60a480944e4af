"""Functions of test_how_to.sh: what it trains on, and checks of what it wrote."""
import json, math, os, random, re, struct, wave, yaml


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
        check("photos", [f"{key}={value}"] + (LABELS if key == "train.pos_weight" else
              ["data.where=label in ('class0', 'class1', 'class2')", "data.columns.importance=n + 1"])) for key, value in rows]


def commands(pages, out):
    os.makedirs(out)
    for page, least in (("split", 4), ("predict", 8), ("evaluate", 3), ("sweep", 2), ("metadata-tables", 5), ("official-folds", 6), ("several-targets", 1), ("fine-tune", 5), ("imbalance", 10),
                        ("onnx", 3)):
        lines, all_of_page = [], open(f"{pages}/{page}.md").read()
        if page == "imbalance":
            lines = of_imbalance(all_of_page)
        for kind, text in re.findall(r"^```(\w*)\n(.*?)^```", all_of_page, re.M | re.S):
            if kind in ("", "sh"):
                lines += [re.sub(r"  +#.*", "", l) for l in text.splitlines() if re.match(r"(mpirun .*)?dtrain ", l)]
            elif kind == "yaml":
                block = yaml.safe_load(text)
                if page == "official-folds":
                    open("configs/esc50.yaml", "w").write(text)
                    lines.append("dtrain check configs/esc50.yaml")
                    continue
                base = "fusion" if "view" in block.get("data", {}) else "photos"
                words = [f"{section}.{key}={json.dumps(value)}" for section, keys in block.items() for key, value in keys.items()]
                if page == "fine-tune": # a network that has the names, and weights that are here
                    words = [w.replace("resnet18-f37072fd.pth", "runs/resnet18") for w in words] + ["model.depth=18"]
                if page in ("several-targets", "metadata-tables"):
                    words += ["data.fields.label=null"]
                if page == "imbalance": # of a class and labels, or of labels
                    words += LABELS[:3] + ["data.fields.view={kind: class, source: camera}"] if "train" in block else LABELS
                lines.append(check(base, words))
        assert len(lines) >= least, (page, lines)
        open(f"{out}/{page}", "w").write("\n".join(lines) + "\n")


def labels():
    print("\n".join(LABELS))
