import fcntl, os, pty, re, resource, select, struct, subprocess, sys, termios, time
from small_set import write_run as write


class Terminal:
    """A command on a terminal of 24 lines."""

    def __init__(self, *command, columns=80):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            os.execvp(command[0], command)
        self.text = ""

    def wait_for(self, pattern):
        begin = time.time()
        while not re.search(pattern, self.text):
            assert time.time() - begin < 60, f"no {pattern} in {self.text[-3000:]!r}"
            if select.select([self.fd], [], [], 1)[0]:
                self.text += os.read(self.fd, 65536).decode(errors="replace")

    def code(self):
        while True:
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                break
            if not data:
                break
            self.text += data.decode(errors="replace")
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def hold(path, *command):
    with open(path, "r+") as f:
        fcntl.lockf(f, fcntl.LOCK_EX)
        subprocess.run(command, check=True)


def check_frames(t, columns):
    for frame in t.text.split("\x1b[H")[1:]:
        lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", frame).split("\r\n")
        assert len(lines) <= 24 and max(map(len, lines)) <= columns, frame


def check_narrow(dtrain, run):
    t = Terminal(dtrain, "watch", run, columns=40)
    t.wait_for("q leaves")
    os.write(t.fd, b"q")
    assert t.code() == 0
    check_frames(t, 40)
    assert re.search("loss.*[▁-█]{9}", t.text), t.text


def follow(dtrain, run):
    line = ('{"kind":"step","step":%d,"epoch":4.5,"samples":14000,"loss":0.5,"lr":1e-4,"grad_norm":1,"samples_per_s":99,'
            '"seconds":{"step":0.01,"data":0.001,"compute":0.007,"comm":0.001,"other":0.001},"rss":1}\n')
    t = Terminal(dtrain, "watch", run)
    t.wait_for("step 400 of 400")
    with open(f"{run}/metrics.jsonl", "a") as f:
        f.write(line % 401 + (line % 402)[:30])
    t.wait_for("step 401 of 400")
    with open(f"{run}/metrics.jsonl", "a") as f:
        f.write((line % 402)[30:])
    t.wait_for("step 402 of 400")
    write(run, 50, end=False)  # resumed from an earlier checkpoint: the file was cut
    t.wait_for("step 50 of 50")
    with open(f"{run}/metrics.jsonl", "a") as f:
        f.write('{"kind":"goodput","step":50,"cores_got":0.5,"cores_usable":2}\n')
    t.wait_for("the machine is busy: this process got 0.5 of 2 cores")
    with open(f"{run}/metrics.jsonl", "a") as f:
        f.write('{"kind":"end","step":50,"status":75,"message":"stopped by SIGTERM"}\n')
    t.wait_for("(?s)of 2 cores.*Stopped; the same command resumes.*q leaves")
    os.write(t.fd, b"x")
    t.wait_for("(?s)q leaves.*q leaves")
    os.write(t.fd, b"q")
    assert t.code() == 0
    assert t.text.rstrip().endswith("\x1b[?25h\x1b[?1049l"), t.text[-100:]
    assert "busy" not in t.text[t.text.rindex("Stopped; the same"):], t.text  # of a run that trains
    check_frames(t, 80)
    t = Terminal(dtrain, "watch", run, run, run)  # more than fits
    t.wait_for("q leaves")
    os.kill(t.pid, 15)
    assert t.code() == 0 and t.text.endswith("\x1b[?1049l")


def add_machine(run):
    with open(f"{run}/metrics.jsonl", "a") as f:
        f.write('{"kind":"step","step":400,"epoch":4,"samples":12800,"loss":0.5,"lr":1e-4,"grad_norm":1,"samples_per_s":3200,'
                '"seconds":{"step":0.01,"data":0.0015,"compute":0.007,"comm":0.001,"other":0.0005,"forward":0.002,"backward":0.004,'
                '"optimizer":0.0004},"rss":402000000,"queue":3,"queue_slots":4,'
                '"gpu":{"util":0.97,"power_w":612,"temp_c":71,"mem_bytes":70900000000,"sm_mhz":1980},"time":1.7e9}\n')


def check_new_run(dtrain, sweep):
    t = Terminal(dtrain, "watch", sweep)
    t.wait_for("(?s)\nb .*q leaves")
    assert "late" not in t.text
    write(f"{sweep}/late", 50, end=False)
    t.wait_for("\nlate +")
    os.write(t.fd, b"q")
    assert t.code() == 0


def check_scroll(dtrain, *runs):
    t = Terminal(dtrain, "watch", *runs)
    t.wait_for(r"arrows scroll: 1 to 23 of (\d+)")
    n = int(re.search(r"1 to 23 of (\d+)", t.text)[1])
    for key, first in ((b"\x1b[B", 2), (b"j", 3), (b"\x1b[A", 2), (b"\x1b[F", n - 22), (b"\x1b[5~", max(n - 22 - 22, 0) + (n <= 44)), (b"g", 1)):
        t.text = ""
        os.write(t.fd, key)
        t.wait_for(f"arrows scroll: {max(first, 1)} to")
    os.write(t.fd, b"q")
    assert t.code() == 0
    check_frames(t, 80)


def write_hostile_run(run):
    write(f"{run}", 50, "x", end=False)
    with open(f"{run}/metrics.jsonl", "a") as f:
        f.write('{"kind":"eval","split":"val","step":50,"\\u001b[31mred\\u0007":1,"%s":2,"two\\nlines\\r":3}\n' % ("日" * 10240))
        f.write('{"kind":"slow_rank","step":50,"rank":1,"host":"\\u001b]0;title\\u0007","phase":"\\u001b[2J","times":2}\n')
        f.write('{"kind":"end","step":50,"status":6,"message":"\\u001b[2J%s"}\n' % ("x" * 10240))


def write_odd_run(run):
    """Steps that go back or are out of range, values near the ends of double, and two that differ in the last bit."""
    write(run, 10, "x", end=False)
    with open(f"{run}/metrics.jsonl") as f:
        start = [line for line in f if '"kind":"start"' in line]
    step = '{"kind":"step","step":%d,"epoch":1,"samples":1e300,"loss":%s,"lr":1e-4,"grad_norm":1,"samples_per_s":99}\n'
    val = '{"kind":"eval","split":"val","step":%d,"loss":%s,"twins":%s}\n'
    with open(f"{run}/metrics.jsonl", "w") as f:
        f.write(start[0].replace('"total_steps":10', '"total_steps":1000'))
        for s, loss in (1000, 1), (999, 2), (9, "1.7e308"), (9, "-1.7e308"), (9, "1.7e308"):
            f.write(step % (s, loss))
        for s, loss, twins in ((8, "1.7e308", 0.6931471805599453), (9, "1.7e308", 0.6931471805599454),
                               (10, "-1.7e308", 0.6931471805599453), (-2**63, 1, 1), (2**63 - 1, 1, 1), (10**17, 1, 1)):
            f.write(val % (s, loss, twins))
        f.write('{"kind":"ranks","step":9,"imbalance":1.1,"slowest":1,"data_s":[1,1.7e308],"compute_s":[1,1.7e308]}\n')


def check_memory(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert most < 100 * 1024, most
