#!/usr/bin/env python3
"""Tests of the built packages: python3 tests/packaging/packages.py, after `make package`.

Contents, permissions, metadata and scripts are read from the packages; lifecycle.py installs, upgrades and removes them.
A test whose tool is missing says SKIPPED; with GATEWAY_REQUIRE_ALL=1 it fails.
"""

import gzip
import os
import re
import stat
import subprocess
import tempfile
import unittest
from pathlib import Path

from lifecycle import DebLifecycle, RpmLifecycle, Upgrade  # noqa: F401 (tests)
from support import ROOT, need, package, run

CONFIGURATION = {f"/etc/model-gateway/{name}.toml" for name in ["gateway", "routes", "keys"]}
SCRIPTS = ["postinst", "prerm", "postrm"]


def unpack_rpm(file, folder):
    archive = subprocess.run(["rpm2cpio", file], check=True, capture_output=True).stdout
    subprocess.run(["cpio", "-id", "--quiet"], input=archive, check=True, cwd=folder)


def files_below(folder):
    return {f"/{path.relative_to(folder)}" for path in folder.rglob("*") if not path.is_dir()}


def anchors(page):
    """Returns the anchors of a page, as GitHub makes them of its headings."""
    text = re.sub(r"(?sm)^```.*?^```$", "", page.read_text())
    found = set()
    for heading in re.findall(r"(?m)^#+ (.*)$", text):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        found.add(re.sub(r"[^\w\- ]", "", heading).replace(" ", "-"))
    return found


class Contents(unittest.TestCase):
    """Files of a package, unpacked; the two formats differ in a few paths only."""

    maxDiff = None

    def check_contents(self, folder):
        for path in folder.rglob("*"):
            mode = stat.S_IMODE(path.stat().st_mode)
            name = f"/{path.relative_to(folder)}"
            if name == "/etc/model-gateway/secrets":
                expected = 0o700
            elif name == "/etc/model-gateway/tls":
                expected = 0o750
            elif path.is_dir() or name in ["/usr/bin/model-gateway", "/usr/lib/model-gateway/service-hook"]:
                expected = 0o755
            else:
                expected = 0o644
            self.assertEqual(oct(mode), oct(expected), name)
        files = files_below(folder)
        self.assertEqual({Path(name).parts[1] for name in files}, {"etc", "usr"})
        expected = CONFIGURATION | {
            "/etc/logrotate.d/model-gateway", "/usr/bin/model-gateway", "/usr/lib/model-gateway/service-hook",
            "/usr/lib/systemd/system/model-gateway.service", "/usr/lib/sysusers.d/model-gateway.conf",
            "/usr/share/bash-completion/completions/model-gateway",
            "/usr/share/fish/vendor_completions.d/model-gateway.fish",
            "/usr/share/model-gateway/prices.toml", "/usr/share/model-gateway/openapi.json",
            "/usr/share/model-gateway/grafana/model-gateway.json",
            "/usr/share/model-gateway/prometheus/rules.yml", "/usr/share/doc/model-gateway/sbom.cdx.json",
            "/usr/share/doc/model-gateway/README.md", "/usr/share/doc/model-gateway/docs/operations.md",
            "/usr/share/man/man1/model-gateway.1.gz", "/usr/share/man/man5/model-gateway-routes.5.gz",
        } | {f"/usr/share/model-gateway/schema/{name}.schema.json" for name in ["gateway", "routes", "keys"]}
        self.assertEqual(expected - files, set())
        # A page for each command that the program lists.
        program = str(folder / "usr/bin/model-gateway")
        listed = run(program, "--help").stdout.split("\nCommands:\n")[1].split("\n\n")[0]
        for command in re.findall(r"^  (\w\S*)", listed, re.M):
            if command != "help":
                self.assertIn(f"/usr/share/man/man1/model-gateway-{command}.1.gz", files)
        for page in (folder / "usr/share/man").rglob("*.gz"):
            self.assertIn(b".TH ", gzip.decompress(page.read_bytes()))

    def check_documentation(self, folder):
        """Every link of the documentation leads to a file of the package, and to a heading that is there."""
        doc, dead = folder / "usr/share/doc/model-gateway", []
        pages = [page for page in doc.rglob("*.md")]
        self.assertGreater(len(pages), 40)
        for page in pages:
            text = re.sub(r"(?sm)^```.*?^```$", "", page.read_text())
            for link in re.findall(r"\]\(([^()\s]+)\)", text):
                if re.match(r"[a-z][a-z0-9+.-]*:", link):
                    continue
                path, _, anchor = link.partition("#")
                place = folder / path[1:] if path.startswith("/") else page.parent / path if path else page
                if not place.exists():
                    dead.append(f"{page.relative_to(doc)}: {link}")
                elif anchor and place.suffix == ".md" and anchor not in anchors(place):
                    dead.append(f"{page.relative_to(doc)}: {link}: no such heading")
        self.assertEqual(dead, [])
        rules = (folder / "usr/share/model-gateway/prometheus/rules.yml").read_text()
        for runbook in re.findall(r"runbook: (.*)", rules):
            path, _, anchor = runbook.removeprefix("file://").partition("#")
            self.assertIn(anchor, anchors(folder / path[1:]), runbook)

    def check_service(self, folder):
        unit = (folder / "usr/lib/systemd/system/model-gateway.service").read_text()
        self.assertIn("\nUser=model-gateway\n", unit)
        self.assertNotIn("DynamicUser", unit)
        self.assertNotIn("/usr/local", unit)
        for path in re.findall(r"(?:ExecStart=|file:)(/\S+)", unit):
            self.assertTrue((folder / path.lstrip("/")).exists(), path)
        for name in CONFIGURATION:
            schema = (folder / name.lstrip("/")).read_text().splitlines()[0].removeprefix("#:schema file://")
            self.assertTrue((folder / schema.lstrip("/")).exists(), schema)

    def check_sysusers(self, folder):
        need("systemd-sysusers")
        said = run("systemd-sysusers", f"--root={folder}", "--dry-run", "model-gateway.conf")
        self.assertIn("Creating user 'model-gateway'", said.stdout + said.stderr)

    def check_unit(self, folder):
        need("systemd-analyze")
        said = run("systemd-analyze", "verify", "--man=no", f"--root={folder}", "model-gateway.service", check=False)
        # The system itself is not in this root.
        others = re.compile("not found|Command /bin/sh is not executable")
        own = [line for line in said.stderr.splitlines() if "model-gateway.service:" in line and not others.search(line)]
        self.assertEqual(own, [])

    def check_logrotate(self, folder):
        need("logrotate")
        with tempfile.TemporaryDirectory() as state:
            rules = folder / "etc/logrotate.d/model-gateway"
            said = run("logrotate", "--debug", "--state", f"{state}/state", str(rules), check=False)
        self.assertNotIn("error", said.stdout + said.stderr)

    def check_configuration(self, folder):
        """Valid without its secrets, and not complete: it must not be started as it is."""
        conf = folder / "etc/model-gateway/gateway.toml"
        routes = folder / "etc/model-gateway/routes.toml"
        before = routes.read_text()
        # The price file is not installed on this machine.
        routes.write_text(before.replace("/usr/share", f"{folder}/usr/share"))
        program = str(folder / "usr/bin/model-gateway")
        run(program, "check", "--no-secrets", "--conf", str(conf))
        said = run(program, "check", "--conf", str(conf), check=False)
        routes.write_text(before)
        self.assertNotEqual(said.returncode, 0)


class Deb(Contents):
    """The .deb."""

    @classmethod
    def setUpClass(cls):
        need("dpkg-deb")
        cls.file = package("deb")
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = Path(cls.folder.name)
        run("dpkg-deb", "--extract", cls.file, str(cls.root / "data"))
        run("dpkg-deb", "--control", cls.file, str(cls.root / "control"))
        cls.data = cls.root / "data"
        # The folder that dpkg-deb makes for the files is not part of the package.
        cls.data.chmod(0o755)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_contents(self):
        self.check_contents(self.data)
        self.check_service(self.data)
        self.check_documentation(self.data)
        files = files_below(self.data)
        self.assertIn("/usr/share/zsh/vendor-completions/_model-gateway", files)
        self.assertIn("/usr/share/doc/model-gateway/copyright", files)
        self.assertIn("/usr/share/doc/model-gateway/changelog.Debian.gz", files)

    def test_owner_is_root(self):
        for line in run("dpkg-deb", "--contents", self.file).stdout.splitlines():
            self.assertEqual(line.split()[1], "root/root", line)

    def test_every_file_in_etc_is_a_conffile(self):
        listed = set((self.root / "control/conffiles").read_text().split())
        self.assertEqual(listed, {name for name in files_below(self.data) if name.startswith("/etc/")})

    def test_checksums_are_right(self):
        run("md5sum", "--check", "--quiet", str(self.root / "control/md5sums"), cwd=self.data)

    def test_control_names_what_the_program_needs(self):
        depends = run("dpkg-deb", "--field", self.file, "Depends").stdout
        self.assertRegex(depends, r"^libc6 \(>= 2\.\d+\), ")
        self.assertIn("systemd", depends)

    def test_scripts_are_valid(self):
        files = [str(self.root / "control" / name) for name in SCRIPTS]
        files.append(str(self.data / "usr/lib/model-gateway/service-hook"))
        for file in files:
            run("sh", "-n", file)
            self.assertTrue(os.access(file, os.X_OK), file)

    def test_scripts_pass_shellcheck(self):
        need("shellcheck")
        run("shellcheck", *[str(self.root / "control" / name) for name in SCRIPTS],
            str(self.data / "usr/lib/model-gateway/service-hook"), str(ROOT / "packaging/package"))

    def test_lintian_has_no_complaint(self):
        need("lintian")
        said = run("lintian", "--no-cfg", "--allow-root", self.file, check=False)
        self.assertEqual(said.stdout, "")

    def test_user_is_created(self):
        self.check_sysusers(self.data)

    def test_unit_is_valid(self):
        self.check_unit(self.data)

    def test_rotation_is_valid(self):
        self.check_logrotate(self.data)

    def test_configuration_is_valid_but_not_complete(self):
        self.check_configuration(self.data)


class Rpm(Contents):
    """The .rpm."""

    @classmethod
    def setUpClass(cls):
        need("rpm", "rpm2cpio", "cpio")
        cls.file = package("rpm")
        cls.folder = tempfile.TemporaryDirectory()
        cls.data = Path(cls.folder.name)
        cls.data.chmod(0o755)
        # cpio makes folders that are not part of the package itself.
        old = os.umask(0o022)
        unpack_rpm(cls.file, cls.data)
        os.umask(old)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def query(self, *options):
        return run("rpm", "--query", "--package", "--nosignature", *options, self.file).stdout

    def test_contents(self):
        self.check_contents(self.data)
        self.check_service(self.data)
        self.check_documentation(self.data)
        self.assertIn("/usr/share/zsh/site-functions/_model-gateway", files_below(self.data))

    def test_configuration_is_not_replaced(self):
        flags = self.query("--queryformat", "[%{FILENAMES} %{FILEFLAGS:fflags} %{FILEUSERNAME}\n]")
        rows = [line.split(" ") for line in flags.splitlines()]
        configuration = {name for name, kind, _ in rows if "c" in kind and "n" in kind}
        self.assertEqual(configuration, CONFIGURATION | {"/etc/logrotate.d/model-gateway"})
        self.assertEqual({owner for _, _, owner in rows}, {"root"})

    def test_scripts_are_valid(self):
        scripts = self.query("--scripts")
        for name in ["postinstall", "preuninstall", "postuninstall"]:
            self.assertIn(f"{name} scriptlet (using /bin/sh)", scripts)
        bodies = re.split(r"^\w+ scriptlet \(using /bin/sh\):$", scripts, flags=re.M)
        for body in bodies[1:]:
            run("sh", "-n", "-c", body)

    def test_configuration_is_valid_but_not_complete(self):
        self.check_configuration(self.data)


if __name__ == "__main__":
    unittest.main(verbosity=2)
