import base64, html, io, json, re
from PIL import Image

SCRIPT = """<script>
const svg = document.querySelector('svg[data-axes]'), box = svg.getBoundingClientRect(), heads = document.querySelectorAll('table.sort th');
const table = document.querySelectorAll('table.sort')[0], head = [...table.tHead.rows[0].cells].findIndex((h, i) => i > 0 && !h.ariaSort);
const column = () => [...table.tBodies[0].rows].map(r => r.cells[head].textContent);
table.tHead.rows[0].cells[head].click(); const falls = column(); table.tHead.rows[0].cells[head].click();
svg.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + 0.6 * box.width, clientY: box.top + 50}));
const said = document.getElementById('tip').textContent, time = document.querySelectorAll('.axes button')[3];
time.click();
svg.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + 0.6 * box.width, clientY: box.top + 50}));
parent.document.getElementById('probe').textContent = JSON.stringify({page: document.documentElement.scrollWidth, window: innerWidth,
  charts: document.querySelectorAll('svg').length, widest: Math.max(...[...document.querySelectorAll('svg')].map(s => s.clientWidth)), tip: said, falls, timed: document.getElementById('tip').textContent,
  axis: [...svg.querySelectorAll('.x text')].map(t => t.textContent), shown: time.getClientRects().length, rises: column(),
  broken: [...document.querySelectorAll('.words td:first-child')].flatMap(td => [...td.childNodes]).filter(n => {
    const r = document.createRange(); r.selectNodeContents(n); return n.nodeType === 3 && r.getClientRects().length > 1; }).map(n => n.data),
  lines: Math.max(0, ...[...document.querySelectorAll('.words td:first-child')].map(td => new Set([...td.childNodes].filter(n => n.nodeType === 3).map(n => {
    const r = document.createRange(); r.selectNodeContents(n); return r.getBoundingClientRect().top; })).size)),
  grids: [...document.querySelectorAll('.samples > section')].map(s => s.getBoundingClientRect()).map(b => [b.top, b.height]),
  images: [...document.images].map(i => i.naturalWidth), requests: performance.getEntriesByType('resource').length});
</script>"""


def write_worst(run, step):
    """What an evaluation writes of its worst samples: pictures, curves."""
    def picture(i):
        out = io.BytesIO()
        Image.new("RGB", (64, 48), (20 * i, 120, 255 - 20 * i)).save(out, "png")
        return base64.b64encode(out.getvalue()).decode()
    with open(f"{run}/metrics.jsonl") as f:
        text = f.read()
    with open(f"{run}/metrics.jsonl", "w") as f:  # a row that needs the width
        f.write(text.replace('"given":{', '"given":{"metrics.mlflow.experiment":"%s",' % ("a value of many words, " * 5)))
    with open(f"{run}/config.yaml", "a") as f:
        f.write("metrics: {mlflow: {experiment: faces}}\n")
    wrong = [{"key": f"album/IMG_{i}.jpg", "truth": "dog", "predicted": "cat", "probability": 0.99 - 0.02 * i, "loss": 4.2 - i / 4,
              "panels": [{"field": "image", "png": picture(i)}]} for i in range(12)]
    roc = [[x / 20, (x / 20) ** 0.3] for x in range(21)]
    with open(f"{run}/evaluation-val.json", "w") as f:
        confusion = {"cat": {"cat": 8, "dog": 2}, "dog": {"cat": 3, "dog": 7}}
        json.dump({"step": int(step), "targets": [{"wrong": wrong, "uncertain": wrong[:4], "confusion": confusion, "curves": [
            {"name": "dog", "roc": roc, "pr": [[x, 1 - y * y] for x, y in roc]}]},
            {"field": "yaw", "errors": [{"name": "yaw", "from": -30, "to": 30, "counts": [1, 4, 20, 44, 18, 5, 2]}]}]}, f)


def probe(page, width):
    """Prints a page that shows another one at that width (windows have 500 at least), and what a script finds there."""
    with open(page, encoding="utf-8") as f:
        text = f.read().replace("</body>", SCRIPT + "</body>")
    print('<!doctype html><body style="margin:0"><iframe style="border:0;display:block;height:2400px;width:%spx" srcdoc="%s">'
          '</iframe><pre id="probe" hidden></pre>' % (width, html.escape(text)))


def check_probe(path, page, width):
    with open(path, encoding="utf-8") as f:
        found = json.loads(html.unescape(re.search(r'<pre id="probe"[^>]*>(.*?)</pre>', f.read(), re.S).group(1)))
    assert found["window"] == int(width) and found["page"] <= int(width), found
    assert found["widest"] < 600, found  # also where a chart is alone
    assert found["charts"] >= 5 and found["requests"] == 0, found
    assert re.match(r"step \d+(\.\d+)?\n\S+", found["tip"]), found["tip"]
    steps, seconds = (float(re.match(r"\w+ ([\d.]+)", found[k]).group(1)) for k in ("tip", "timed"))
    assert found["shown"] and found["timed"].startswith("time ") and found["axis"][-1] == "time, s", found
    assert abs(seconds - 0.0105 * steps) < 0.1 * seconds and found["axis"][0] == "0", found  # steps of 10 to 11 ms
    values = lambda texts: [float(t) if re.match(r"[\d.]+$", t) else t for t in texts]
    assert values(found["falls"]) == sorted(values(found["falls"]), reverse=True), found
    assert values(found["rises"]) == sorted(values(found["rises"])), found
    assert not found["broken"] and (page != "report" or (found["lines"] > 1) == (int(width) == 400)), found  # keys break at dots
    assert found["images"] == ([64] * 16 if page == "report" else []), found
    if page == "report" and int(width) == 1280:  # 12 and 4 samples are two rows each, side by side
        (top, height), (top_2, height_2) = found["grids"]
        assert top == top_2 and abs(height - height_2) < 2, found["grids"]


def check_dark(light, dark, width):
    means = []
    for path in (light, dark):
        image = Image.open(path).convert("L")
        image = image.crop((0, 0, int(width), image.size[1]))
        histogram = image.histogram()
        means.append(sum(i * n for i, n in enumerate(histogram)) / sum(histogram))
    assert means[0] > 200 and means[1] < 70, means
