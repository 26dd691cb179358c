#!/usr/bin/env python3
"""Cost of a request with one and with several workers: what workers that run at the same time cost each other.

One gateway (the release build, or --binary) for each number of workers (--workers) gets the same load in turns of a
second, in alternating order, so that other load on the machine affects all of them alike. Processor time is that of the
gateway alone. Where every worker has a processor, throughput of a worker is one second over it. With more workers than
processors they no longer run at the same time, and what is measured is the cost of changing between threads.

    PEERS=<the bench kit's folder> python3 benches/e2e/scaling.py [--binary target/release/model-gateway] [--turns 20]

`chat`: small requests and responses, as they are. `messages`: translated. `stream`: 200 frames in one write. Prints the
median over the turns of the processor time per request, and compared turn by turn with that of the first number of workers.
"""
import argparse, hashlib, json, os, random, socket, statistics, subprocess, sys, tempfile, time, urllib.request
from pathlib import Path

# The load tool's: it also sends it in the other header of the messages format, and two different keys are refused.
KEY = "sk-bench-0123456789"
HZ = os.sysconf("SC_CLK_TCK")
MODEL = "mock-200-bulk"
SHAPES = {
    "chat": ("/v1/chat/completions", "chat", ["--no-stream", "--prompt-bytes", "320"]),
    "messages": ("/v1/messages", "messages", ["--no-stream", "--prompt-bytes", "320"]),
    "stream": ("/v1/chat/completions", "chat", []),
}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(url):
    for _ in range(100):
        try:
            return urllib.request.urlopen(url, timeout=1).read()
        except OSError:
            time.sleep(0.1)
    sys.exit(f"nothing answers at {url}")


class Gateway:
    """A gateway of its own folder with this number of workers."""

    def __init__(self, binary, folder, mock, workers):
        self.port, admin = free_port(), free_port()
        folder.mkdir()
        (folder / "gateway.toml").write_text(
            f'[server]\nlisten = ["127.0.0.1:{self.port}"]\nadmin = "127.0.0.1:{admin}"\nthreads = {workers}\n'
            '[limits]\npool = 2048\n[log]\naccess = "access.log"\n[store]\nsqlite = "state.db"\n')
        (folder / "routes.toml").write_text(
            f'[[provider]]\nname = "p"\nkind = "openai"\napis = ["chat"]\nbase_url = "http://127.0.0.1:{mock}/v1"\n'
            f'credential = {{ value = "sk-mock" }}\n[[model]]\nid = "{MODEL}"\ntargets = [{{ provider = "p", model = "{MODEL}" }}]\n')
        digest = hashlib.sha256(KEY.encode()).hexdigest()
        (folder / "keys.toml").write_text(f'[[key]]\nname = "bench"\nsha256 = "{digest}"\n')
        self.process = subprocess.Popen([binary, "serve", "--conf", folder / "gateway.toml"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(f"http://127.0.0.1:{admin}/readyz")

    def cpu(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / HZ


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="target/release/model-gateway")
    parser.add_argument("--workers", default="1,2", help="numbers of workers, with commas between them")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--clients", type=int, default=64)
    args = parser.parse_args()
    peers = Path(os.environ["PEERS"])
    mockllm, sseload = (peers / tool / "target/release" / tool for tool in ("mockllm", "sseload"))
    numbers = [int(n) for n in args.workers.split(",")]
    mock, children, figures, errors = free_port(), [], {}, 0
    with tempfile.TemporaryDirectory() as folder:
        try:
            children.append(subprocess.Popen([mockllm, "--port", str(mock)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            wait_for(f"http://127.0.0.1:{mock}/health")
            gateways = {n: Gateway(args.binary, Path(folder) / str(n), mock, n) for n in numbers}
            children += [gateway.process for gateway in gateways.values()]

            def load(gateway, shape):
                path, form, more = SHAPES[shape]
                command = [sseload, "--url", f"http://127.0.0.1:{gateway.port}{path}", "--fmt", form, "--model", MODEL, "-H", f"authorization: Bearer {KEY}",
                           "--warmup", "0", "--json", "-c", str(args.clients), "-d", "1", *more]
                before = gateway.cpu()
                out = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
                result = json.loads(next(line for line in reversed(out.splitlines()) if line.startswith("{")))
                return (gateway.cpu() - before) * 1e6 / result["streams"], result.get("errors") or 0

            for shape in SHAPES:
                for gateway in gateways.values():
                    load(gateway, shape)
                for turn in range(args.turns):
                    for n in numbers if turn % 2 == 0 else reversed(numbers):
                        spent, failed = load(gateways[n], shape)
                        figures.setdefault((shape, n), []).append(spent)
                        errors += failed
        finally:
            for child in reversed(children):
                child.terminate()
                child.wait(20)
    print(f"{args.turns} turns of 1 s, {args.clients} clients, {os.cpu_count()} processors, {errors} errors")
    print("shape     workers   cpu us/request   of the first's (95 %)")
    for (shape, n), ours in figures.items():
        ratios = [a / b for a, b in zip(ours, figures[shape, numbers[0]])]
        # Bootstrap: medians of samples of the turns, for the 95 % interval.
        rng = random.Random(1)
        drawn = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(2000))
        print(f"{shape:<9} {n:>7} {statistics.median(ours):>16.1f}   {statistics.median(ratios):.3f} ({drawn[50]:.3f}-{drawn[-51]:.3f})")


main()
