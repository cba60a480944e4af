"""Functions of test_how_to.sh: what it trains on, and checks of what it wrote."""
import json, os, random, re, yaml


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
    for i in range(120):
        picture(f"heads/{('left', 'right', 'straight', 'up')[i % 4]}/{i % 24}_{i % 2}_{i}.ppm", 50 * (i % 4))


def commands(pages, out):
    os.makedirs(out)
    for page, least in (("split", 4), ("predict", 8), ("evaluate", 3), ("sweep", 2), ("several-targets", 1), ("fine-tune", 5),
                        ("onnx", 3)):
        lines = []
        for kind, text in re.findall(r"^```(\w*)\n(.*?)^```", open(f"{pages}/{page}.md").read(), re.M | re.S):
            if kind in ("", "sh"):
                lines += [re.sub(r"  +#.*", "", l) for l in text.splitlines() if re.match(r"(mpirun .*)?dtrain ", l)]
            elif kind == "yaml":
                block = yaml.safe_load(text)
                base = "fusion" if "view" in block.get("data", {}) else "photos"
                words = [f"{section}.{key}={json.dumps(value)}" for section, keys in block.items() for key, value in keys.items()]
                if page == "fine-tune": # a network that has the names, and weights that are here
                    words = [w.replace("resnet18-f37072fd.pth", "runs/resnet18") for w in words] + ["model.depth=18"]
                if page == "several-targets":
                    words += ["data.fields.label=null"]
                lines.append(f"dtrain check configs/{base}.yaml " + " ".join("'" + w.replace("'", "'\\''") + "'" for w in words))
        assert len(lines) >= least, (page, lines)
        open(f"{out}/{page}", "w").write("\n".join(lines) + "\n")
