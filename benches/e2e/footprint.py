#!/usr/bin/env python3
"""Memory and start of the gateway: size of the program, time until it is ready, memory without load, for each paced
stream, for each idle connection, and after the load has gone.

    PEERS=<the bench kit's folder> python3 benches/e2e/footprint.py [--binary target/release/model-gateway]
        [--only size,ready,idle,streams,idle-connections,decay,vocabulary] [--streams 1000,10000] [--threads 2]

`streams` and `decay` need the bench kit's mock provider and load tool (mockllm and sseload), and streams over HTTP/2 the
command h2load; the rest needs only Python 3.9. Memory is Anonymous (heap and stacks) from /proc/PID/smaps_rollup, in KiB. Everything is on loopback.
"""
import argparse, hashlib, json, os, re, shutil, signal, socket, statistics, subprocess, sys, tempfile, time
from pathlib import Path

# The load tool's: it also sends it in the other header of the messages format, and two different keys are refused.
KEY = "sk-bench-0123456789"
# Frames and milliseconds between them. Slow frames, so that ten thousand streams do not need all of the machine.
PACE = (40, 500)
# Seconds after the load at which memory is read.
DECAY = (0, 10, 30, 60, 120, 180, 240, 300)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Gateway:
    """A gateway of its own folder; started and stopped by `with`."""

    def __init__(self, options, keys=1, mock=1):
        self.options, self.port, self.admin = options, free_port(), free_port()
        self.folder = tempfile.TemporaryDirectory()
        folder = Path(self.folder.name)
        (folder / "gateway.toml").write_text(
            f'[server]\nlisten = ["127.0.0.1:{self.port}"]\nadmin = "127.0.0.1:{self.admin}"\nthreads = {options.threads}\n'
            '[limits]\nconnections = 40000\n[log]\naccess = "access.log"\n[store]\nsqlite = "state.db"\n')
        spec = f"mock-{PACE[0]}-{PACE[1]}ms"
        (folder / "routes.toml").write_text("".join(
            f'[[provider]]\nname = "{name}"\nkind = "{kind}"\n{apis}base_url = "http://127.0.0.1:{mock}/v1"\n'
            f'credential = {{ value = "sk-mock" }}\n[[model]]\nid = "{name}"\ntargets = [{{ provider = "{name}", model = "{model}" }}]\n'
            for name, kind, apis, model in (("oa", "openai", 'apis = ["chat"]\n', spec), ("an", "anthropic", "", spec),
                                            ("gpt-4o", "openai", 'apis = ["chat"]\n', "gpt-4o"))))
        digest = lambda key: hashlib.sha256(key.encode()).hexdigest()
        names = [KEY] + [f"{KEY}-{n}" for n in range(1, keys)]
        (folder / "keys.toml").write_text("".join(
            f'[[key]]\nname = "k{n}"\nsha256 = "{digest(name)}"\n' for n, name in enumerate(names)))

    def __enter__(self):
        self.log = open(Path(self.folder.name) / "log", "wb")
        began = time.perf_counter()
        self.process = subprocess.Popen([self.options.binary, "serve", "--conf", f"{self.folder.name}/gateway.toml"],
                                        stdout=self.log, stderr=self.log)
        # A busy loop: pauses would be part of the figure.
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.admin), timeout=5) as s:
                    s.sendall(b"GET /readyz HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n")
                    if b" 200 " in s.recv(4096)[:16]:
                        break
            except OSError:
                pass
            if self.process.poll() is not None or time.perf_counter() - began > 60:
                sys.exit((Path(self.folder.name) / "log").read_text())
            time.sleep(0.0005)
        self.ready_ms = (time.perf_counter() - began) * 1000
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.log.close()
        self.folder.cleanup()

    def memory(self, field="Anonymous"):
        text = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        return int(re.search(rf"^{field}:\s+(\d+)", text, re.M).group(1))

    def threads(self):
        return len(os.listdir(f"/proc/{self.process.pid}/task"))


def size(options):
    print(f"size: {os.path.getsize(options.binary) / 1e6:.1f} MB")


def ready(options):
    for keys in (100, 100_000):
        times, memory = [], 0
        for _ in range(5 if keys > 1000 else 15):
            with Gateway(options, keys) as gateway:
                times.append(gateway.ready_ms)
                memory = gateway.memory()
        print(f"ready with {keys} keys: median {statistics.median(times):.0f} ms, best {min(times):.0f}, worst {max(times):.0f}; {memory} KiB")


def idle(options):
    with Gateway(options, 100) as gateway:
        began = time.monotonic()
        # Later, tasks that have their turn once a minute have used pages of their own.
        for after in (3, 90):
            time.sleep(began + after - time.monotonic())
            print(f"idle for {after} s: Pss {gateway.memory('Pss')} KiB, Rss {gateway.memory('Rss')}, of it private and written "
                  f"{gateway.memory('Private_Dirty')}, heap and stacks {gateway.memory('Anonymous')}; {gateway.threads()} threads", flush=True)


def start_mock():
    port = free_port()
    mock = subprocess.Popen([Path(os.environ["PEERS"]) / "mockllm/target/release/mockllm", "--port", str(port)],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    return mock, port


def load(gateway, count, shape):
    """Starts `count` streams, spread over four seconds; over HTTP/2 at once, a hundred on each connection."""
    if shape == "http2":
        body = Path(gateway.folder.name) / "body.json"
        body.write_text(json.dumps({"model": "oa", "stream": True, "messages": [{"role": "user", "content": "x" * 320}]}))
        return subprocess.Popen(
            ["h2load", "-n", str(count), "-c", str(max(1, count // 100)), "-m", "100", "-d", body, "-H", f"authorization: Bearer {KEY}",
             "-H", "content-type: application/json", f"http://127.0.0.1:{gateway.port}/v1/chat/completions"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    path, format = ("/v1/messages", "messages") if shape == "translated" else ("/v1/chat/completions", "chat")
    return subprocess.Popen(
        [Path(os.environ["PEERS"]) / "sseload/target/release/sseload", "--url", f"http://127.0.0.1:{gateway.port}{path}",
         "--fmt", format, "--model", "oa", "-H", f"authorization: Bearer {KEY}", "--warmup", "0", "--json", "-c", str(count),
         "-n", str(count), "--ramp", "4000", "-d", "60", "--expect", str(PACE[0])],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def peak_of(gateway, count, shape):
    client, peak = load(gateway, count, shape), 0
    while client.poll() is None:
        peak = max(peak, gateway.memory())
        time.sleep(0.5)
    said = client.stdout.read()
    errors = re.search(r'"errors":\s*(\d+)|(?<= )(\d+) failed', said)
    return peak, next(filter(None, errors.groups())) if errors else said[-300:]


def streams(options):
    mock, port = start_mock()
    try:
        for count in map(int, options.streams.split(",")):
            for shape in ("verbatim", "translated", "http2"):
                if shape == "http2" and not shutil.which("h2load"):
                    print(f"streams: {count} http2: skipped, h2load is not on this machine")
                    continue
                with Gateway(options, 1, port) as gateway:
                    time.sleep(1)
                    before = gateway.memory()
                    peak, errors = peak_of(gateway, count, shape)
                    print(f"streams: {count} {shape}: "
                          f"{(peak - before) / count:.1f} KiB each ({before} -> {peak}), errors {errors}", flush=True)
    finally:
        mock.kill()


def connect(gateway, request):
    s = socket.create_connection(("127.0.0.1", gateway.port))
    s.sendall(request)
    return s


def idle_connections(options):
    count = options.connections
    get = f"GET /v1/models HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {KEY}\r\n\r\n".encode()
    with Gateway(options) as gateway:
        with connect(gateway, get) as first:
            first.recv(65536)
        time.sleep(1)
        before = gateway.memory()
        sockets = [connect(gateway, b"") for _ in range(count)]
        time.sleep(2)
        print(f"idle connections, {count}, before a request: {(gateway.memory() - before) / count:.1f} KiB each")
        for s in sockets:
            s.sendall(get)
            s.recv(65536)
        time.sleep(2)
        print(f"idle connections, {count}, after a request: {(gateway.memory() - before) / count:.1f} KiB each")
        for s in sockets:
            s.close()


def decay(options):
    mock, port = start_mock()
    try:
        with Gateway(options, 1, port) as gateway:
            # The first requests create what stays: buffers of the logs, threads, connections to the provider.
            peak_of(gateway, 50, "translated")
            time.sleep(1)
            before = gateway.memory()
            count = int(options.streams.split(",")[0])
            peak, errors = peak_of(gateway, count, "translated")
            ended, row = time.monotonic(), []
            for after in DECAY:
                time.sleep(max(0, ended + after - time.monotonic()))
                row.append(f"{after} s {gateway.memory()}")
            print(f"decay after {count} translated streams: before {before} KiB, peak {peak}; " + ", ".join(row) +
                  f"; errors {errors}")
    finally:
        mock.kill()


def vocabulary(options):
    body = b'{"model":"gpt-4o","messages":[{"role":"user","content":"Hello"}],"input":"Hello"}'
    post = (b"POST /v1/responses/input_tokens HTTP/1.1\r\nhost: g\r\nauthorization: Bearer " + KEY.encode() +
            b"\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    with Gateway(options) as gateway:
        with connect(gateway, b"GET /v1/models HTTP/1.1\r\nhost: g\r\nauthorization: Bearer " + KEY.encode() + b"\r\n\r\n") as s:
            s.recv(65536)
        memory, times = gateway.memory(), []
        for _ in range(2):
            began = time.perf_counter()
            with connect(gateway, post) as s:
                answer = s.recv(65536)
            times.append((time.perf_counter() - began) * 1000)
        if b" 200 " not in answer[:16]:
            sys.exit(answer.decode())
        print(f"vocabulary: first count {times[0]:.1f} ms, second {times[1]:.2f} ms; {memory} -> {gateway.memory()} KiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = {"size": size, "ready": ready, "idle": idle, "vocabulary": vocabulary, "idle-connections": idle_connections,
             "streams": streams, "decay": decay}
    parser.add_argument("--binary", default=str(Path(__file__).parents[2] / "target/release/model-gateway"))
    parser.add_argument("--only", default=",".join(parts))
    parser.add_argument("--streams", default="1000")
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    import resource
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    for part in options.only.split(","):
        parts[part](options)
        sys.stdout.flush()


main()
