#!/usr/bin/env python3
"""Latency of small requests and streams of other clients while large bodies are translated.

Starts the gateway (--binary) with two workers, providers on loopback, and load: one client that sends small requests one
after another, and clients that read streams with a frame every 20 ms. First without other load; then, shape after shape,
while more clients than there are workers send bodies of up to 64 MB that are as expensive to translate as possible.
Prints p50, p99 and maximum of the small requests and of the gaps between frames, in milliseconds, and the outcome of
the large requests. The senders of large bodies are niced, because in production they run on other machines.

    python3 benches/e2e/starvation.py [--binary target/release/model-gateway] [--seconds 8] [--size 64] [--senders 4]

Fails (exit 1) if the p99 of small requests is above 50 ms under any load. Needs only Python 3.9.
"""
import argparse, asyncio, hashlib, json, multiprocessing, os, signal, socket, subprocess, sys, tempfile, time
from pathlib import Path

KEY = "mgw-starvation-key"
GAP = 0.02
STREAMS = 8
BOUND_MS = 50


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


# ---- the providers: one process for all formats

ANSWERS = {
    "chat": {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}},
    "messages": {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "ok"}],
                 "stop_reason": "end_turn", "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}},
    "generate": {"candidates": [{"content": {"parts": [{"text": "ok"}], "role": "model"}, "finishReason": "STOP", "index": 0}],
                 "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}, "responseId": "x"},
}


async def provide(reader, writer):
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(next(l.split(b":")[1] for l in head.split(b"\r\n") if l.lower().startswith(b"content-length")))
            body, left = b"", length
            while left:
                piece = await reader.read(min(left, 1 << 18))
                if not piece:
                    return
                left -= len(piece)
                if len(body) < 4096:
                    body += piece
            path = head.split(b" ", 2)[1]
            kind = "generate" if b"generateContent" in path else "messages" if b"/messages" in path else "chat"
            if kind == "chat" and b'"stream":true' in body.replace(b" ", b""):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
                while True:
                    data = b'data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}\n\n'
                    writer.write(b"%x\r\n" % len(data) + data + b"\r\n")
                    await writer.drain()
                    await asyncio.sleep(GAP)
            out = json.dumps(ANSWERS[kind]).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(out) + out)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


def provider(port, niceness):
    os.nice(niceness)

    async def main():
        server = await asyncio.start_server(provide, "127.0.0.1", port, backlog=1024, limit=1 << 20)
        async with server:
            await server.serve_forever()
    asyncio.run(main())


# ---- the large bodies: name, client's path, model, body

def repeated(before, make, after, size, most=1 << 30):
    """Returns a body with pieces between two texts, up to `size` bytes or `most` pieces."""
    out, length, n = [], len(before) + len(after), 0
    while length < size and n < most:
        piece = make(n)
        out.append(piece)
        length += len(piece) + 1
        n += 1
    return (before + ",".join(out) + after).encode()


def shapes(size):
    chat = '{"model":"%s","messages":[{"role":"user","content":"hi"}'
    for model, name in (("g", "generate"), ("a", "messages")):
        yield f"unknown members of a turn, chat to {name}", model, repeated(
            chat % model + ',{"role":"user","content":"hi",', lambda n: f'"k{n}":1', "}]}", size)
    calls = 65_000
    ids = ",".join(f'{{"id":"call_{n}","type":"function","function":{{"name":"t","arguments":"{{}}"}}}}' for n in range(calls))
    for model, name in (("a", "messages"), ("g", "generate")):
        yield f"{calls} calls, results in reverse, chat to {name}", model, repeated(
            chat % model + ',{"role":"assistant","content":null,"tool_calls":[' + ids + "]},",
            lambda n: '{"role":"tool","tool_call_id":"call_%d","content":"%s"}' % (calls - 1 - n, "x" * 700), "]}", size, calls)
    yield "260000 turns, chat to messages", "a", repeated(
        chat % "a" + ",", lambda n: '{"role":"%s","content":"%s"}' % (("user", "assistant")[n % 2], "\\n" * 90), "]}", size, 130_000)
    yield "too many turns (refused), chat to messages", "a", repeated(
        chat % "a" + ",", lambda n: '{"role":"user","content":"x"}', "]}", size)
    yield "schemas of 4000 tools, chat to generate", "g", repeated(
        chat % "g" + '],"tools":[',
        lambda n: '{"type":"function","function":{"name":"t%d","parameters":{"type":"object","properties":{%s}}}}' % (
            n, ",".join('"p%d":{"type":["string","null"],"description":"%s"}' % (p, "x" * 20) for p in range(200))), "]}", size, 4_000)
    yield "one text full of escapes, chat to messages", "a", (
        chat % "a" + ',{"role":"user","content":"' + "\\u00fc\\\"" * (size // 8) + '"}]}').encode()


def send(port, model, body, until, results):
    os.nice(10)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {KEY}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    while time.monotonic() < until:
        begun = time.monotonic()
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=60) as link:
                link.sendall(head)
                link.sendall(body)
                status = link.recv(64).split(b" ")[1].decode()
                while link.recv(1 << 16):
                    pass
        except (OSError, IndexError) as error:
            status = type(error).__name__
        results.put((status, time.monotonic() - begun))


# ---- the other clients

def request(stream):
    body = json.dumps({"model": "m", "stream": stream, "messages": [{"role": "user", "content": "Hi"}]})
    return (f"POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {KEY}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n{body}").encode()


async def talk(port, until, times):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    small = request(False)
    while time.monotonic() < until:
        begun = time.monotonic()
        writer.write(small)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(next(l.split(b":")[1] for l in head.split(b"\r\n") if l.lower().startswith(b"content-length")))
        await reader.readexactly(length)
        if b" 200 " not in head[:20]:
            sys.exit("a small request was refused: " + head.decode())
        times.append(time.monotonic() - begun)
        await asyncio.sleep(0.005)
    writer.close()


async def listen(port, until, gaps):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request(True))
    await reader.readuntil(b"\n\n")
    last = time.monotonic()
    while time.monotonic() < until:
        await reader.readuntil(b"\n\n")
        now = time.monotonic()
        gaps.append(now - last)
        last = now
    writer.close()


async def others(port, seconds):
    until, times, gaps = time.monotonic() + seconds, [], []
    await asyncio.gather(talk(port, until, times), *(listen(port, until, gaps) for _ in range(STREAMS)))
    return times, gaps


def figures(values):
    ms = sorted(value * 1000 for value in values) or [0]
    at = lambda q: ms[min(len(ms) - 1, int(len(ms) * q))]
    return at(0.5), at(0.99), ms[-1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default="target/release/model-gateway")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--size", type=int, default=64, help="MB of the large bodies")
    parser.add_argument("--senders", type=int, default=4)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    size = args.size * 1000 * 1000
    upstream, large_upstream, port, admin = free_port(), free_port(), free_port(), free_port()
    provides = [multiprocessing.Process(target=provider, args=args, daemon=True) for args in ((upstream, 0), (large_upstream, 10))]
    for process in provides:
        process.start()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "gateway.toml").write_text(
            f'[server]\nlisten = ["127.0.0.1:{port}"]\nadmin = "127.0.0.1:{admin}"\nthreads = 2\n'
            f'upgrade_socket = "{folder}/upgrade.sock"\n[limits]\nmemory = "4GiB"\n[log]\naccess = "off"\n')
        secret = 'credential = { value = "x" }\n'
        kinds = (("openai-compatible", upstream, "v1", ""), ("anthropic", large_upstream, "v1", secret), ("gemini", large_upstream, "v1beta", secret))
        routes = "".join(f'[[provider]]\nname = "{kind}"\nkind = "{kind}"\nbase_url = "http://127.0.0.1:{address}/{path}"\n{credential}'
                         for kind, address, path, credential in kinds)
        routes += "".join(f'[[model]]\nid = "{model}"\ntargets = [{{ provider = "{kind}", model = "{upstream_model}" }}]\n'
                          for model, kind, upstream_model in (("m", "openai-compatible", "m"), ("a", "anthropic", "claude-sonnet-4-5"), ("g", "gemini", "gemini-2.5-flash")))
        (folder / "routes.toml").write_text(routes)
        (folder / "keys.toml").write_text(f'[[key]]\nname = "load"\nsha256 = "{hashlib.sha256(KEY.encode()).hexdigest()}"\n')
        log = open(folder / "log", "ab")
        gateway = subprocess.Popen([args.binary, "serve", "--conf", str(folder / "gateway.toml")], stdout=log, stderr=log)
        try:
            for _ in range(600):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                if gateway.poll() is not None:
                    sys.exit("the gateway did not start:\n" + (folder / "log").read_text()[-2000:])
                time.sleep(0.05)
            print(f"{'':58} small requests, ms        gaps of streams, ms      large requests")
            print(f"{'':58} {'p50':>7} {'p99':>7} {'max':>8}  {'p50':>7} {'p99':>7} {'max':>8}")

            def row(name, times, gaps, large):
                small, streams = figures(times), figures(gaps)
                print(f"{name:58} " + " {:7.1f} {:7.1f} {:8.1f}".format(*small)[1:] + "  " + "{:7.1f} {:7.1f} {:8.1f}".format(*streams) + "  " + large, flush=True)
                return small[1]
            row("nothing else", *asyncio.run(others(port, args.seconds)), "")
            for name, model, body in shapes(size):
                if args.only not in name:
                    continue
                results, until = multiprocessing.Queue(), time.monotonic() + args.seconds
                senders = [multiprocessing.Process(target=send, args=(port, model, body, until, results), daemon=True)
                           for _ in range(args.senders)]
                for sender in senders:
                    sender.start()
                time.sleep(0.3)
                times, gaps = asyncio.run(others(port, args.seconds))
                for sender in senders:
                    sender.join(70)
                    sender.kill()
                told = {}
                while not results.empty():
                    status, took = results.get()
                    told.setdefault(status, []).append(took)
                large = ", ".join(f"{len(all)} x {status} in {max(all):.1f} s at most" for status, all in sorted(told.items()))
                failed |= row(f"{name} ({len(body) / 1e6:.0f} MB)", times, gaps, large) > BOUND_MS
        finally:
            gateway.send_signal(signal.SIGKILL)
            for process in provides:
                process.kill()
    if failed:
        sys.exit(f"the p99 of small requests is above {BOUND_MS} ms")


if __name__ == "__main__":
    main()
