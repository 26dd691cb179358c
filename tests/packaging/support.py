"""Support of the package tests: the packages under test, tools, and a root folder in which packages are installed.

The root has no more than what the maintainer scripts run: a shell and tools, copied from this machine with their
libraries, and a `systemctl` that records its calls and answers from files. dpkg and rpm run outside and change into it for
the scripts, so these are the real scripts in a real installation, without a booted systemd.
"""

import glob
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
REQUIRED = os.environ.get("GATEWAY_REQUIRE_ALL") == "1"

# Programs that the maintainer scripts and the program's shell wrapper run.
PROGRAMS = ["sh", "cat", "chmod", "chown", "echo", "kill", "ln", "mkdir", "mktemp", "rm", "rmdir", "sleep", "touch"]

# Answers from files in /state; starting, stopping and upgrading change them. `kill` sends the real signal if /state/pid is
# the id of a process that the test has started.
SYSTEMCTL = """#!/bin/sh
echo "$*" >> /state/calls
case "$*" in
  *is-active*) [ -e /state/active ] ;;
  *is-enabled*) [ -e /state/enabled ] ;;
  *MainPID*) if [ -e /state/pid ]; then cat /state/pid; else echo 0; fi ;;
  preset*) touch /state/enabled ;;
  start*) touch /state/active; echo 100 > /state/pid ;;
  disable*) rm -f /state/active /state/enabled /state/pid ;;
  kill*)
    if [ -e /state/real ]; then kill -USR2 "$(cat /state/pid)"
    elif [ ! -e /state/stuck ]; then echo 101 > /state/pid
    fi ;;
  daemon-reload) ;;
  *) echo "unexpected: systemctl $*" >&2; exit 1 ;;
esac
"""


def need(*tools):
    """Skips the test without the tools; fails if everything is required."""
    missing = [tool for tool in tools if not shutil.which(tool)]
    if missing and REQUIRED:
        raise AssertionError(f"{missing} missing, and GATEWAY_REQUIRE_ALL=1")
    if missing:
        skip(f"{', '.join(missing)} not on this machine")


def skip(reason):
    print(f"SKIPPED: {reason}", file=sys.stderr)
    raise unittest.SkipTest(reason)


def run(*command, check=True, **options):
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, **options)
    if check and result.returncode != 0:
        raise AssertionError(f"{command}: {result.returncode}\n{result.stdout}{result.stderr}")
    return result


def package(kind):
    """The newest package of a kind in the folder PACKAGES (target/packages)."""
    target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
    folder = os.environ.get("PACKAGES", f"{target}/packages")
    found = sorted(glob.glob(f"{folder}/*.{kind}"), key=os.path.getmtime)
    if not found and REQUIRED:
        raise AssertionError(f"no .{kind} in {folder}: run make package")
    return os.path.abspath(found[-1]) if found else skip(f"no .{kind} in {folder}: run make package")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class MinimalRoot:
    """Root folder for installations."""

    def __init__(self):
        if os.geteuid() != 0:
            skip("installations need root")
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="gateway-root-"))
        for folder in ["dev", "etc", "proc", "run/systemd/system", "state", "tmp", "usr/bin", "usr/lib", "usr/sbin",
                       "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log"]:
            (self.path / folder).mkdir(parents=True)
        (self.path / "tmp").chmod(0o1777)
        for name in ["bin", "sbin", "lib"]:
            (self.path / name).symlink_to(f"usr/{name}")
        (self.path / "usr/lib64").mkdir()
        (self.path / "lib64").symlink_to("usr/lib64")
        (self.path / "var/lib/dpkg/status").touch()
        (self.path / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
        (self.path / "etc/group").write_text("root:x:0:\n")
        run("mknod", "-m", "666", str(self.path / "dev/null"), "c", "1", "3")
        # The random numbers of new keys.
        run("mknod", "-m", "666", str(self.path / "dev/urandom"), "c", "1", "9")
        for program in PROGRAMS:
            self.copy(program)
        if shutil.which("systemd-sysusers"):
            self.copy("systemd-sysusers")
        # What the packaged program is linked to.
        cached = run("ldconfig", "-p").stdout
        for library in re.findall(r"=> (/\S*/(?:libc\.so\.6|libm\.so\.6|libgcc_s\.so\.1))$", cached, re.M):
            self.copy_library(library)
        self.put("usr/bin/systemctl", SYSTEMCTL, 0o755)

    def remove(self):
        shutil.rmtree(self.path, ignore_errors=True)

    def copy(self, program):
        """Copies a program with the libraries that it is linked to."""
        source = shutil.which(program)
        self.copy_libraries(source)
        shutil.copy(os.path.realpath(source), self.path / "usr/bin" / program)

    def copy_libraries(self, source):
        listed = run("ldd", source, check=False).stdout
        for library in re.findall(r"(/\S+) \(0x", listed):
            self.copy_library(library)

    def copy_library(self, library):
        target = self.path / library.lstrip("/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(os.path.realpath(library), target)

    def put(self, path, text, mode=0o644):
        file = self.path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def text(self, path):
        return (self.path / path).read_text()

    def exists(self, path):
        return (self.path / path).exists()

    def state(self, name, text=""):
        self.put(f"state/{name}", text)

    def calls(self):
        """The calls of systemctl since the last time."""
        file = self.path / "state/calls"
        calls = file.read_text().splitlines() if file.exists() else []
        file.write_text("")
        return calls

    def gateway(self, *arguments):
        """Runs the installed program inside of the root."""
        return run("chroot", str(self.path), "/usr/bin/model-gateway", *arguments)

    def install_dpkg(self, file, **environment):
        return self._dpkg("--install", file, **environment)

    def dpkg(self, action):
        return self._dpkg(action, "model-gateway")

    def _dpkg(self, *arguments, **environment):
        # Dependencies are not in this root; the log of dpkg belongs to the machine.
        options = [f"--root={self.path}", "--force-depends", "--force-confold", f"--log={self.path}/var/log/dpkg.log"]
        result = run("dpkg", *options, *arguments, env={**os.environ, **environment})
        return result.stdout + result.stderr

    def rpm(self, *arguments, **environment):
        options = ["--root", str(self.path), "--nodeps"]
        if "--erase" not in arguments:
            options += ["--nosignature", "--nodigest", "--ignorearch"]
        result = run("rpm", *options, *arguments, env={**os.environ, **environment})
        return result.stdout + result.stderr
