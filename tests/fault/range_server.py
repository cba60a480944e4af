"""Serves the files of a folder by ranges over HTTP on loopback, and does to every answer what --faults says.

range_server.py FOLDER PORT_FILE [--faults SHARE] [--seed N] [--count FILE] [--bytes FILE] [--change-after N]
    [--tls CERTIFICATE KEY] [--renew-after N PROFILES] [--address ADDRESS] [--port PORT] [--forward PORT]

Faults: 503 and 429, some with Retry-After; a reset; no body; a body that is cut, that Content-Length says to be shorter
than it should be, that comes in small steps, or that has another byte in it (in the middle of a tar, once).

--forward: the requests of all methods go to a server on PORT, and its answers come back; a fault strikes before or behind
that. While FOLDER/deny is there, whatever would change something is answered with 403; while FOLDER/deny_reads is
there, objects are listed and not given, of all names or of those that end as it says; while FOLDER/hold is there, what is put as optimizer.safetensors waits. FOLDER/lose:
the next upload in parts ends, the answer that says so is lost, and the file is removed. FOLDER/listing: a listing is
html, empty, nothing (204), cut (its first half), open (of the two ends the last is missing), endless (truncated, and no word
how to go on), or none (whole, and empty). FOLDER/disk has the objects: a PUT with If-None-Match of one that is there is
answered with 412.

A word of the query says what the server is like: weak (weak ETags), dated (Last-Modified and no ETag), whole (no
ranges), unsized (the size is not said), swapped (the first answer is half of another object of that size).
"""
import argparse
import functools
import hashlib
import http.client
import http.server
import os
import random
import socket
import ssl
import struct
import threading
import time

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("port_file")
parser.add_argument("--faults", type=float, default=0)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--change-after", type=float, default=float("inf"))  # answers: then files have other bytes
parser.add_argument("--count")  # answers and faults so far
parser.add_argument("--bytes")  # of tars, that were sent; in FILE.ADDRESS those that this client got
parser.add_argument("--address", default="127.0.0.1")
parser.add_argument("--port", type=int, default=0)
parser.add_argument("--tls", nargs=2)
parser.add_argument("--renew-after", nargs=2)  # answers: then `first-token` has ended, and the file gets `second-token`
parser.add_argument("--forward", type=int)
options = parser.parse_args()
lock = threading.Lock()
chance = random.Random(options.seed)
counts = {"answers": 0, "faults": 0, "bytes": 0}
swapped = set()
damaged = set()


@functools.lru_cache
def load(path, _):
    with open(path, "rb") as f:
        return f.read()


@functools.lru_cache
def md5(data):
    return hashlib.md5(data).hexdigest()


def draw():
    """The fault of the next answer, or None."""
    with lock:
        fault = None
        if chance.random() < options.faults:
            fault = chance.choice(["503", "429", "reset", "cut", "silent", "short", "slow", "other"])
        counts["answers"] += 1
        counts["faults"] += fault is not None
        if options.count:
            with open(options.count, "w") as f:
                f.write(f"{counts['answers']} {counts['faults']}\n")
        return fault


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 1024

    def handle_error(self, *_):
        pass  # clients are killed


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def say(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def reset(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def do_GET(self):
        if options.renew_after and counts["answers"] >= int(options.renew_after[0]):
            if self.headers.get("x-amz-security-token") == "first-token":
                with open(options.renew_after[1]) as f:
                    text = f.read().replace("first-token", "second-token")
                with open(options.renew_after[1] + ".tmp", "w") as f:
                    f.write(text)
                os.rename(options.renew_after[1] + ".tmp", options.renew_after[1])
                return self.say(400, b"<Error><Code>ExpiredToken</Code><Message>It has ended.</Message></Error>")
        path = os.path.join(options.folder, self.path.split("?")[0].lstrip("/"))
        if path.endswith("/moved.tar"):
            return self.say(302, Location="http://127.0.0.1/x.tar")
        if not os.path.isfile(path):
            return self.say(404)
        data = load(path, os.stat(path).st_mtime_ns)
        if counts["answers"] >= options.change_after:
            data = b"changed" + data[7:]
        swap = "swapped" in self.path and self.path not in swapped
        if swap:
            swapped.add(self.path)
            data = bytes(len(data))
        etag = '"%s"' % md5(data)
        if "weak" in self.path:  # such an ETag matches none
            etag = "W/" + etag
        version = {"ETag": etag}
        if "dated" in self.path:
            etag = "Thu, 26 Nov 2026 01:02:%02d GMT" % (0 if data[:7] == b"changed" else 1)
            version = {"Last-Modified": etag}
        known = self.headers.get("If-Unmodified-Since" if "dated" in self.path else "If-Match", etag)
        if known != etag or ("weak" in self.path and "If-Match" in self.headers):
            return self.say(412, **version)
        wanted = self.headers.get("Range")
        if not wanted or "whole" in self.path:
            return self.say(200, data, **version)
        first, last = wanted.removeprefix("bytes=").split("-")
        first, last = int(first), min(int(last), len(data) - 1)
        if first > last:
            return self.say(416)
        fault = "cut" if swap else draw()
        if fault in ("503", "429"):
            return self.say(int(fault), b"a long page " * 10000, **({"Retry_After": "0"} if chance.random() < 0.5 else {}))
        if fault == "reset":
            return self.reset()
        body = data[first:last + 1]
        if options.bytes and path.endswith(".tar"):
            with lock:
                client = self.client_address[0]
                for key, file in (("bytes", options.bytes), (client, f"{options.bytes}.{client}")):
                    counts[key] = counts.get(key, 0) + len(body)
                    with open(options.bytes + ".tmp", "w") as f:
                        f.write(f"{counts[key]}\n")
                    os.rename(options.bytes + ".tmp", file)
        self.send_response(206)
        for name, value in version.items():
            self.send_header(name, value)
        size = "*" if "unsized" in self.path else len(data)
        self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        if fault == "short":
            body = body[:len(body) * 2 // 3]
        middle = path.endswith(".tar") and first > 0 and last < len(data) - 1
        if fault == "other" and middle and (path, first) not in damaged:  # two tries later it is taken for the object's
            damaged.add((path, first))
            body = body[:-1] + bytes([body[-1] ^ 1])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if fault == "cut":  # less than was said, and the end
            self.wfile.write(body[:len(body) // 2])
            self.close_connection = True
        elif fault == "slow":
            for i in range(0, len(body), len(body) // 8 + 1):
                self.wfile.write(body[i:i + len(body) // 8 + 1])
                time.sleep(0.02)
        elif fault == "silent":
            self.close_connection = True
        else:
            self.wfile.write(body)


class Proxy(Handler):
    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = draw()
        known = os.path.exists(options.folder + "/disk" + self.path.split("?")[0])
        if self.command == "PUT" and "If-None-Match" in self.headers and known:
            return self.say(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        fault = fault if fault in ("503", "429", "reset", "cut", "silent") else None
        if os.path.exists(options.folder + "/deny") and self.command != "GET":
            return self.say(403, b"<Error><Code>AccessDenied</Code><Message>not today</Message></Error>")
        denied = options.folder + "/deny_reads"
        if os.path.exists(denied) and self.command == "GET" and "?" not in self.path and self.path.endswith(open(denied).read()):
            return self.say(403, b"<Error><Code>AccessDenied</Code></Error>")
        while self.path.endswith("/optimizer.safetensors") and self.command == "PUT" and os.path.exists(options.folder + "/hold"):
            time.sleep(0.02)
        with lock:
            behind = chance.random() < 0.5  # the server does what it is asked for, and the client does not learn of it
        if self.command == "POST" and "uploadId=" in self.path and os.path.exists(options.folder + "/lose"):
            os.remove(options.folder + "/lose")
            fault, behind = "reset", True
        if fault is None or behind:
            server = http.client.HTTPConnection("127.0.0.1", options.forward)
            server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name != "Expect":
                    server.putheader(name, value)
            server.endheaders(body or None)
            answer = server.getresponse()
            text = answer.read()
            server.close()
            if "list-type=2" in self.path and os.path.exists(options.folder + "/listing"):
                kind = open(options.folder + "/listing").read()
                if kind in ("html", "empty", "nothing"):
                    return self.say(204 if kind == "nothing" else 200, b"<html><body>log in</body></html>" if kind == "html" else b"")
                cut = text[:len(text) // 2], text[:text.rindex(b"</")], text.replace(b"<IsTruncated>false", b"<IsTruncated>true")
                none = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
                token = b"<NextContinuationToken>%s</NextContinuationToken></ListB" % (b"B" if "token=A" in self.path else b"A")
                cycle = none.replace(b"false", b"true").replace(b"</ListB", token)
                if kind == "round":
                    return self.say(200, cycle)
                text = dict(cut=cut[0], open=cut[1], endless=cut[2], none=none)[kind]
        if fault in ("503", "429"):
            return self.say(int(fault), Retry_After="0")
        if fault in ("reset", "silent") or (fault == "cut" and not behind):
            return self.reset()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name not in ("Transfer-Encoding", "Content-Length", "Connection", "Date", "Server"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if fault == "cut":
            text = text[:len(text) // 2]
            self.close_connection = True
        self.wfile.write(text)

    do_PUT = do_POST = do_DELETE = do_GET


server = Server((options.address, options.port), Proxy if options.forward else Handler)
if options.tls:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*options.tls)
    server.socket = context.wrap_socket(server.socket, server_side=True)
with open(options.port_file + ".tmp", "w") as f:
    f.write(f"{server.server_port}\n")
os.rename(options.port_file + ".tmp", options.port_file)
server.serve_forever()
