"""Installation, upgrade, removal and purge of the packages, with the calls that they make to systemd."""

import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

from support import MinimalRoot, free_port, need, package, run

UNIT = "model-gateway.service"
LEDGER = "var/lib/model-gateway"


def stops(calls):
    """The calls that would refuse a connection."""
    return [call for call in calls if re.match("stop|restart|try-restart|disable|condrestart", call)]


def next_version(file, folder):
    """Makes the same .deb with a higher number and a changed configuration."""
    tree = folder / "tree"
    run("dpkg-deb", "--raw-extract", file, str(tree))
    control = tree / "DEBIAN/control"
    control.write_text(re.sub("^Version: .*$", "Version: 99", control.read_text(), flags=re.M))
    routes = tree / "etc/model-gateway/routes.toml"
    routes.write_text(routes.read_text() + "# a comment of the next version\n")
    run("dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(folder / "second.deb"))
    shutil.rmtree(tree)
    return str(folder / "second.deb")


class Lifecycle:
    """What both formats do. A subclass names package and tools, makes the second version, installs and removes."""

    @classmethod
    def setUpClass(cls):
        need(*cls.tools)
        cls.first = package(cls.kind)
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.second = cls.next_version(Path(cls.folder.name))

    def setUp(self):
        self.root = MinimalRoot()
        self.addCleanup(self.root.remove)

    def complete_configuration(self):
        self.root.put("etc/model-gateway/secrets/openai", "sk-test\n", 0o600)

    def install_and_start(self):
        self.complete_configuration()
        self.install(self.first)
        self.assertTrue(self.root.exists("state/active"))
        self.root.calls()

    def test_installation_without_a_credential_does_not_start(self):
        said = self.install(self.first)
        calls = self.root.calls()
        self.assertEqual(calls, [])
        self.assertIn("the service was not enabled", said)
        self.assertIn("credential", said)
        secrets = self.root.path / "etc/model-gateway/secrets"
        self.assertEqual(secrets.stat().st_mode & 0o7777, 0o700)
        if (self.root.path / "usr/bin/systemd-sysusers").exists():
            self.assertIn("model-gateway:", self.root.text("etc/passwd"))
        # Nothing of the check is left behind.
        self.assertEqual(list((self.root.path / "tmp").iterdir()), [])

    def test_installation_with_a_complete_configuration_starts(self):
        self.complete_configuration()
        self.install(self.first)
        self.assertEqual(self.root.calls(), [
            f"preset {UNIT}", "daemon-reload", f"--quiet is-enabled {UNIT}", f"start {UNIT}"])

    def test_installation_obeys_the_presets(self):
        self.complete_configuration()
        self.root.put("usr/bin/systemctl", self.root.text("usr/bin/systemctl").replace("touch /state/enabled", ":"), 0o755)
        self.install(self.first)
        self.assertFalse([call for call in self.root.calls() if call.startswith("start")])

    def test_installation_without_systemd_running_enables_only(self):
        self.complete_configuration()
        (self.root.path / "run/systemd/system").rmdir()
        self.install(self.first)
        self.assertEqual(self.root.calls(), [f"preset {UNIT}"])

    def test_upgrade_hands_the_listeners_over(self):
        self.install_and_start()
        self.root.put("etc/model-gateway/keys.toml", "# mine\n")
        self.root.gateway("keys", "create", "alice")
        keys = self.root.text("etc/model-gateway/keys.toml")
        said = self.install(self.second)
        calls = self.root.calls()
        self.assertEqual([call for call in calls if call.startswith("kill")],
                         [f"kill --kill-whom=main --signal=USR2 {UNIT}"])
        self.assertEqual(stops(calls), [])
        self.assertIn("process 100 handed its listeners to process 101", said)
        self.assertEqual(self.root.text("etc/model-gateway/keys.toml"), keys)

    def test_upgrade_that_is_not_taken_over_leaves_the_old_process(self):
        self.install_and_start()
        self.root.state("stuck")
        said = self.install(self.second, MODEL_GATEWAY_HOOK_TIMEOUT="2")
        self.assertIn("serves on with the previous version", said)
        self.assertEqual(stops(self.root.calls()), [])
        self.assertEqual(self.root.text("state/pid").strip(), "100")

    def test_upgrade_of_a_stopped_service_does_not_start_it(self):
        self.install_and_start()
        (self.root.path / "state/active").unlink()
        self.install(self.second)
        calls = self.root.calls()
        self.assertFalse([call for call in calls if call.startswith(("start", "kill"))], calls)

    def test_removal_stops_and_keeps_configuration_and_ledger(self):
        self.install_and_start()
        self.root.put("etc/model-gateway/routes.toml", "# mine\n")
        self.root.put(f"{LEDGER}/state.db", "money")
        self.remove()
        self.assertIn(f"disable --now {UNIT}", self.root.calls())
        self.assertFalse(self.root.exists("usr/bin/model-gateway"))
        self.assertTrue(self.root.exists("etc/model-gateway/secrets/openai"))
        self.assertEqual(self.root.text(f"{LEDGER}/state.db"), "money")


class DebLifecycle(Lifecycle, unittest.TestCase):
    """The .deb; the second version is the same package with a higher number."""

    kind, tools = "deb", ("dpkg", "dpkg-deb")

    @classmethod
    def next_version(cls, folder):
        return next_version(cls.first, folder)

    def install(self, file, **environment):
        return self.root.install_dpkg(file, **environment)

    def remove(self):
        return self.root.dpkg("--remove")

    def test_upgrade_updates_a_file_that_was_not_changed(self):
        self.install_and_start()
        self.install(self.second)
        self.assertIn("a comment of the next version", self.root.text("etc/model-gateway/routes.toml"))

    def test_purge_keeps_the_ledger_and_names_it(self):
        self.install_and_start()
        self.root.put(f"{LEDGER}/state.db", "money")
        self.root.put("var/log/model-gateway/access.log", "{}\n")
        said = self.root.dpkg("--purge")
        self.assertIn("/var/lib/model-gateway was kept", said)
        self.assertEqual(self.root.text(f"{LEDGER}/state.db"), "money")
        self.assertFalse(self.root.exists("etc/model-gateway"))
        self.assertFalse(self.root.exists("var/log/model-gateway"))

    def test_purge_without_a_ledger_says_nothing(self):
        self.install(self.first)
        self.assertNotIn("kept", self.root.dpkg("--purge"))

    def test_reinstallation_after_removal_does_not_start(self):
        self.install_and_start()
        self.remove()
        self.root.calls()
        self.install(self.first)
        self.assertFalse([call for call in self.root.calls() if call.startswith("start")])


class RpmLifecycle(Lifecycle, unittest.TestCase):
    """The .rpm; the second version is the same package, installed again."""

    kind, tools = "rpm", ("rpm", "rpmbuild")

    @classmethod
    def next_version(cls, folder):
        stage = folder / "stage"
        stage.mkdir()
        archive = subprocess.run(["rpm2cpio", cls.first], check=True, capture_output=True).stdout
        subprocess.run(["cpio", "-id", "--quiet"], input=archive, check=True, cwd=stage)
        (stage / "etc/model-gateway/secrets").mkdir(parents=True, exist_ok=True)
        specification = Path(__file__).parent.parent.parent / "packaging/rpm/model-gateway.spec"
        run("rpmbuild", "-bb", "--quiet", "--define", f"_topdir {folder}/build", "--define", f"_rpmdir {folder}/out",
            "--define", f"stage {stage}", "--define", "package_version 99", "--define", "package_release 1",
            "--define", "_binary_payload w1.gzdio", str(specification))
        return str(next((folder / "out").rglob("*.rpm")))

    def install(self, file, **environment):
        return self.root.rpm("--upgrade", file, **environment)

    def remove(self):
        return self.root.rpm("--erase", "model-gateway")


class Upgrade(unittest.TestCase):
    """The real program, upgraded by the real package while clients connect."""

    def setUp(self):
        need("dpkg", "dpkg-deb")
        self.file = package("deb")
        self.root = MinimalRoot()
        self.addCleanup(self.root.remove)
        # The program finds its own path there.
        run("mount", "-t", "proc", "proc", str(self.root.path / "proc"))
        self.addCleanup(run, "umount", str(self.root.path / "proc"))

    def configure(self):
        self.port, self.admin = free_port(), free_port()
        self.root.put("etc/model-gateway/gateway.toml", f"""[server]
listen = ["127.0.0.1:{self.port}"]
admin = "127.0.0.1:{self.admin}"
upgrade_socket = "/run/upgrade.sock"
[store]
sqlite = "/var/lib/state.db"
""")
        self.root.put("etc/model-gateway/routes.toml", "")
        self.root.put("etc/model-gateway/keys.toml", "")

    def start(self):
        """Starts the program in the root; follows the main process as systemd does."""
        notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notices.bind(str(self.root.path / "run/notify"))
        notices.settimeout(0.2)
        self.addCleanup(notices.close)
        self.log = open(self.root.path / "var/log/gateway", "w+")
        self.addCleanup(self.log.close)
        process = subprocess.Popen(
            [shutil.which("chroot"), str(self.root.path), "/usr/bin/model-gateway", "serve"], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=self.log, env={"NOTIFY_SOCKET": "/run/notify"})
        self.pids = [process.pid]
        self.addCleanup(self.end)
        self.ready, self.done = threading.Event(), threading.Event()

        def follow():
            while not self.done.is_set():
                try:
                    lines = notices.recv(4096).decode().splitlines()
                except TimeoutError:
                    continue
                for line in lines:
                    if line.startswith("MAINPID="):
                        self.pids.append(int(line.removeprefix("MAINPID=")))
                        self.root.state("pid", f"{self.pids[-1]}\n")
                    if line == "READY=1":
                        self.ready.set()

        follower = threading.Thread(target=follow)
        follower.start()
        self.addCleanup(follower.join)
        self.addCleanup(self.done.set)
        self.assertTrue(self.ready.wait(60), "the gateway does not start")
        self.root.state("pid", f"{process.pid}\n")
        for name in ["active", "enabled", "real"]:
            self.root.state(name)
        return process

    def end(self):
        for pid in self.pids:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass

    def ask(self, failures, answers):
        """Opens connections until the end; each must be answered."""
        while not self.done.is_set():
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=20) as client:
                    client.sendall(b"GET /v1/models HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
                    head = client.recv(64)
                    (answers if head.startswith(b"HTTP/1.1 401") else failures).append(head)
            except OSError as error:
                failures.append(error)

    def test_upgrade_refuses_no_connection(self):
        # A first installation, whose service this test starts itself.
        self.root.install_dpkg(self.file)
        self.configure()
        old = self.start()
        failures, answers = [], []
        clients = [threading.Thread(target=self.ask, args=(failures, answers), daemon=True) for _ in range(2)]
        for client in clients:
            client.start()
        time.sleep(0.5)
        before = len(answers)
        said = self.root.install_dpkg(self.file)
        after = len(answers)
        self.assertEqual(len(self.pids), 2, said + self.root.text("var/log/gateway"))
        old.wait(60)
        time.sleep(0.5)
        self.done.set()
        for client in clients:
            client.join()
        self.assertEqual(failures, [])
        self.assertTrue(0 < before < after < len(answers), (before, after, len(answers)))
        self.assertIn(f"process {self.pids[0]} handed its listeners to process {self.pids[1]}", said)
