"""Gives temporary credentials as a container's agent, an instance's metadata and the token service do, on loopback.

metadata_server.py PORT_FILE
"""
import http.server
import os
import sys
import urllib.parse

KEYS = '{"AccessKeyId": "key", "SecretAccessKey": "private-word", "Token": "", "Expiration": "2099-01-01T00:00:00Z"}'
XML = """<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>
<AccessKeyId>key</AccessKeyId><SecretAccessKey>private-word</SecretAccessKey>
<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult>
</AssumeRoleWithWebIdentityResponse>"""
ROLES = "/latest/meta-data/iam/security-credentials/"


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def say(self, text):
        self.send_response(200 if text else 403)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_PUT(self):
        self.say("session" if self.path == "/latest/api/token" else "")

    def do_GET(self):
        of_session = self.headers.get("X-aws-ec2-metadata-token") == "session"
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/container")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        if self.path == "/container":
            return self.say(KEYS if self.headers.get("Authorization") == "agent-word" else "")
        self.say({ROLES: "role\n", ROLES + "role": KEYS}.get(self.path, "") if of_session else "")

    def do_POST(self):
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        wanted = {"WebIdentityToken": "identity", "RoleArn": "arn:aws:iam::1:role/r", "RoleSessionName": "a=b&c"}
        self.say(XML if all(form.get(k) == [v] for k, v in wanted.items()) else "")


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
with open(sys.argv[1] + ".tmp", "w") as f:
    f.write(f"{server.server_port}\n")
os.rename(sys.argv[1] + ".tmp", sys.argv[1])
server.serve_forever()
