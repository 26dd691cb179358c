#!/usr/bin/env python3
"""Cost of several targets: CPU time and latency of a request, compared with a model with one target.

One gateway (the release build, or --binary) with one worker has models with the same provider as a single target, as
three targets with affinity, and as three targets of which one fails in one of several ways. Each model gets load for a
second per turn, in alternating order, so that other load on the machine affects all of them alike. Before the first
turn each model receives requests until its breakers have opened. Needs the bench kit's mock provider and load tool:

    PEERS=<the kit's folder> python3 benches/e2e/targets.py [--binary target/release/model-gateway] [--turns 20]

Prints for each model the median over the turns of the CPU time per request and of the p50 latency, and both compared
turn by turn with the single target.
"""
import argparse, hashlib, http.server, json, os, random, socket, statistics, subprocess, sys, tempfile, threading, time, urllib.request
from pathlib import Path

KEY = "mgw-load-key"
HZ = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Failing(http.server.BaseHTTPRequestHandler):
    """Provider that answers every request with the status of its server."""
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        body = b'{"error":{"message":"no","type":"server_error"}}'
        self.send_response(self.server.status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def failing(status):
    http.server.ThreadingHTTPServer.request_queue_size = 1024
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Failing)
    server.status = status
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def blackhole():
    """Starts a server that completes TCP handshakes and never responds."""
    s = socket.create_server(("127.0.0.1", 0), backlog=4096)
    kept.append(s)
    return s.getsockname()[1]


kept = []


def configure(folder, gateway, admin, mock):
    bad = {"refuses": free_port(), "fails": failing(500), "limited": failing(429), "silent": blackhole()}
    good = f"http://127.0.0.1:{mock}/v1"
    provider = lambda name, url: (f'[[provider]]\nname = "{name}"\nkind = "openai"\napis = ["chat"]\nbase_url = "{url}"\n'
                                  'credential = { value = "sk-mock" }\ntimeouts = { connect = "1s", first_byte = "1s" }\n')
    target = lambda name: f'{{ provider = "{name}", model = "mock-200-bulk" }}'
    routes = "".join(provider(name, good) for name in ("a", "b", "c"))
    # Names of the same length, so that only the targets differ.
    models = {"single_": ["a"], "three__": ["a", "b", "c"]}
    for name, port in bad.items():
        routes += provider(name, f"http://127.0.0.1:{port}/v1")
        models[name.ljust(7, "_")] = ["a", "b", name]
    for name, targets in models.items():
        policy = 'policy = "affinity"\n' if len(targets) > 1 else ""
        routes += (f'[[model]]\nid = "{name}"\n{policy}'
                   f'targets = [{", ".join(map(target, targets))}]\n')
    (folder / "gateway.toml").write_text(
        f'[server]\nlisten = ["127.0.0.1:{gateway}"]\nadmin = "127.0.0.1:{admin}"\nthreads = 1\n'
        '[limits]\npool = 2048\n[log]\naccess = "access.log"\n[store]\nsqlite = "state.db"\n')
    routes += '[breaker]\ncooldown = "10m"\nlongest = "10m"\n'
    (folder / "routes.toml").write_text(routes)
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    (folder / "keys.toml").write_text(f'[[key]]\nname = "bench"\nsha256 = "{digest}"\n')
    (folder / "access.log").touch()
    return list(models)


def wait_for(url):
    for _ in range(100):
        try:
            return urllib.request.urlopen(url, timeout=1).read()
        except OSError:
            time.sleep(0.1)
    sys.exit(f"nothing answers at {url}")


def cpu(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / HZ


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="target/release/model-gateway")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--only", help="models, with commas between them")
    args = parser.parse_args()
    peers = Path(os.environ["PEERS"])
    mockllm, sseload = (peers / tool / "target/release" / tool for tool in ("mockllm", "sseload"))
    pinned = lambda core: ["taskset", "-c", str(core)] if os.cpu_count() > 1 else []
    mock, gateway, admin = free_port(), free_port(), free_port()
    children = []
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        models = configure(folder, gateway, admin, mock)
        if args.only:
            models = [model for model in models if model.rstrip("_") in args.only.split(",")]
        try:
            children.append(subprocess.Popen(pinned(0) + [mockllm, "--port", str(mock)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            wait_for(f"http://127.0.0.1:{mock}/health")
            children.append(subprocess.Popen(pinned(1) + [args.binary, "serve", "--conf", folder / "gateway.toml"]))
            wait_for(f"http://127.0.0.1:{admin}/readyz")
            pid = children[-1].pid

            def load(model, clients, *more):
                command = pinned(0) + [sseload, "--url", f"http://127.0.0.1:{gateway}/v1/chat/completions", "--fmt", "chat", "--model", model,
                                       "-H", f"authorization: Bearer {KEY}", "--no-stream", "--prompt-bytes", "320", "--warmup", "0", "--json",
                                       "-c", str(clients), *more]
                before = cpu(pid)
                out = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
                result = json.loads(next(line for line in reversed(out.splitlines()) if line.startswith("{")))
                return result, cpu(pid) - before

            for model in models:
                load(model, 64, "-n", "300", "-d", "20")
                load(model, args.clients, "-d", "1")
            figures = {model: [] for model in models}
            errors = dict.fromkeys(models, 0)
            for turn in range(args.turns):
                for model in models if turn % 2 == 0 else reversed(models):
                    result, spent = load(model, args.clients, "-d", "1")
                    done = result.get("requests") or result.get("streams")
                    errors[model] += result.get("errors") or 0
                    p50 = result.get("p50_us", result.get("total_p50_us"))
                    figures[model].append((spent * 1e6 / done, p50 / 1000))
        finally:
            for child in reversed(children):
                child.terminate()
                child.wait(20)
    single = figures[models[0]]
    print(f"{args.turns} turns of 1 s, {args.clients} clients")
    print("model      cpu us/request   of single's (95 %)         p50 ms   added ms   errors")
    for model in models:
        ours = figures[model]
        ratios = [a[0] / b[0] for a, b in zip(ours, single)]
        # Bootstrap: medians of samples of the turns, for the 95 % interval.
        rng = random.Random(1)
        drawn = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(2000))
        added = statistics.median(a[1] - b[1] for a, b in zip(ours, single))
        print(f"{model.rstrip('_'):<10} {statistics.median(a[0] for a in ours):>14.1f}   {statistics.median(ratios):.3f} "
              f"({drawn[50]:.3f}-{drawn[-51]:.3f}) {statistics.median(a[1] for a in ours):>12.2f} {added:>10.2f} {errors[model]:>8}")


main()
