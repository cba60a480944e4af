import html.parser, json, os, re, resource, subprocess, sys
from small_set import write_run as write

VOID = {"meta", "wbr", "img", "line", "rect", "circle", "polyline", "polygon", "br"}


class Page(html.parser.HTMLParser):
    """What a browser makes of a page: its text, its tags, and whether they close."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.text, self.links = [], [], "", []
        self.feed(text)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), (tag, name)
            if name in ("src", "href"):
                self.links.append(value)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data):
        self.text += data


def read(path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    page = Page(text)
    assert len(text) < 2e6, len(text)
    assert page.tags.count("script") == 1 and all(link.startswith("data:image/png;base64,") for link in page.links)
    assert "http" not in text.replace("http-equiv", ""), "it names an address"
    return text, page


def check_page(path, *texts):
    text, page = read(path)
    for wanted in texts:
        assert wanted in text or wanted in page.text or wanted.lower() in page.text.lower(), f"no '{wanted}' in {path}"


def write_goes_on(run):
    """A run without results whose best checkpoint is that of the least loss."""
    write(run, 100, "lost", ("cat",), 10, 2, end=False)
    with open(f"{run}/metrics.jsonl") as f:
        text = f.read()
    with open(f"{run}/metrics.jsonl", "w") as f:
        f.write(text.replace('"chosen_by":"accuracy","lower_is_better":false', '"chosen_by":"loss","lower_is_better":true'))


def check_mixed(path):
    """Beside a run chosen by accuracy the other has its best accuracy, and nothing under the test's heads."""
    with open("runs/lost/metrics.jsonl") as f:
        best = max(json.loads(line)["accuracy"] for line in f if '"kind":"eval"' in line)
    text = read(path)[0]
    heads = re.findall("<th[^>]*>(.*?)</th>", text.split("<tbody>")[0])
    row = next(r for r in re.findall("<tr[^>]*>.*?</tr>", text, re.S) if "lost" in r and "<td" in r)
    cells = re.findall("<td[^>]*>.*?</td>", row, re.S)
    at = next(i for i, h in enumerate(heads) if "best val accuracy" in h)
    assert f'data-v="{best:.9g}"' in cells[at], (best, cells)
    tested = [c for h, c in zip(heads, cells) if "test " in h]
    assert tested and all(c == "<td></td>" for c in tested), (heads, cells)


def check_absent(path, *texts):
    for unwanted in texts:
        assert unwanted not in read(path)[0], unwanted


BAD = ['<script>alert(1)</script>', '"><img src=x onerror=alert(1)>', "\x1b[31mred\x1b]0;title\x07", "two\nlines\r", "&amp;'",
       "日本" * 5000, "a" * 10240, "\u202egnirts", "-1", ""]


def write_hostile(runs):
    write(f"{runs}/hostile<script>alert(2)<", 120, BAD[0], BAD, 40)
    write(f"{runs}/hostile\x1b[31m", 120, BAD[2], [f"{b[:200]}{i}" for b in BAD for i in range(30)], 40)
    with open(f"{runs}/hostile\x1b[31m/log", "w") as f:
        f.write("2026-11-25T22:25:27Z W <script>alert(3)</script>\x1b[2J\nW \nno time\n")
    run = f"{runs}/hostile-file"
    write(run, 120, "x", BAD, 40)
    wrong = [{"key": b, "truth": b, "predicted": b, "probability": 0.9, "loss": 3, "panels": [7, {"png": i, "seconds": "x", "hz": [b]},
              {"lines": [["x", None], 7, [1, 2]], "hz": [b, None, 1e300]}]} for b in BAD for i in ("AAAA", '"><script>alert(4)</script>')]
    curves = [{"name": b, "roc": [[0, 0], [1, 1]], "pr": [[0, 1], ["x", None], 7], "auc": b, "ap": 1e308} for b in BAD * 4]
    errors = [{"name": b, "from": -1, "to": 1, "counts": [1, 5, 2], "points": [[0, 1], [b, 2], 3]} for b in BAD] + [{"name": "n", "counts": []}]
    with open(f"{run}/evaluation-val.json", "w") as f:
        json.dump({"step": 120, "targets": [{"field": BAD[0], "wrong": wrong, "uncertain": wrong, "curves": curves, "errors": errors}, 3]}, f)
    with open(f"{run}/evaluation-test.json", "w") as f:
        f.write("[[[[")


def write_ten_curves(run, step):
    classes = {c: {"precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 9} for c in "abcdefghij"}
    curves = [{"name": c, "roc": [[0, 0], [0, 0.83], [0.02, 1], [1, 1]], "pr": [[0, 1], [0.9, 1], [1, 0.86], [1, 0.1]], "auc": 0.998, "ap": 0.9}
              for c in "abcdefgh"]
    with open(f"{run}/evaluation-val.json", "w") as f:
        json.dump({"step": int(step), "targets": [{"report": {"classes": classes}, "curves": curves}]}, f)


def check_hostile(path):
    text, page = read(path)
    assert "\x1b" not in text and "\0" not in text
    assert "<script>alert(" in page.text, path
    assert max(len(line) for line in page.text.split("\n")) < 20000


def check_cost(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{used.ru_utime + used.ru_stime:.2f} s of CPU, {used.ru_maxrss / 1024:.0f} MiB", file=sys.stderr)
    assert used.ru_maxrss < 100 * 1024, used.ru_maxrss
    assert os.path.getsize("runs/long/report.html") < 2e6


def check_compared(path, n_configurations):
    """The best run is first and marked; each has a name and a colour of its own, in the legend of each chart."""
    text = read(path)[0]
    heads = re.findall("<th( [^>]*)?>(.*?)</th>", text.split("<tbody>")[0])
    rows = [re.findall("<td[^>]*>.*?</td>", r, re.S) for r in re.findall("<tr[^>]*>.*?</tr>", text.split("<tbody>")[1].split("</tbody>")[0], re.S)]
    names = [h[1] for h in heads]
    assert [i for i, h in enumerate(heads) if h[0]] == [1] and "descending" in heads[1][0], heads
    values = [float(re.search('data-v="(.*?)"', r[1]).group(1)) for r in rows]
    assert values == sorted(values, reverse=True) and text.index("<tr class=best>") < text.index("</tr>", text.index("<tbody>")), values
    assert text.count("class=best") == 1
    assert ">3 min 20 s<" in rows[0][names.index("Wall time")] and ">10<" in rows[0][names.index("Epochs")], rows[0]
    keys = [re.search('class="(k. s.) key">(.*?)<', r[0]).groups() for r in rows]
    assert len(set(keys)) == len({k[0] for k in keys}) == len({k[1] for k in keys}) == len(rows), keys
    assert len({k[0].split()[0] for k in keys}) == int(n_configurations), keys
    charts = re.findall("<figure>.*?</figure>", text, re.S)
    assert len(charts) >= 5
    for chart in charts:
        assert all(f'class="{colour} key">{label}<' in chart for colour, label in keys), (chart[:400], keys)
    assert len({c.split('data-axes="')[1].split('"')[0].split()[4:6].__str__() for c in charts}) == 1, "the charts differ in x"


def check_dots(path):
    """Dots where evaluations are, none at each step."""
    charts = {re.search("<b>(.*?)</b>", c).group(1): c.count("<circle") for c in re.findall("<figure>.*?</figure>", read(path)[0], re.S)}
    assert charts["accuracy"] == 4 and charts["Loss"] == 4 and charts["Learning rate"] == 0 == charts["Gradient norm"], charts


def write_groups(run):
    """The last evaluation with intervals, groups and a confusion matrix."""
    write(run, 100, "groups", ("tiger", "goose"), 10)
    with open(f"{run}/metrics.jsonl") as f:
        lines = f.read().splitlines()
    at = max(i for i, line in enumerate(lines) if '"eval"' in line)
    e = json.loads(lines[at]) | {"accuracy": 0.75, "interval": {"accuracy": [0.7, 0.8]}, "by": {"camera": {
        "left<b>": {"samples": 9, "accuracy": 0.5, "interval": {"accuracy": [0.375, 0.625]}}, "right": {"samples": 11, "accuracy": 1}}}}
    lines[at] = json.dumps(e, separators=(",", ":"))
    with open(f"{run}/metrics.jsonl", "w") as f:
        f.write("\n".join(lines) + "\n")


def check_groups(path):
    text, page = read(path)
    chart = re.search('<figcaption><b>accuracy</b></figcaption><div class="whiskers">(.*?)</div></figure>', text, re.S).group(1)
    rows = [(name, float(x), low and [float(low), float(low) + float(width)]) for name, low, width, x in
            re.findall(r'<span title=".*?">(.*?)</span><div class="k0">(?:<i style="left:([\d.]+)%;width:([\d.]+)%"></i>)?<b style="left:([\d.]+)%">', chart)]
    assert [r[0] for r in rows] == ["all", "camera left&lt;b&gt;", "camera right"] and not rows[2][2], chart  # the last has no interval
    (_, x, (low, high)), (_, left, (left_low, _)), (_, right, _) = rows
    scale = (right - left) / 0.5
    assert abs(low - (x - 0.05 * scale)) < 0.2 and abs(high - (x + 0.05 * scale)) < 0.2, rows
    assert abs(left_low - (left - 0.125 * scale)) < 0.2 and abs(x - left - 0.25 * scale) < 0.2 and right < 100, rows
    assert re.findall(r'<i style="left:[\d.]+%">([\d.]+)</i>', chart) == ["0.4", "0.6", "0.8", "1.0"], chart
    matrix = re.search('<section><h3>Confusion matrix.*?</section>', text, re.S).group(0)
    assert "confusion rotated" in matrix and re.search(r"<tfoot>.*<td>18</td></tr></tfoot>", matrix) and matrix.count('<td class="soft">9</td>') == 2, matrix
    assert matrix.index("<tfoot>") > 0 and "By class" in text[text.index(matrix) + len(matrix):][:100], "the classes are not beside it"


def check_setup(path):
    """Keys that someone set; the machine; warnings by attempt; keys that break at dots; a row of GPU charts."""
    text, page = read(path)
    rows = re.findall(r"<tr><td>([\w.<>]*?)</td><td>(.*?)</td>", text[text.index("Changed from the defaults"):])
    assert rows == [("train.<wbr>epochs", "2"), ("train.<wbr>optimizer.<wbr>lr", "2e-3")], rows
    assert "<td>CPU</td><td>Zen&lt;9&gt;, 12 cores, 64 GiB of memory</td>" in text
    problems = text[text.index("<h2>Problems"):text.index("<h2>Time budget")]
    now, earlier = problems.split("<details><summary>2 warnings of earlier attempts</summary>")
    assert "now" in now and "long ago" in earlier and "just before" in earlier and "long ago" not in now and "just before" not in now
    titles = re.findall("<figcaption><b>(GPU [^<]*)</b>", text)
    assert titles == ["GPU utilization", "GPU power, W", "GPU memory, bytes"] and "80G</text>" in text, titles


def write_setup(run):
    write(run, 100, "setup", ("cat",), 10)
    with open(f"{run}/metrics.jsonl") as f:
        lines = f.read().replace(',"rss":', ',"gpu":{"util":0.75,"power_w":null,"temp_c":60,"mem_bytes":8e10,"step":3},"rss":', 90).replace(
            '"power_w":null', '"power_w":650')
    with open(f"{run}/metrics.jsonl", "w") as f:
        f.write(lines)
    with open(f"{run}/log", "w") as f:  # the process began at 22:13:17.5
        f.write("2023-11-13T22:13:20Z W long ago\n2023-11-14T22:13:16Z W just before\n2023-11-14T22:13:17Z W now\n")
