#!/usr/bin/env python3
"""Cost of operating the gateway: the requests of each page of the console, and what an open console costs requests.

`pages` starts the gateway (the release build, or --binary) with 10,000 keys of 1,000 accounts, 100 models, a full audit log
(100 MB), and a ledger that is copied from --ledger: the folder in which the test `usage_of_ten_million` leaves its database
if MGW_USAGE_FOLDER names it. Prints the time to the first byte and to the end of each request that a page makes, and of
exports; the best of three. Fails if a request of a page takes more than 100 ms.

`instructions` runs the gateway under valgrind and prints the instructions of a request without a listener, and with one
or four that listen to all events.

`memory` opens 32 streams of events whose readers do not read, sends requests, and prints the resident memory before, and
after each 10,000 requests.

    python3 benches/e2e/admin.py pages --ledger FOLDER [--binary target/release/model-gateway]
    python3 benches/e2e/admin.py instructions
    python3 benches/e2e/admin.py memory

Needs only Python 3.9, and valgrind for the instructions; everything is on loopback.
"""
import argparse, asyncio, hashlib, http.client, json, multiprocessing, os, re, shutil, signal, socket, subprocess, sys, tempfile, time
from pathlib import Path

KEY = "mgw-admin-bench-key"
KEYS, ACCOUNTS, MODELS = 10_000, 1_000, 100
BOUND_MS = 100
AUDIT_FILE, AUDIT_FILES = 10 << 20, 10
# The records of the test begin here (day 20,000 since 1970), and are of 90 days.
FIRST, LAST, MONTH = "2024-10-04", "2025-01-01", "2024-12-01"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


ANSWER = json.dumps({"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [
    {"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}).encode()


def provider(port):
    async def provide(reader, writer):
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"content-length: *(\d+)", head, re.I)
                await reader.readexactly(int(length.group(1)))
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(ANSWER) + ANSWER)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass

    async def main():
        async with await asyncio.start_server(provide, "127.0.0.1", port, backlog=1024) as server:
            await server.serve_forever()
    asyncio.run(main())


class Gateway:
    def __init__(self, folder, binary, upstream, keys=1, before=(), ledger=None):
        self.port, self.admin, self.dir = free_port(), free_port(), Path(folder)
        (self.dir / "gateway.toml").write_text(
            f'[server]\nlisten = ["127.0.0.1:{self.port}"]\nadmin = "127.0.0.1:{self.admin}"\nthreads = 1\n'
            f'[log]\naccess = "off"\n[store]\nsqlite = "state.db"\nrecord_lifetime = "3650d"\n[admin]\nstate = "admin"\n')
        routes = [f'[[provider]]\nname = "p"\nkind = "openai-compatible"\nbase_url = "http://127.0.0.1:{upstream}/v1"\n']
        routes += [f'[[model]]\nid = "m-{n}"\ntargets = [{{ provider = "p", model = "m-{n}" }}]\n' for n in range(MODELS)]
        (self.dir / "routes.toml").write_text("".join(routes))
        text = [f'[[key]]\nname = "bench"\nsha256 = "{digest(KEY)}"\n']
        text += [f'[[key]]\nname = "key-{n}"\nsha256 = "{digest(str(n))}"\n'
                 f'limits = {{ requests_per_minute = 100, spend_per_day = 10, spend_per_month = 100 }}\n' for n in range(keys - 1)]
        (self.dir / "keys.toml").write_text("".join(text))
        if ledger:
            for file in Path(ledger).iterdir():
                shutil.copy(file, self.dir / file.name)
        self.log = open(self.dir / "log", "wb")
        command = [*before, binary, "serve", "--conf", str(self.dir / "gateway.toml")]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        for _ in range(1200):
            try:
                if self.get("/readyz")[0] == 200:
                    return
            except OSError:
                time.sleep(0.1)
        sys.exit("the gateway did not start:\n" + (self.dir / "log").read_text()[-2000:])

    def get(self, path):
        """Returns status, seconds to the first byte of the body, seconds to its end, and the body."""
        link = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=60)
        begin = time.perf_counter()
        link.request("GET", path)
        answer = link.getresponse()
        body = answer.read(1)
        first = time.perf_counter() - begin
        body += answer.read()
        whole = time.perf_counter() - begin
        link.close()
        return answer.status, first, whole, body

    def listen(self):
        """Opens a stream of all events."""
        link = socket.create_connection(("127.0.0.1", self.admin))
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        link.sendall(b"GET /admin/v1/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        link.recv(64)
        return link

    def send(self, count):
        """Sends requests of a client, one after another over one connection."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        body = json.dumps({"model": "m-1", "messages": [{"role": "user", "content": "Hi"}]})
        for _ in range(count):
            link.request("POST", "/v1/chat/completions", body, {"authorization": f"Bearer {KEY}", "content-type": "application/json"})
            answer = link.getresponse()
            if answer.status != 200:
                sys.exit(f"{answer.status}: {answer.read()}")
            answer.read()
        link.close()

    def resident(self):
        return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text()).group(1)) / 1024

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=120)


def write_audit(folder):
    """Writes a full audit log, as changes of keys leave it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    number, before = 1, ""
    for age in reversed(range(AUDIT_FILES)):
        lines, size = [], 0
        while size < AUDIT_FILE - 4096:
            entry = {"seq": number, "prev": before, "time": "2025-01-01T00:00:00Z", "actor": f"token:user-{number % 50}", "role": "admin",
                     "client": "127.0.0.1", "request_id": f"r-{number}", "action": "key.update", "object": f"key/key-{number % KEYS}",
                     "outcome": "applied", "file": "/etc/model-gateway/keys.toml", "hash_before": "0" * 64, "hash_after": "1" * 64,
                     "before": {"name": f"key-{number % KEYS}", "limits": {"spend_per_day": "1"}}, "after": {"name": f"key-{number % KEYS}", "limits": {"spend_per_day": "2"}}}
            text = json.dumps(entry, separators=(",", ":"))
            lines.append(text)
            size += len(text) + 1
            number, before = number + 1, digest(text)[:32]
        name = "audit.jsonl" if age == 0 else f"audit.{age}.jsonl"
        (folder / name).write_text("\n".join(lines) + "\n")


V1 = "/admin/v1"
TODAY = f"from={LAST}&to={LAST}"
SPAN = f"from={FIRST}&to={LAST}"
PAGES = [
    ("overview", [f"{V1}/instance", f"{V1}/totals", f"{V1}/usage?group=model&{TODAY}"]),
    ("requests", [f"{V1}/usage/records?limit=500&{SPAN}"]),
    ("targets", [f"{V1}/targets", f"{V1}/providers"]),
    ("usage", [f"{V1}/usage?group=day&{SPAN}&limit=1000", f"{V1}/usage?group=day,model&{SPAN}&top=5&order=-cost&limit=10000",
               f"{V1}/usage?group=day,key&{SPAN}&top=5&order=-cost&limit=10000", f"{V1}/usage?group=hour,provider&from=2024-12-26&to={LAST}&top=5&limit=10000",
               f"{V1}/usage?group=hour,key&from=2024-12-26&to={LAST}&top=5&limit=10000", f"{V1}/usage?group=key&{SPAN}&limit=1000"]),
    ("cache", [f"{V1}/usage?group=model&{SPAN}&limit=1000", f"{V1}/usage?group=day&{SPAN}&limit=1000"]),
    ("accounts", [f"{V1}/accounts?limit=1000", f"{V1}/usage?group=account&{TODAY}&limit=5000", f"{V1}/accounts/account-1/limits", f"{V1}/accounts/account-1/credits?limit=50"]),
    ("keys", [f"{V1}/keys?limit=1000", f"{V1}/keys?limit=1000&cursor=key-5", f"{V1}/usage?group=key&{TODAY}&limit=5000",
              f"{V1}/usage?group=key&from={MONTH}&to={LAST}&limit=5000", f"{V1}/keys/key-77", f"{V1}/keys/key-77/limits"]),
    ("models", [f"{V1}/models?limit=1000", f"{V1}/models/m-7"]),
    ("configuration", [f"{V1}/config", f"{V1}/config/files", f"{V1}/audit?limit=200", f"{V1}/audit?limit=200&actor=token:nobody", f"{V1}/audit?limit=200&cursor=100"]),
    ("fleet", [f"{V1}/fleet"]),
]
EXPORTS = [f"{V1}/usage?group=day,key&{SPAN}&format=csv", f"{V1}/usage/records?{SPAN}&format=csv"]


def measure_pages(options, folder, upstream):
    write_audit(Path(folder) / "admin")
    gateway = Gateway(folder, options.binary, upstream, KEYS, ledger=options.ledger)
    accounts = subprocess.run(["sh", "-c", f"seq 0 {ACCOUNTS - 1} | sed 's/^/account-/' | xargs -n1 {options.binary} accounts create --conf {folder}/gateway.toml --"],
                              capture_output=True, text=True) if options.accounts else None
    if accounts and accounts.returncode:
        sys.exit(accounts.stderr[-500:])
    slow = 0
    for page, paths in PAGES:
        for path in paths:
            best = min((gateway.get(path) for _ in range(3)), key=lambda one: one[2])
            status, first, whole, body = best
            late = whole * 1000 > BOUND_MS
            slow += late
            print(f"{page:14} {status} {first * 1000:8.1f} {whole * 1000:8.1f} ms {len(body):9} bytes  {path}{'  SLOW' if late else ''}", flush=True)
    for path in EXPORTS:
        link = http.client.HTTPConnection("127.0.0.1", gateway.admin, timeout=60)
        begin = time.perf_counter()
        link.request("GET", path)
        answer = link.getresponse()
        answer.read(1)
        first = time.perf_counter() - begin
        slow += first * 1000 > BOUND_MS
        read = len(answer.read(50 << 20))
        print(f"{'export':14} {answer.status} {first * 1000:8.1f} ms to the first byte, {read} bytes in {time.perf_counter() - begin:.2f} s  {path}", flush=True)
        link.close()
    print(f"resident memory {gateway.resident():.0f} MiB")
    gateway.stop()
    return slow


def drain_events(links, stop):
    for link in links:
        link.settimeout(0.05)
    while not stop.is_set():
        for link in links:
            try:
                link.recv(1 << 16)
            except (TimeoutError, socket.timeout):
                pass


def measure_instructions(options, folder, upstream):
    import threading
    counts = {}
    for listeners in (0, 1, 4):
        totals = []
        for requests in (500, 2500):
            out = f"{folder}/callgrind.{listeners}.{requests}"
            before = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", f"--log-file={out}.log"]
            gateway = Gateway(folder, options.binary, upstream, before=before)
            links, stop = [gateway.listen() for _ in range(listeners)], threading.Event()
            reader = threading.Thread(target=drain_events, args=(links, stop))
            reader.start()
            begin = time.monotonic()
            gateway.send(requests)
            # What passes with time alone is the same in both runs, as far as possible.
            time.sleep(max(0, 60 - (time.monotonic() - begin)))
            stop.set()
            reader.join()
            gateway.stop()
            totals.append(int(re.search(r"^(?:summary|totals): (\d+)", Path(out).read_text(), re.M).group(1)))
        counts[listeners] = (totals[1] - totals[0]) / 2000
        print(f"{listeners} listeners: {counts[listeners]:.0f} instructions per request"
              + (f", {100 * (counts[listeners] / counts[0] - 1):+.1f} %" if listeners else ""), flush=True)
    return 0


def measure_memory(options, folder, upstream):
    gateway = Gateway(folder, options.binary, upstream)
    gateway.send(10_000)
    print(f"no listener, after 10000 requests: {gateway.resident():.1f} MiB", flush=True)
    links = [gateway.listen() for _ in range(32)]
    for turn in range(1, 5):
        gateway.send(10_000)
        print(f"32 listeners that do not read, after {turn * 10_000} requests: {gateway.resident():.1f} MiB", flush=True)
    for link in links:
        link.close()
    gateway.stop()
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("part", choices=["pages", "instructions", "memory"])
    parser.add_argument("--binary", default="target/release/model-gateway")
    parser.add_argument("--ledger", help="folder with a ledger (pages)")
    parser.add_argument("--accounts", action="store_true", help="create 1,000 accounts first (pages)")
    options = parser.parse_args()
    options.binary = str(Path(options.binary).resolve())
    upstream = free_port()
    serving = multiprocessing.Process(target=provider, args=(upstream,), daemon=True)
    serving.start()
    with tempfile.TemporaryDirectory() as folder:
        part = {"pages": measure_pages, "instructions": measure_instructions, "memory": measure_memory}[options.part]
        sys.exit(1 if part(options, folder, upstream) else 0)


if __name__ == "__main__":
    main()
