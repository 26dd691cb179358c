#!/usr/bin/env python3
"""Cost of operating the gateway: the requests of each page of the console, and what an open console costs requests.

`pages` starts the gateway (the release build, or --binary) on one core (--core) with 10,000 keys, 100 models, a full audit log
(100 MB), and a ledger. The ledger is copied from --ledger, the folder in which the test `usage_of_ten_million` leaves its
database if MGW_USAGE_FOLDER names it, or it is made of --records requests of today. Prints the time to the first byte, the
median and the worst time to the end of five times each request that a page makes, also at the most expensive position: the
last day, the latest first, and filters that nearly nothing matches. Fails if the median of one is more than 100 ms. Exports
have the time to their first byte.

`load` sends --rate requests per second to a gateway on one core, and prints their latencies without a console, and while one
is open (events, and the requests of its pages), while requests are explained, and while a file of all records is read.

`instructions` runs the gateway under valgrind and prints the instructions of a request without a listener, and with one
or four that listen to all events.

`memory` opens 32 streams of events whose readers do not read, sends requests, and prints the resident memory before, and
after each 10,000 requests.

    python3 benches/e2e/admin.py pages --ledger FOLDER [--binary target/release/model-gateway]
    python3 benches/e2e/admin.py pages --records 20000
    python3 benches/e2e/admin.py load --records 20000 --rate 200
    python3 benches/e2e/admin.py instructions
    python3 benches/e2e/admin.py memory

Needs only Python 3.9, and valgrind for the instructions; everything is on loopback.
"""
import argparse, asyncio, datetime, hashlib, http.client, json, multiprocessing, os, re, shutil, signal, socket, statistics, subprocess, sys, tempfile, threading, time
from pathlib import Path

KEY = "mgw-admin-bench-key"
KEYS, ACCOUNTS, MODELS = 10_000, 1_000, 100
BOUND_MS = 100
AUDIT_FILE, AUDIT_FILES = 10 << 20, 10
TIMES = 5


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
    def __init__(self, folder, binary, upstream, keys=1, before=(), ledger=None, core=None):
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
        pin = None if core is None else lambda: os.sched_setaffinity(0, {core})
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, preexec_fn=pin)
        for _ in range(1200):
            try:
                if self.get("/readyz")[0] == 200:
                    return
            except OSError:
                time.sleep(0.1)
        sys.exit("the gateway did not start:\n" + (self.dir / "log").read_text()[-2000:])

    def get(self, path, body=None):
        """Returns status, seconds to the first byte of the body, seconds to its end, and the body. Sends a body with POST."""
        link = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=60)
        begin = time.perf_counter()
        if body is None:
            link.request("GET", path)
        else:
            link.request("POST", path, json.dumps(body), {"content-type": "application/json"})
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

    def fill(self, count, links=8):
        """Sends requests over several connections, and waits until the ledger has them."""
        threads = [threading.Thread(target=self.send, args=(count // links,)) for _ in range(links)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        while json.loads(self.get(f"{V1}/usage?group=day")[3])["total"]["requests"] < count // links * links:
            time.sleep(0.5)

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
NEWEST = f"{V1}/usage/records?limit=200&order=-time"
BODY = json.dumps({"model": "m-1", "messages": [{"role": "user", "content": "Hello, what do you get of this? " * 20}]})
EXPLAIN = {"format": "chat", "model": "m-1", "stream": False, "body": BODY}


def days(options):
    """Returns the first day of the records, the last one, the first of a month, and one a week before the last."""
    if options.ledger:
        # Those of the test begin on day 20,000 since 1970, and are of 90 days.
        return "2024-10-04", "2025-01-01", "2024-12-01", "2024-12-26"
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    return today, today, today, today


def pages(options):
    """Returns the requests of each page, as its script sends them, and at their most expensive position."""
    first, last, month, week = days(options)
    today, span = f"from={last}&to={last}", f"from={first}&to={last}"
    return [
        ("overview", [f"{V1}/instance", f"{V1}/totals", f"{V1}/fleet", f"{V1}/usage?group=model&{today}"]),
        ("requests", [f"{NEWEST}&{span}", f"{NEWEST}&{today}", f"{NEWEST}&{span}&status=error", f"{NEWEST}&{span}&text=nothing-has-this",
                      f"{NEWEST}&{span}&key=key-999", f"{NEWEST}&{today}&key=key-999&model=model-23", f"{V1}/usage/records?limit=200&{today}"]),
        ("targets", [f"{V1}/targets", f"{V1}/providers"]),
        ("errors", [f"{V1}/usage?group=day,error&{span}&top=5&order=-failed&limit=10000", f"{V1}/usage?group=hour,error&{today}&top=5&order=-failed&limit=10000"]),
        ("usage", [f"{V1}/usage?group=day&{span}&limit=1000", f"{V1}/usage?group=day,model&{span}&top=5&order=-cost&limit=10000",
                   f"{V1}/usage?group=day,key&{span}&top=5&order=-cost&limit=10000", f"{V1}/usage?group=hour,provider&from={week}&to={last}&top=5&limit=10000",
                   f"{V1}/usage?group=hour,key&from={week}&to={last}&top=5&limit=10000", f"{V1}/usage?group=key&{span}&limit=1000",
                   f"{V1}/usage?group=day,model&{span}&key=key-999&top=5&limit=10000"]),
        ("cache", [f"{V1}/usage?group=model&{span}&limit=1000", f"{V1}/usage?group=day&{span}&limit=1000"]),
        ("accounts", [f"{V1}/accounts?limit=200", f"{V1}/accounts?limit=200&q=99", f"{V1}/usage?group=account&{today}&limit=1000", f"{V1}/accounts/account-1/limits",
                      f"{V1}/accounts/account-1/credits?limit=50"]),
        ("keys", [f"{V1}/keys?limit=200", f"{V1}/keys?limit=200&cursor=key-9", f"{V1}/keys?limit=200&q=key-7777", f"{V1}/keys?limit=200&q=usable+nothing-has-this",
                  f"{V1}/usage?group=key&{today}&limit=1000", f"{V1}/usage?group=key&from={month}&to={last}&limit=1000", f"{V1}/usage?group=key&{today}&key=key-77",
                  f"{V1}/keys/key-77", f"{V1}/keys/key-77/limits"]),
        ("models", [f"{V1}/models?limit=1000", f"{V1}/models/m-7"]),
        ("configuration", [f"{V1}/config", f"{V1}/config/files", f"{V1}/audit?limit=200", f"{V1}/audit?limit=200&actor=token:nobody", f"{V1}/audit?limit=200&cursor=100"]),
        ("playground", [(f"{V1}/explain", EXPLAIN)]),
    ]


def measure_pages(options, folder, upstream):
    write_audit(Path(folder) / "admin")
    gateway = Gateway(folder, options.binary, upstream, KEYS, ledger=options.ledger, core=options.core)
    if not options.ledger:
        gateway.fill(options.records)
    accounts = subprocess.run(["sh", "-c", f"seq 0 {ACCOUNTS - 1} | sed 's/^/account-/' | xargs -n1 {options.binary} accounts create --conf {folder}/gateway.toml --"],
                              capture_output=True, text=True) if options.accounts else None
    if accounts and accounts.returncode:
        sys.exit(accounts.stderr[-500:])
    slow, slowest = 0, 0.0
    print(f"{'page':14} {'':3} {'first byte':>10} {'median':>8} {'worst':>8}")
    for page, paths in pages(options):
        for path in paths:
            path, body = path if isinstance(path, tuple) else (path, None)
            answers = [gateway.get(path, body) for _ in range(TIMES)]
            status, first, _, text = answers[-1]
            # What a ledger does not have is no time of a page; a refused parameter is a fault of this list.
            if status != 200:
                slow += status != 404
                print(f"{page:14} {status}  {path}: {text[:200].decode()}")
                continue
            whole = [answer[2] * 1000 for answer in answers]
            middle = statistics.median(whole)
            slow += middle > BOUND_MS
            slowest = max(slowest, middle)
            print(f"{page:14} {status} {first * 1000:10.1f} {middle:8.1f} {max(whole):8.1f} ms {len(text):9} bytes  {path}{'  SLOW' if middle > BOUND_MS else ''}", flush=True)
    for path in exports(options):
        first, read, whole = read_file(gateway, path)
        slow += first * 1000 > BOUND_MS
        print(f"{'export':14} {first * 1000:8.1f} ms to the first byte, {read} bytes in {whole:.2f} s  {path}", flush=True)
    print(f"slowest request of a page: {slowest:.1f} ms (median of {TIMES}); resident memory {gateway.resident():.0f} MiB")
    gateway.stop()
    return slow


def exports(options):
    first, last, _, _ = days(options)
    return [f"{V1}/usage?group=day,key&from={first}&to={last}&format=csv", f"{V1}/usage/records?from={first}&to={last}&format=csv"]


def read_file(gateway, path, most=50 << 20):
    """Returns the seconds to the first byte of a file, the bytes that were read, and the seconds to their end."""
    link = http.client.HTTPConnection("127.0.0.1", gateway.admin, timeout=60)
    begin = time.perf_counter()
    link.request("GET", path)
    answer = link.getresponse()
    answer.read(1)
    first = time.perf_counter() - begin
    read = len(answer.read(most))
    link.close()
    return first, read, time.perf_counter() - begin


def client_load(port, rate, seconds, results):
    """Sends requests at even times over 16 connections, and puts their latencies from the time at which each was due."""
    async def connection(number, links, begin, latencies):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = json.dumps({"model": "m-1", "messages": [{"role": "user", "content": "Hi"}]}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {KEY}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        for turn in range(number, int(rate * seconds), links):
            due = begin + turn / rate
            await asyncio.sleep(max(0, due - time.monotonic()))
            writer.write(head.encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            if not answer.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(answer[:200])
            await reader.readexactly(int(re.search(rb"content-length: *(\d+)", answer, re.I).group(1)))
            latencies.append(time.monotonic() - due)
        writer.close()

    async def main():
        latencies, begin = [], time.monotonic() + 0.2
        await asyncio.gather(*(connection(number, 16, begin, latencies) for number in range(16)))
        return latencies
    results.put(asyncio.run(main()))


def measure_load(options, folder, upstream):
    gateway = Gateway(folder, options.binary, upstream, ledger=options.ledger, core=options.core)
    if not options.ledger:
        gateway.fill(options.records)

    def console(stop, times):
        link = gateway.listen()
        reader = threading.Thread(target=drain_events, args=([link], stop))
        reader.start()
        while not stop.wait(1):
            for path in (path for _, paths in pages(options) for path in paths[:1] if isinstance(path, str)):
                times.append(gateway.get(path)[2])
        reader.join()
        link.close()

    def explain(stop, times):
        while not stop.wait(0.01):
            times.append(gateway.get(f"{V1}/explain", EXPLAIN)[2])

    def export(stop, times):
        while not stop.wait(0.01):
            times.append(read_file(gateway, exports(options)[1])[2])

    for name, work in (("no console", None), ("a console", console), ("explanations", explain), ("exports", export)):
        results, stop, times = multiprocessing.Queue(), threading.Event(), []
        client = multiprocessing.Process(target=client_load, args=(gateway.port, options.rate, options.seconds, results))
        client.start()
        beside = threading.Thread(target=work, args=(stop, times)) if work else None
        if beside:
            beside.start()
        latencies = sorted(results.get(timeout=options.seconds + 60))
        stop.set()
        client.join()
        if beside:
            beside.join()
        part = lambda share: latencies[min(len(latencies) - 1, int(share * len(latencies)))] * 1000
        own = f"; {len(times)} beside them, median {statistics.median(times) * 1000:.1f} ms" if times else ""
        print(f"{name:14} {len(latencies)} requests: median {part(0.5):.2f} ms, 99 % {part(0.99):.2f} ms, most {latencies[-1] * 1000:.2f} ms{own}", flush=True)
    gateway.stop()
    return 0


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
    parser.add_argument("part", choices=["pages", "load", "instructions", "memory"])
    parser.add_argument("--binary", default="target/release/model-gateway")
    parser.add_argument("--ledger", help="folder with a ledger (pages, load)")
    parser.add_argument("--records", type=int, default=20_000, help="requests of which a ledger is made, without --ledger (pages, load)")
    parser.add_argument("--core", type=int, default=0, help="core on which the gateway runs (pages, load)")
    parser.add_argument("--rate", type=int, default=200, help="requests per second (load)")
    parser.add_argument("--seconds", type=int, default=15, help="duration of each part (load)")
    parser.add_argument("--accounts", action="store_true", help="create 1,000 accounts first (pages)")
    options = parser.parse_args()
    options.binary = str(Path(options.binary).resolve())
    upstream = free_port()
    serving = multiprocessing.Process(target=provider, args=(upstream,), daemon=True)
    serving.start()
    with tempfile.TemporaryDirectory() as folder:
        part = {"pages": measure_pages, "load": measure_load, "instructions": measure_instructions, "memory": measure_memory}[options.part]
        sys.exit(1 if part(options, folder, upstream) else 0)


if __name__ == "__main__":
    main()
