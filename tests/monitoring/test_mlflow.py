"""A tracking server in name only, and looks into what servers have, for test_mlflow.sh."""
import base64, http.server, json, os, posixpath, re, threading, time, urllib.parse, urllib.request

EXPERIMENT = 'bob\'s "exp" 猫'
ODD = ["x.猫", "x.犬", "x.a//b", "x/../y", "/", "x.+", "x.*", "x._", "x.हि", "x." + 400 * "n", "x." + 400 * "n" + "m"]


def serve(folder):
    """Keeps what it is sent in FOLDER/RUN.json; FOLDER/mode says how it answers: ok, 500, close, hang, slow,
    files (takes its time for each file), large (refuses the model, for good), picky (refuses the first params, for good), stuck and busy (do not answer a file, or refuse it, and leave FOLDER/put), full (no more behind a full batch), deaf (does not answer that it has made a run, or taken metrics), gone400 and the like (the run was deleted, which is answered so)."""
    runs, lock, full = {}, threading.Lock(), []

    def mode():
        with open(f"{folder}/mode") as f:
            return f.read().strip()

    def info(run):
        return {"run_id": run, "artifact_uri": f"mlflow-artifacts:/7/{run}/artifacts"}

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self, what, code=200):
            if mode() == "deaf" and self.path.endswith(("runs/create", "log-batch")):
                self.close_connection = True
                return
            body = json.dumps(what).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def handle_any(self):
            how = mode()
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if how == "500" or (how == "full" and full):
                return self.answer({"message": "broken"}, 500)
            if how == "close":
                self.close_connection = True
                return self.connection.close()
            if how == "hang":
                time.sleep(120)
                return None
            if how == "slow":
                time.sleep(0.7)
            if how == "files" and self.command == "PUT":
                time.sleep(4)
            if how in ("stuck", "busy") and self.command == "PUT":
                open(f"{folder}/put", "w").close()
                return time.sleep(120) if how == "stuck" else self.answer({"message": "busy"}, 503)
            if how == "large" and self.path.endswith("/model.safetensors"):
                return self.answer({"message": "too large"}, 413)
            named = "Basic " + base64.b64encode(b"me:" + 300 * b"p").decode()
            if self.headers.get("Authorization") not in ("Bearer mlflow-secret", named):
                return self.answer({"message": "who are you"}, 401)
            path = self.path.split("/api/2.0/")[1]
            with lock:
                return self.take(path, body)

        def take(self, path, body):
            if path.startswith("mlflow-artifacts/artifacts/"):
                run, name = path.split("/")[3], path.split("/artifacts/")[-1]
                runs[run]["files"][name] = runs[run]["files"].get(name, 0) + 1
                self.save(run)
                return self.answer({})
            if path.startswith("mlflow/experiments/get-by-name?"):
                assert urllib.parse.parse_qs(path.split("?")[1])["experiment_name"] in (["dtrain"], [EXPERIMENT]), path
                return self.answer({"experiment": {"experiment_id": "7"}})
            if path.startswith("mlflow/runs/get?"):
                r = runs[urllib.parse.parse_qs(path.split("?")[1])["run_id"][0]]
                tags = {t["key"]: t["value"] for t in r["tags"]}
                return self.answer({"run": {"data": {"tags": [{"key": k, "value": v} for k, v in tags.items()]}}})
            b = json.loads(body)
            if path == "mlflow/experiments/create":
                return self.answer({"message": "it is there", "error_code": "RESOURCE_ALREADY_EXISTS"}, 400)
            if path == "mlflow/runs/create":
                run = f"r{len(runs)}"
                runs[run] = {"name": b["run_name"], "tags": b["tags"], "metrics": [], "params": {}, "files": {}}
                self.save(run)
                return self.answer({"run": {"info": info(run)}})
            if path == "mlflow/runs/search":
                (wanted,) = re.fullmatch("tags.`dtrain.id` = '(.*)'", b["filter"]).groups()
                found = [n for n, r in runs.items() if {"key": "dtrain.id", "value": wanted} in r["tags"]]
                return self.answer({"runs": [{"info": info(n)} for n in found]})
            r = runs[b["run_id"]]
            if mode().startswith("gone") and "params" not in b:
                return self.answer({"message": "not active"}, int(mode()[4:]))
            for name in (m["key"] for m in b.get("metrics", [])):
                if not re.fullmatch(r"[/\w.\- ]{1,250}", name) or posixpath.normpath(name) != name:
                    return self.answer({"message": name}, 400)
            if mode() == "picky" and any(p["key"] == "run.name" for p in b.get("params", [])):
                return self.answer({"message": "another run.name"}, 400)
            if path == "mlflow/runs/update":
                r["status"] = b["status"]
            elif path == "mlflow/runs/log-batch":
                n = len(b.get("metrics", []))
                assert n + len(b.get("tags", [])) <= 1000 and len(b.get("params", [])) <= 100
                full.extend([n] if n > 900 else [])
                r["metrics"] += b.get("metrics", [])
                r["tags"] += b.get("tags", [])
                r["params"].update({p["key"]: p["value"] for p in b.get("params", [])})
            else:
                return self.answer({"message": path}, 404)
            self.save(b["run_id"])
            return self.answer({})

        def save(self, run):
            path = f"{folder}/{runs[run]['name']}.{run}.json"
            with open(path + ".new", "w") as f:
                json.dump(runs[run], f)
            os.rename(path + ".new", path)

        do_POST = do_PUT = do_GET = handle_any

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with open(f"{folder}/port", "w") as f:
        f.write(str(server.server_address[1]))
    server.serve_forever()


def check_whole(folder, name, n):
    n = int(n)
    files = [f for f in os.listdir(folder) if f.startswith(name + ".r") and f.endswith(".json")]
    assert len(files) == 1, files
    with open(f"{folder}/{files[0]}") as f:
        r = json.load(f)
    assert r["status"] == "FINISHED", r["status"]
    steps = [m["step"] for m in r["metrics"] if m["key"] == "train/loss"]
    assert steps == list(range(1, n + 1)), steps
    with open(f"{folder}/runs/{name}/metrics.jsonl") as f:
        lines = [json.loads(line) for line in f]
    of = {"train/loss": [(x["loss"], round(1000 * x["time"])) for x in lines if x["kind"] == "step"],
          "val/loss": [(x["loss"], round(1000 * x["time"])) for x in lines if x.get("split") == "val"]}
    for key, wanted in of.items():
        sent = [(m["value"], m["timestamp"]) for m in r["metrics"] if m["key"] == key]
        assert [v for v, _ in sent] == [v for v, _ in wanted], key
        # a line that was sent in front of a kill has been written again since then
        assert all(a[1] <= b[1] for a, b in zip(sent, wanted)) and sent[-1] == wanted[-1], key
    assert {"val/accuracy", "test/accuracy", "time/compute", "run/goodput"} <= {m["key"] for m in r["metrics"]}
    assert float(r["params"]["train.optimizer.lr"]) == 1e-3 and r["params"]["run.name"] == name, r["params"]
    assert {"config.yaml", "result.json", "model.safetensors"} <= set(r["files"]), r["files"]
    assert {"key": "dtrain.exit_status", "value": "0"} in r["tags"]


def check_refused(folder, name):
    """All files but the refused one are there, and were sent once."""
    (path,) = [f for f in os.listdir(folder) if f.startswith(name + ".r") and f.endswith(".json")]
    with open(f"{folder}/{path}") as f:
        r = json.load(f)
    assert r["status"] == "FINISHED" and "model.safetensors" not in r["files"], r["files"]
    assert {"config.yaml", "result.json"} <= set(r["files"]) and set(r["files"].values()) == {1}, r["files"]


def check_picky(folder, name):
    """The params that the server takes are there."""
    (path,) = [f for f in os.listdir(folder) if f.startswith(name + ".r") and f.endswith(".json")]
    with open(f"{folder}/{path}") as f:
        r = json.load(f)
    assert r["status"] == "FINISHED" and len(r["params"]) > 20 and "run.name" not in r["params"], r["params"]


def check_longer(folder, name):
    """A finished run that was made longer sends its files again."""
    (path,) = [f for f in os.listdir(folder) if f.startswith(name + ".r") and f.endswith(".json")]
    with open(f"{folder}/{path}") as f:
        r = json.load(f)
    assert r["status"] == "FINISHED" and r["files"]["model.safetensors"] == 2, r["files"]


def check_anew(folder, name):
    """A training that died before its first checkpoint, and the one that began anew, are two runs."""
    files = sorted((f for f in os.listdir(folder) if f.startswith(name + ".r")), key=lambda f: int(f.split(".")[1][1:]))
    first, second = [json.load(open(f"{folder}/{f}")) for f in files]
    assert float(first["params"]["train.optimizer.lr"]) == 0.1 and float(second["params"]["train.optimizer.lr"]) == 1e-3
    assert [m["step"] for m in second["metrics"] if m["key"] == "train/loss"] == list(range(1, 41))
    assert first.get("status") != "FINISHED" and second["status"] == "FINISHED"


def add_odd_names(folder, name):
    """A line with names that the server refuses, or that become the same."""
    with open(f"{folder}/runs/{name}/metrics.jsonl", "a") as f:
        odd = {n: i for i, n in enumerate(ODD)}
        print(json.dumps({"kind": "eval", "split": "test", "step": 41, **odd}, separators=(",", ":")), file=f)
        many = {f"m.{i}": i for i in range(2500)}
        print(json.dumps({"kind": "eval", "split": "test", "step": 42, **many}, separators=(",", ":")), file=f)


def check_odd_names(metrics):
    sent = {m["key"]: m["value"] for m in metrics if m["step"] == 41}
    assert sorted(sent.values()) == list(range(len(ODD))), sent
    assert sorted((m["key"], m["value"]) for m in metrics if m["step"] == 42) == sorted((f"test/m.{i}", i) for i in range(2500))
    assert sent["test/x.猫"] == 0 and sent["test/x._"] == 5 and sent["test/x.__2"] == 6 and sent["test/x.__3"] == 7, sent


def check_odd(folder, name):
    (file,) = [f for f in os.listdir(folder) if f.startswith(name + ".r") and f.endswith(".json")]
    with open(f"{folder}/{file}") as f:
        check_odd_names(json.load(f)["metrics"])


def check_real(uri, folder):
    def ask(path, body=None):
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"{uri}/api/2.0/mlflow/{path}", data, {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request))

    named = urllib.parse.quote(EXPERIMENT)
    experiment = ask("experiments/get-by-name?experiment_name=" + named)["experiment"]["experiment_id"]
    runs = ask("runs/search", {"experiment_ids": [experiment]})["runs"]
    assert len(runs) == 1, len(runs)
    info, data = runs[0]["info"], runs[0]["data"]
    assert info["status"] == "FINISHED" and info["run_name"] == "real", info
    check_odd_names(data["metrics"])
    params = {p["key"]: p["value"] for p in data["params"]}
    assert params["train.global_batch"] == "4", params
    history = ask(f"metrics/get-history?run_id={info['run_id']}&metric_key=train/loss")["metrics"]
    assert sorted(m["step"] for m in history) == list(range(1, 41)), history
    evals = ask(f"metrics/get-history?run_id={info['run_id']}&metric_key=val/accuracy")["metrics"]
    assert sorted(m["step"] for m in evals) == [10, 20, 30, 40], evals
    files = {f["path"]: f.get("file_size") for f in ask(f"artifacts/list?run_id={info['run_id']}")["files"]}
    assert {"config.yaml", "result.json", "model.safetensors"} <= set(files), files
