#!/usr/bin/env python3
"""Tests of scripts/release in its dry mode, in a clone: python3 tests/packaging/release.py.

BINARY is the program that is packed (target/debug/model-gateway). The committed state is tested.
"""

import hashlib
import json
import os
import re
import shutil
import tarfile
import tempfile
import unittest
from pathlib import Path

from support import ROOT, need, run, skip


class Release(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        need("git", "cargo", "dpkg-deb", "readelf", "strip")
        target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
        cls.binary = os.path.abspath(os.environ.get("BINARY", f"{target}/debug/model-gateway"))
        if not os.path.exists(cls.binary):
            skip(f"no {cls.binary}")
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.clone = Path(cls.folder.name) / "clone"
        run("git", "clone", "--quiet", "--shared", str(ROOT), str(cls.clone))
        manifest = (cls.clone / "Cargo.toml").read_text()
        cls.version = re.search(r'^version = "(.*)"', manifest, re.M).group(1)

    def setUp(self):
        self.out = Path(self.folder.name) / "out"
        shutil.rmtree(self.out, ignore_errors=True)
        run("git", "checkout", "--quiet", "--", ".", cwd=self.clone)
        changes = self.clone / "CHANGELOG.md"
        text = changes.read_text()
        if f"## [{self.version}]" not in text:
            changes.write_text(text.replace("## [Unreleased]", f"## [Unreleased]\n\n## [{self.version}] - today", 1))

    def release(self, *arguments, check=True, **environment):
        base = {"BINARY": self.binary, "OUT": str(self.out), "COMPRESSION": "gzip", "SIGNING_KEY": "", "GPG_KEY": ""}
        return run(str(self.clone / "scripts/release"), *arguments, check=check, cwd=self.clone,
                   env={**os.environ, **base, **environment})

    def test_release_has_every_file_with_its_checksum(self):
        said = self.release("--dry-run", self.version)
        self.assertIn("not signed", said.stderr)
        sums = dict(reversed(line.split("  ")) for line in (self.out / "SHA256SUMS").read_text().splitlines())
        files = {path.name for path in self.out.iterdir()}
        self.assertEqual(set(sums), files - {"SHA256SUMS"})
        for name, expected in sums.items():
            self.assertEqual(hashlib.sha256((self.out / name).read_bytes()).hexdigest(), expected, name)
        kinds = {"".join(Path(name).suffixes[-2:]) if name.endswith(".tar.gz") else Path(name).suffix for name in files}
        self.assertLessEqual({".tar.gz", ".deb", ".json", ".tgz", ".md"}, kinds)
        archive = next(self.out.glob("*.tar.gz"))
        with tarfile.open(archive) as tar:
            members = {member.name.split("/", 1)[-1]: member for member in tar.getmembers()}
        self.assertTrue(members["model-gateway"].mode & 0o111)
        self.assertIn("conf/production/gateway.toml", members)
        self.assertEqual({member.uid for member in members.values()}, {0})
        with tarfile.open(next(self.out.glob("model-gateway-chart-*.tgz"))) as tar:
            rules = tar.getmember("model-gateway/rules.yml")
            self.assertTrue(rules.isfile(), "a link would lead out of the chart")
        notes = (self.out / "NOTES.md").read_text()
        self.assertTrue(notes.strip() and "## [" not in notes, notes)
        self.check_bill(json.loads(next(self.out.glob("*.cdx.json")).read_text()))

    def check_bill(self, bill):
        """Each crate that is compiled into the program, with license and checksum, and no other."""
        self.assertEqual((bill["bomFormat"], bill["specVersion"]), ("CycloneDX", "1.5"))
        listed = {(part["name"], part["version"]) for part in bill["components"]}
        self.assertTrue({"pingora", "rustls", "tokio"} <= {name for name, _ in listed})
        self.assertFalse({"criterion", "proptest", "rcgen"} & {name for name, _ in listed})
        lock = (self.clone / "Cargo.lock").read_text()
        for part in bill["components"]:
            self.assertIn(f'name = "{part["name"]}"\nversion = "{part["version"]}"', lock)
            self.assertTrue(part["licenses"][0]["expression"], part["name"])
            self.assertEqual(len(part["hashes"][0]["content"]), 64)
        references = {part["bom-ref"] for part in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
        self.assertEqual({entry["ref"] for entry in bill["dependencies"]}, references)
        for entry in bill["dependencies"]:
            self.assertLessEqual(set(entry["dependsOn"]), references)

    def test_release_is_signed_with_a_key(self):
        need("gpg")
        home = Path(self.folder.name) / "gnupg"
        home.mkdir(mode=0o700, exist_ok=True)
        keys = {"GNUPGHOME": str(home), "GPG_KEY": "release@localhost"}
        run("gpg", "--batch", "--quiet", "--passphrase", "", "--quick-generate-key", keys["GPG_KEY"], "ed25519", "sign",
            env={**os.environ, **keys})
        try:
            self.release("--dry-run", self.version, **keys)
            run("gpg", "--verify", str(self.out / "SHA256SUMS.asc"), str(self.out / "SHA256SUMS"),
                env={**os.environ, **keys})
        finally:
            run("gpgconf", "--kill", "gpg-agent", check=False, env={**os.environ, **keys})

    def test_release_refuses_what_does_not_fit(self):
        for arguments, reason in [([], "usage"), (["1.2"], "usage"), (["--dry-run", "99.0.0"], "Cargo.toml has version")]:
            said = self.release(*arguments, check=False)
            self.assertEqual(said.returncode, 1)
            self.assertIn(reason, said.stderr)
        changes = self.clone / "CHANGELOG.md"
        changes.write_text(changes.read_text() + "changed\n")
        self.assertIn("the checkout has changes", self.release(self.version, check=False).stderr)
        changes.write_text(changes.read_text().replace(f"## [{self.version}]", "## [0.0.0]"))
        self.assertIn("no section", self.release("--dry-run", self.version, check=False).stderr)
        self.assertFalse(self.out.exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
