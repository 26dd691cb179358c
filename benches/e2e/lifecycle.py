#!/usr/bin/env python3
"""Cost of a reload, an upgrade, a stop and a crash of a provider under traffic.

Starts the gateway (the release build, or --binary) with 100,000 keys and 1,000 models, a provider, and load: clients
that send small requests one after another over keep-alive connections, and clients that read streams of 100 frames, one
every 20 ms. Then causes each event and prints the outcome of every request. Needs only Python 3.9; everything is on
loopback; takes about a minute and a half.

    python3 benches/e2e/lifecycle.py [--binary target/release/model-gateway] [--only reload,upgrade,stop,death]
"""
import argparse, asyncio, hashlib, json, multiprocessing, os, signal, socket, subprocess, sys, tempfile, time
from pathlib import Path

KEY = "mgw-load-key"
FRAMES, GAP = 100, 0.02
TALKERS, STREAMS = 32, 100


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


# ---- the provider: a separate process, so that it can be killed

async def provide(reader, writer):
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(next(l.split(b":")[1] for l in head.split(b"\r\n") if l.lower().startswith(b"content-length")))
            body = json.loads(await reader.readexactly(length))
            if not body.get("stream"):
                out = json.dumps({"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [
                    {"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}).encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(out) + out)
                await writer.drain()
                continue
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")

            def frame(text):
                data = b"data: " + text + b"\n\n"
                writer.write(b"%x\r\n" % len(data) + data + b"\r\n")
            for n in range(FRAMES):
                end = b'"stop"' if n == FRAMES - 1 else b"null"
                frame(b'{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"%d "},"finish_reason":%s}]}' % (n, end))
                await writer.drain()
                await asyncio.sleep(GAP)
            frame(b"[DONE]")
            writer.write(b"0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


def provider(port):
    async def main():
        async with await asyncio.start_server(provide, "127.0.0.1", port, backlog=1024) as server:
            await server.serve_forever()
    asyncio.run(main())


# ---- the gateway

class Gateway:
    def __init__(self, binary, folder, provider_port):
        self.port, self.admin, self.dir = free_port(), free_port(), Path(folder)
        self.conf = self.dir / "gateway.toml"
        self.conf.write_text(f'[server]\nlisten = ["127.0.0.1:{self.port}"]\nadmin = "127.0.0.1:{self.admin}"\ndrain = "20s"\n'
                             f'upgrade_socket = "{self.dir}/upgrade.sock"\n[log]\naccess = "access.log"\n')
        routes = [f'[[provider]]\nname = "p"\nkind = "openai-compatible"\nbase_url = "http://127.0.0.1:{provider_port}/v1"\n']
        routes += [f'[[model]]\nid = "m-{n}"\ntargets = [{{ provider = "p", model = "m" }}]\n' for n in range(1000)]
        (self.dir / "routes.toml").write_text("".join(routes))
        digest = lambda text: hashlib.sha256(text.encode()).hexdigest()
        keys = [f'[[key]]\nname = "load"\nsha256 = "{digest(KEY)}"\n']
        keys += [f'[[key]]\nname = "k{n}"\nsha256 = "{digest(str(n))}"\n' for n in range(99_999)]
        (self.dir / "keys.toml").write_text("".join(keys))
        self.log = open(self.dir / "log", "ab")
        self.process = subprocess.Popen([binary, "serve", "--conf", str(self.conf)], stdout=self.log, stderr=self.log)
        self.pid = self.process.pid

    async def get(self, path):
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.admin)
            writer.write(f"GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".encode())
            answer = await reader.read()
            writer.close()
            head, _, body = answer.partition(b"\r\n\r\n")
            return int(head.split()[1]), body.decode()
        except (OSError, IndexError, ValueError):
            return 0, ""

    async def ready(self):
        for _ in range(600):
            if (await self.get("/readyz"))[0] == 200:
                return
            await asyncio.sleep(0.05)
        sys.exit("the gateway did not start:\n" + (self.dir / "log").read_text()[-2000:])

    def end(self):
        for pid in {self.pid, self.process.pid}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


# ---- the load

class Tally:
    def __init__(self):
        self.latency, self.ok, self.refused, self.errors, self.stale = [], 0, 0, [], 0
        self.whole, self.told, self.cut = 0, 0, 0

    def row(self):
        ms = sorted(self.latency) or [0]
        at = lambda q: ms[min(len(ms) - 1, int(len(ms) * q))] * 1000
        return (f"requests {self.ok} ok, {len(self.errors)} failed, {self.refused} connections refused, {self.stale} closed while idle; "
                f"streams {self.whole} whole, {self.told} ended with an error, {self.cut} cut; "
                f"latency ms p50 {at(.5):.1f} p99 {at(.99):.1f} p99.9 {at(.999):.1f} max {ms[-1] * 1000:.1f}")


HEAD = "POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\ncontent-length: {n}\r\n\r\n"


def request(stream, model):
    head = HEAD.replace("host: g", "host: g\r\nconnection: close") if stream else HEAD
    body = json.dumps({"model": model, "stream": stream, "messages": [{"role": "user", "content": "Hi"}]})
    return (head.format(key=KEY, n=len(body)) + body).encode()


async def talk(port, tally, until, number):
    """Sends small requests over a keep-alive connection."""
    link, n = None, 0
    while time.monotonic() < until["at"]:
        fresh = link is None
        try:
            if fresh:
                link = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            tally.refused += 1
            await asyncio.sleep(0.02)
            continue
        reader, writer = link
        began = time.monotonic()
        n += 1
        try:
            writer.write(request(False, f"m-{(number * 31 + n) % 1000}"))
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(next(l.split(b":")[1] for l in head.split(b"\r\n") if l.lower().startswith(b"content-length")))
            body = await reader.readexactly(length)
            status = int(head.split()[1])
            if status == 200:
                tally.ok += 1
                tally.latency.append(time.monotonic() - began)
            else:
                tally.errors.append((status, body[:200]))
            if b"connection: close" in head.lower():
                writer.close()
                link = None
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            nothing = not getattr(error, "partial", b"")
            writer.close()
            link = None
            # A server may close an idle connection just when a request is sent. Every HTTP client retries then.
            if nothing and not fresh:
                tally.stale += 1
            else:
                tally.errors.append((0, repr(error)))
        await asyncio.sleep(0.01)


async def listen(port, tally, until):
    """Reads streams, one after another."""
    while time.monotonic() < until["at"]:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            tally.refused += 1
            await asyncio.sleep(0.05)
            continue
        try:
            writer.write(request(True, "m-7"))
            text = b""
            while not text.endswith(b"0\r\n\r\n"):
                piece = await reader.read(65536)
                if not piece:
                    break
                text += piece
            if b" 200 " not in text[:16]:
                tally.errors.append((text[9:12], text[-200:]))
            elif b"data: [DONE]" in text and text.count(b'"content"') == FRAMES:
                tally.whole += 1
            elif b'"error"' in text:
                tally.told += 1
            else:
                tally.cut += 1
        except ConnectionError:
            tally.cut += 1
        writer.close()
        if tally.errors:
            await asyncio.sleep(0.05)


async def under_load(gateway, seconds, event):
    tally, until = Tally(), {"at": time.monotonic() + seconds}
    tasks = [asyncio.create_task(talk(gateway.port, tally, until, n)) for n in range(TALKERS)]
    tasks += [asyncio.create_task(listen(gateway.port, tally, until)) for _ in range(STREAMS)]
    said = await event(tally, until)
    await asyncio.gather(*tasks)
    return tally, said


async def metric(gateway, start):
    _, text = await gateway.get("/metrics")
    return next((line.rsplit(" ", 1)[1] for line in text.splitlines() if line.startswith(start)), "?")


async def main():
    options = argparse.ArgumentParser()
    options.add_argument("--binary", default=str(Path(__file__).parents[2] / "target/release/model-gateway"))
    options.add_argument("--only", default="quiet,reload,upgrade,stop,death")
    options = options.parse_args()
    chosen = options.only.split(",")
    port = free_port()
    start = lambda: (lambda p: (p.start(), p)[1])(multiprocessing.Process(target=provider, args=(port,), daemon=True))
    provider = start()
    with tempfile.TemporaryDirectory() as folder:
        gateway = Gateway(options.binary, folder, port)
        try:
            await gateway.ready()

            async def quiet(tally, until):
                return ""

            async def reload(tally, until):
                for _ in range(5):
                    await asyncio.sleep(1)
                    os.kill(gateway.pid, signal.SIGHUP)
                await asyncio.sleep(1)
                return "reloads applied: " + await metric(gateway, 'gateway_reloads_total{result="applied"}')

            async def upgrade(tally, until):
                before = gateway.pid
                await asyncio.sleep(1.5)
                os.kill(before, signal.SIGUSR2)
                for _ in range(400):
                    await asyncio.sleep(0.05)
                    code, text = await gateway.get("/status")
                    if code == 200 and (pid := json.loads(text).get("pid", before)) != before:
                        gateway.pid = pid
                        break
                return f"process {'replaced' if gateway.pid != before else 'NOT replaced'}"

            async def death(tally, until):
                nonlocal provider
                await asyncio.sleep(1.5)
                provider.kill()
                provider.join()
                tally.before = tally.ok
                await asyncio.sleep(1.5)
                provider = start()
                return "the provider was killed, and back after 1.5 s"

            async def stop(tally, until):
                await asyncio.sleep(2.5)
                began = time.monotonic()
                until["at"] = began
                os.kill(gateway.pid, signal.SIGTERM)
                while time.monotonic() - began < 30:
                    await asyncio.sleep(0.05)
                    try:
                        os.kill(gateway.pid, 0)
                        if gateway.pid == gateway.process.pid and gateway.process.poll() is not None:
                            break
                    except ProcessLookupError:
                        break
                return f"ended {time.monotonic() - began:.1f} s after SIGTERM"

            for name, seconds, event in [("quiet", 6, quiet), ("reload", 8, reload), ("upgrade", 8, upgrade), ("death", 7, death), ("stop", 8, stop)]:
                if name in chosen:
                    tally, said = await under_load(gateway, seconds, event)
                    print(f"{name:8} {tally.row()}{'; ' if said else ''}{said}", flush=True)
                    kinds = {}
                    for status, text in tally.errors:
                        kinds[str(status)] = kinds.get(str(status), 0) + 1
                    if kinds:
                        print(f"{'':8} failures by status: {kinds}; e.g. {tally.errors[0]}")
        finally:
            gateway.end()
            provider.kill()


if __name__ == "__main__":
    asyncio.run(main())
