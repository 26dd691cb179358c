#!/usr/bin/env python3
"""What a collector that fails costs requests: their latency and the gateway's memory without telemetry, with a collector that answers,
and with one that is dead (nothing listens), slow (it never answers), or resets each connection.

The gateway (the release build, or --binary) runs on one worker and exports everything of every request. A client sends requests at a steady
rate over eight connections, in turns of all collectors; printed are the medians of the rounds, and the largest resident memory.

    python3 benches/e2e/collector.py [--rounds 5] [--rate 400] [--seconds 4]

Needs only Python 3.9; everything is on loopback.
"""
import argparse, asyncio, json, multiprocessing, socket, statistics, struct, sys, tempfile, time
from pathlib import Path

import admin

CONNECTIONS = 8
COLLECTORS = ["none", "answers", "dead", "slow", "resets"]
BODY = json.dumps({"model": "m-1", "messages": [{"role": "user", "content": "Hi"}]}).encode()
REQUEST = (b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer " + admin.KEY.encode()
           + b"\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY)


def collect(kind, port):
    """Serves a collector that answers, never answers, or resets connections."""
    async def serve(reader, writer):
        try:
            if kind == "resets":
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
            while head := await reader.readuntil(b"\r\n\r\n"):
                if kind == "slow":
                    await asyncio.sleep(600)
                length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                await reader.readexactly(int(length[0].split(b":")[1]))
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def main():
        async with await asyncio.start_server(serve, "127.0.0.1", port) as server:
            await server.serve_forever()
    asyncio.run(main())


class Gateway(admin.Gateway):
    """A gateway with a collector of this kind."""

    def __init__(self, folder, binary, upstream, kind):
        Path(folder).mkdir()
        self.collector = None
        if kind != "none":
            self.collector_port = admin.free_port()
            settings = {"OTLP": f"http://127.0.0.1:{self.collector_port}", "SAMPLE": "1.0", "LOGS": "true", "METRICS": "true"}
            before = ["env", *(f"MODEL_GATEWAY__TELEMETRY__{name}={value}" for name, value in settings.items())]
        else:
            before = []
        if kind not in ("none", "dead"):
            self.collector = multiprocessing.Process(target=collect, args=(kind, self.collector_port), daemon=True)
            self.collector.start()
        super().__init__(folder, binary, upstream, before=before)
        self.times, self.largest = [], 0.0

    async def load(self, rate, seconds):
        """Sends requests at a steady rate. Returns their latencies in milliseconds, without the wait for their turn."""
        links = [await asyncio.open_connection("127.0.0.1", self.port) for _ in range(CONNECTIONS)]
        times, begin, count = [], time.perf_counter(), int(rate * seconds)

        async def send(number):
            reader, writer = links[number]
            for turn in range(number, count, CONNECTIONS):
                await asyncio.sleep(max(0, begin + turn / rate - time.perf_counter()))
                sent = time.perf_counter()
                writer.write(REQUEST)
                head = await reader.readuntil(b"\r\n\r\n")
                if not head.startswith(b"HTTP/1.1 200"):
                    sys.exit(head.decode())
                length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                await reader.readexactly(int(length[0].split(b":")[1]))
                times.append((time.perf_counter() - sent) * 1000)

        await asyncio.gather(*(send(number) for number in range(CONNECTIONS)))
        for _, writer in links:
            writer.close()
        self.largest = max(self.largest, self.resident())
        return sorted(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", default="target/release/model-gateway")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=int, default=400, help="requests per second")
    parser.add_argument("--seconds", type=float, default=4)
    options = parser.parse_args()
    binary = str(Path(options.binary).resolve())
    upstream = admin.free_port()
    multiprocessing.Process(target=admin.provider, args=(upstream,), daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        gateways = {kind: Gateway(f"{folder}/{kind}", binary, upstream, kind) for kind in COLLECTORS}
        for gateway in gateways.values():
            asyncio.run(gateway.load(options.rate, 1))
        for _ in range(options.rounds):
            for gateway in gateways.values():
                gateway.times.append(asyncio.run(gateway.load(options.rate, options.seconds)))
        at = lambda gateway, part: statistics.median(times[int(len(times) * part)] for times in gateway.times)
        base = gateways["none"]
        print("collector     p50 ms    p99 ms   p99 to none   resident MiB")
        for kind, gateway in gateways.items():
            print(f"{kind:10} {at(gateway, 0.5):9.3f} {at(gateway, 0.99):9.3f} {at(gateway, 0.99) / at(base, 0.99):13.2f} {gateway.largest:14.1f}")
            gateway.process.kill()
            gateway.process.wait()


if __name__ == "__main__":
    main()
