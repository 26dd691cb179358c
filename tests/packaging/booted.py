#!/usr/bin/env python3
"""The .deb in a Debian system with systemd as its first process: DEBIAN_ROOT=FOLDER python3 tests/packaging/booted.py

The folder has a Debian system with systemd, such as `debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus
bookworm FOLDER` makes. It is not changed: an overlay takes the changes. The system runs in namespaces of its own, without a
connection to the network. Says SKIPPED without DEBIAN_ROOT, or if the kernel does not permit it; this is never a failure,
because not every machine for continuous integration permits it. lifecycle.py tests the same scripts without systemd.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from lifecycle import next_version
from support import need, package, run, skip

# Prepares the file systems as a container manager does, and becomes the first process of the system in the folder.
BOOT = """
set -e
R=$1
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$2,upperdir=$3/upper,workdir=$3/work" "$R"
mount -t proc proc "$R/proc"
mount -t sysfs sysfs "$R/sys"
mount -t cgroup2 cgroup2 "$R/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$R/dev"
mkdir "$R/dev/pts" "$R/dev/shm"
for device in "null 3" "zero 5" "full 7" "random 8" "urandom 9"; do
  mknod -m 666 "$R/dev/${device% *}" c 1 "${device#* }"
done
mknod -m 666 "$R/dev/tty" c 5 0
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$R/dev/pts"
ln -s pts/ptmx "$R/dev/ptmx"
ln -s /proc/self/fd "$R/dev/fd"
mount -t tmpfs -o mode=755 tmpfs "$R/run"
mount -t tmpfs -o mode=1777 tmpfs "$R/tmp"
cd "$R"
mkdir -p mnt
pivot_root . mnt
umount -l /mnt
# Credentials of services are mounted by a process beside, which systemd expects to see.
mount --make-rshared /
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --log-target=console
"""

# Opens connections until its input ends; prints how many were answered, and those that were not.
CLIENTS = """
import socket, sys, threading
failures, answers, done = [], [], threading.Event()
def ask():
    while not done.is_set():
        try:
            with socket.create_connection(("127.0.0.1", 8080), timeout=20) as client:
                client.sendall(b"GET /v1/models HTTP/1.1\\r\\nhost: a\\r\\nconnection: close\\r\\n\\r\\n")
                head = client.recv(64)
                (answers if head.startswith(b"HTTP/1.1 401") else failures).append(head)
        except OSError as error:
            failures.append(error)
threads = [threading.Thread(target=ask) for _ in range(2)]
for thread in threads:
    thread.start()
sys.stdin.read()
done.set()
for thread in threads:
    thread.join()
print(len(answers), failures[:3])
"""


# A provider whose stream takes four seconds: it says "begin", waits, and says "end".
PROVIDER = """
import http.server, json, time
class Provider(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for number, word in enumerate(["begin", "end"]):
            chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [
                {"index": 0, "delta": {"role": "assistant", "content": word}, "finish_reason": "stop" if number else None}]}
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\\n\\n")
            self.wfile.flush()
            if number == 0:
                time.sleep(4)
        self.wfile.write(b"data: [DONE]\\n\\n")
    def log_message(self, *arguments):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", 9001), Provider).serve_forever()
"""

# Asks for a stream with the key in the first argument. Says when it begins, and prints all of it at its end.
STREAM = """
import http.client, json, sys
client = http.client.HTTPConnection("127.0.0.1", 8080, timeout=60)
body = {"model": "slow", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
client.request("POST", "/v1/chat/completions", json.dumps(body), {"authorization": "Bearer " + sys.argv[1]})
answer = client.getresponse()
text = b""
while b"begin" not in text:
    text += answer.read1()
print("begun", flush=True)
print(answer.status, (text + answer.read()).decode(), flush=True)
"""

ROUTES = """
[[provider]]
name     = "slow"
kind     = "openai-compatible"
base_url = "http://127.0.0.1:9001/v1"

[[model]]
id      = "slow"
targets = [{ provider = "slow", model = "m" }]
"""


class Machine:
    """A running Debian system."""

    def __init__(self, lower):
        self.folder = Path(tempfile.mkdtemp(prefix="gateway-machine-"))
        for name in ["root", "upper", "work"]:
            (self.folder / name).mkdir()
        unified = Path("/sys/fs/cgroup/unified")
        self.group = (unified if unified.exists() else Path("/sys/fs/cgroup")) / self.folder.name
        self.log = open(self.folder / "log", "w+")
        command = ["unshare", "--mount", "--pid", "--fork", "--uts", "--ipc", "--net", "--cgroup", "sh", "-c", BOOT, "sh",
                   str(self.folder / "root"), str(lower), str(self.folder)]
        try:
            self.group.mkdir()
            self.process = subprocess.Popen(
                ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(self.group), *command],
                stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True)
        except OSError as error:
            self.remove()
            skip(f"the kernel does not permit it: {error}")
        self.init = self.first_process()

    def first_process(self):
        for _ in range(100):
            time.sleep(0.3)
            if self.process.poll() is not None:
                break
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
            if children and Path(f"/proc/{children[0]}/comm").read_text() == "systemd\n":
                self.init = int(children[0])
                said = self.run("systemctl", "is-system-running", "--wait", check=False).stdout
                if said.strip() in ["running", "degraded"]:
                    return self.init
        said = (self.folder / "log").read_text()[-500:]
        self.remove()
        return skip(f"systemd does not start here: {said}")

    def command(self, *command):
        return ["nsenter", "--target", str(self.init), "--all", *command]

    def run(self, *command, check=True):
        return run(*self.command(*command), check=check)

    def python(self, program, *arguments):
        """A process with this program in the network of the system, whose output is read."""
        command = ["nsenter", "--target", str(self.init), "--net", sys.executable, "-c", program, *arguments]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def show(self, name):
        return self.run("systemctl", "show", f"--property={name}", "--value", "model-gateway").stdout.strip()

    def put(self, path, text, mode):
        root = Path(f"/proc/{self.init}/root")
        file = root / path
        file.write_text(text)
        file.chmod(mode)

    def install(self, file):
        shutil.copy(file, Path(f"/proc/{self.init}/root/var/tmp/package.deb"))
        return self.run("dpkg", "--install", "/var/tmp/package.deb").stdout

    def main_pid(self):
        return self.run("systemctl", "show", "--property=MainPID", "--value", "model-gateway").stdout.strip()

    def remove(self):
        if getattr(self, "init", None):
            os.kill(self.init, signal.SIGRTMIN + 3)
        if getattr(self, "process", None):
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                os.kill(self.init, signal.SIGKILL)
                self.process.wait(30)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        for folder, _, _ in os.walk(self.group, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                pass


def end(process):
    """Ends a process of the test and closes its pipes."""
    with process:
        process.kill()


class Booted(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        need("dpkg-deb", "nsenter", "unshare")
        cls.lower = os.environ.get("DEBIAN_ROOT") or skip("no DEBIAN_ROOT")
        if os.geteuid() != 0:
            skip("a system of its own needs root")
        cls.first = package("deb")
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.second = next_version(cls.first, Path(cls.folder.name))

    def test_service_lives_through_installation_upgrade_and_purge(self):
        machine = Machine(self.lower)
        self.addCleanup(machine.remove)
        self.assertIn("the service was not enabled", machine.install(self.first))
        self.assertNotEqual(machine.run("systemctl", "is-enabled", "model-gateway", check=False).returncode, 0)

        # The steps that the package prints.
        machine.put("etc/model-gateway/secrets/openai", "sk-test\n", 0o600)
        machine.run("model-gateway", "keys", "create", "alice")
        machine.run("systemctl", "enable", "--now", "model-gateway")
        self.assertEqual(machine.run("model-gateway", "health").stdout, "ready\n")
        old = machine.main_pid()
        owner = machine.run("stat", "--format=%U", f"/proc/{old}", "/var/lib/model-gateway/state.db").stdout.split()
        self.assertEqual(owner, ["model-gateway"] * 2)
        as_user = ["setpriv", "--reuid=model-gateway", "--regid=model-gateway", "--clear-groups", "model-gateway"]
        machine.run(*as_user, "accounts", "create", "acme", "--credit", "5")

        clients = machine.python(CLIENTS)
        time.sleep(1)
        said = machine.install(self.second)
        time.sleep(1)
        answered, failures = clients.communicate()[0].split(" ", 1)
        self.assertEqual(failures.strip(), "[]")
        self.assertGreater(int(answered), 10)
        self.assertIn(f"process {old} handed its listeners to process {machine.main_pid()}", said)
        self.assertNotEqual(machine.main_pid(), old)
        self.assertEqual(machine.run("model-gateway", "health").stdout, "ready\n")

        # A reload reads certificates in it, and nobody but the service and root does.
        folder = machine.run("stat", "--format=%U:%G %a", "/etc/model-gateway/tls").stdout.strip()
        self.assertEqual(folder, "root:model-gateway 750")
        self.live(machine)

        said = machine.run("dpkg", "--purge", "model-gateway").stdout
        self.assertIn("/var/lib/model-gateway was kept", said)
        self.assertEqual(machine.run("systemctl", "is-active", "model-gateway", check=False).stdout, "inactive\n")
        machine.run("test", "-s", "/var/lib/model-gateway/state.db")
        self.assertNotEqual(machine.run("test", "-e", "/etc/model-gateway", check=False).returncode, 0)

    def live(self, machine):
        """Reload, watchdog and stop, as systemd sees them."""
        provider = machine.python(PROVIDER)
        self.addCleanup(end, provider)
        machine.put("etc/model-gateway/routes.toml", ROUTES, 0o644)
        key = machine.run("model-gateway", "keys", "create", "bert").stdout.split()
        key = next(word for word in key if word.startswith("mgw_"))
        self.assertEqual(self.status(machine, key), "401")
        machine.run("systemctl", "reload", "model-gateway")
        self.assertEqual(self.status(machine, key), "200")
        self.assertEqual(machine.show("ActiveState"), "active")

        # A process that hangs is killed and started again; one that is stopped by a signal runs no task.
        hung = machine.main_pid()
        machine.run("systemctl", "kill", "--kill-whom=main", "--signal=STOP", "model-gateway")
        for _ in range(90):
            time.sleep(1)
            if machine.main_pid() not in ["0", hung] and machine.show("ActiveState") == "active":
                break
        self.assertNotEqual(machine.main_pid(), hung)
        self.assertEqual(machine.show("NRestarts"), "1")
        self.assertEqual(self.status(machine, key), "200")

        # A stop waits for the response in progress.
        client = machine.python(STREAM, key)
        self.addCleanup(end, client)
        self.assertEqual(client.stdout.readline(), "begun\n")
        machine.run("systemctl", "stop", "model-gateway")
        said = client.communicate(timeout=30)[0]
        self.assertTrue(said.startswith("200 ") and "end" in said and "[DONE]" in said, said)
        self.assertEqual((machine.show("ActiveState"), machine.show("Result")), ("inactive", "success"))

    def status(self, machine, key):
        """The status of a listing of the models with a key."""
        ask = ("import http.client, sys; client = http.client.HTTPConnection('127.0.0.1', 8080, timeout=20); "
               "client.request('GET', '/v1/models', headers={'authorization': 'Bearer ' + sys.argv[1]}); "
               "print(client.getresponse().status)")
        return machine.python(ask, key).communicate(timeout=30)[0].strip()


if __name__ == "__main__":
    unittest.main(verbosity=2)
