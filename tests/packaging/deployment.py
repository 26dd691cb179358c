#!/usr/bin/env python3
"""Static tests of the image, the Compose example and the chart: python3 tests/packaging/deployment.py.

They need no container engine and no cluster. The files of the image are assembled around BINARY (target/debug/model-gateway)
and the program is run in them as the image's user. Missing tools: as in packages.py.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import time
import tomllib
import unittest
from pathlib import Path

import chart
from support import REQUIRED, ROOT, free_port, need, run, skip

DOCKER = ROOT / "packaging/docker"
CHART = ROOT / "packaging/helm/model-gateway"


def module(name):
    """A Python module that the standard library lacks."""
    if not importlib.util.find_spec(name):
        if REQUIRED:
            raise AssertionError(f"the Python module {name} is missing, and GATEWAY_REQUIRE_ALL=1")
        skip(f"no Python module {name}")
    return importlib.import_module(name)


def load(path):
    return module("yaml").safe_load(path.read_text())


def pinned(image):
    """Whether an image has a fixed version: not the latest, and not only a major one."""
    return re.search(r"(:v?\d+\.\d+[\w.-]*|@sha256:[0-9a-f]{64})$", image) is not None


class Image(unittest.TestCase):
    def test_dockerfile_ends_without_privileges_and_shell(self):
        text = (DOCKER / "Dockerfile").read_text()
        last = text.split("\nFROM ")[-1]
        self.assertTrue(last.startswith("scratch\n"))
        for line in ["USER 65532:65532", "STOPSIGNAL SIGTERM", "HEALTHCHECK ", 'CMD ["/usr/bin/model-gateway", "health"',
                     'ENTRYPOINT ["/usr/bin/model-gateway"]']:
            self.assertIn(line, last)
        # Without a shell, commands are lists.
        self.assertIsNone(re.search(r"^(CMD|ENTRYPOINT) [^\[]", last, re.M))
        for image in re.findall(r"^ARG \w+=(\S+:\S+)$", text, re.M):
            self.assertTrue(pinned(image), image)

    def test_build_context_has_what_the_build_needs(self):
        ignored = (ROOT / ".dockerignore").read_text().splitlines()
        for needed in ["src", "docs", "Cargo.lock", "packaging", "conf", "tests", "benches"]:
            self.assertNotIn(needed, ignored)
        self.assertIn(".git", ignored)

    def test_files_of_the_image_run_the_program_without_privileges(self):
        need("ldd", "chroot")
        if os.geteuid() != 0:
            skip("a root folder needs root")
        target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
        binary = Path(os.environ.get("BINARY", f"{target}/debug/model-gateway"))
        if not binary.exists():
            skip(f"no {binary}")
        with tempfile.TemporaryDirectory() as folder:
            # Of the user that runs the program.
            os.chmod(folder, 0o755)
            run(str(DOCKER / "rootfs"), str(binary), folder)
            programs = [path.name for path in Path(folder).rglob("*") if path.is_file() and os.access(path, os.X_OK)]
            libraries = [name for name in programs if ".so" in name]
            self.assertEqual(sorted(set(programs) - set(libraries)), ["model-gateway"])

            def gateway(*arguments, check=True):
                command = ["chroot", "--userspec=65532:65532", folder, "/usr/bin/model-gateway", *arguments]
                return run(*command, check=check)

            gateway("check", "--no-secrets")
            self.assertNotEqual(gateway("check", check=False).returncode, 0, "there is no credential yet")
            (Path(folder) / "run/secrets").mkdir(parents=True)
            (Path(folder) / "run/secrets/openai").write_text("sk-test\n")
            gateway("check")
            self.serve(folder, gateway)

    def serve(self, folder, gateway):
        """Starts the program on free ports; it is healthy until SIGTERM, and then ends by itself."""
        settings = Path(folder) / "etc/model-gateway/gateway.toml"
        text = settings.read_text()
        for address in ["0.0.0.0:8080", "0.0.0.0:9090"]:
            text = text.replace(address, f"127.0.0.1:{free_port()}")
        settings.write_text(text)
        process = subprocess.Popen(
            ["chroot", "--userspec=65532:65532", folder, "/usr/bin/model-gateway", "serve"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            # As a container's health check does: the program needs a moment to start.
            for _ in range(100):
                health = gateway("health", check=False)
                if health.returncode == 0:
                    break
                time.sleep(0.2)
            self.assertEqual(health.stdout, "ready\n", health.stderr)
            process.terminate()
            self.assertEqual(process.wait(60), 0)
        finally:
            process.kill()
            process.wait()
        self.assertNotEqual(gateway("health", check=False).returncode, 0)
        self.assertTrue((Path(folder) / "var/lib/model-gateway/state.db").exists())


class Compose(unittest.TestCase):
    def test_compose_example_is_consistent(self):
        compose = load(DOCKER / "compose.yaml")
        for name, service in compose["services"].items():
            for volume in service.get("volumes", []):
                source = volume.split(":")[0]
                known = source in compose["volumes"] or (DOCKER / source).exists()
                self.assertTrue(known, f"{name}: {volume}")
            if "build" in service:
                context = DOCKER / service["build"]["context"]
                self.assertTrue((context / service["build"]["dockerfile"]).exists())
                self.assertEqual(service["cap_drop"], ["ALL"])
                drain = re.search(r'drain += "(\d+)m"', (DOCKER / "conf/gateway.toml").read_text())
                self.assertGreater(int(service["stop_grace_period"].rstrip("s")), 60 * int(drain.group(1)))
            else:
                self.assertTrue(pinned(service["image"]), service["image"])
            for port in service.get("ports", []):
                self.assertTrue(port.startswith("127.0.0.1:"), port)

    def test_prometheus_configuration_is_valid(self):
        need("promtool")
        with tempfile.TemporaryDirectory() as folder:
            for file in [DOCKER / "prometheus.yml", ROOT / "packaging/prometheus/rules.yml"]:
                (Path(folder) / file.name).write_text(file.read_text())
            run("promtool", "check", "config", f"{folder}/prometheus.yml")

    def test_grafana_is_given_its_files(self):
        source = load(DOCKER / "grafana/datasource.yaml")["datasources"][0]
        self.assertEqual(source["type"], "prometheus")
        compose = load(DOCKER / "compose.yaml")["services"]
        self.assertIn("--web.listen-address=" + source["url"].removeprefix("http://"), compose["prometheus"]["command"])
        folder = load(DOCKER / "grafana/dashboards.yaml")["providers"][0]["options"]["path"]
        self.assertTrue(any(volume.split(":")[1].startswith(folder) for volume in compose["grafana"]["volumes"]))


class Chart(unittest.TestCase):
    def setUp(self):
        self.jsonschema = module("jsonschema")
        self.values = load(CHART / "values.yaml")
        self.schema = module("json").loads((CHART / "values.schema.json").read_text())

    def test_values_obey_their_schema(self):
        self.jsonschema.Draft7Validator.check_schema(self.schema)
        self.jsonschema.validate(self.values, self.schema)

    def test_schema_knows_every_value_and_refuses_others(self):
        self.assertEqual(set(self.schema["properties"]) - {"global"}, set(self.values))
        for change in [{"replicas": 0}, {"unknown": 1}, {"service": {"type": "None"}}, {"image": {"repository": ""}},
                       {"image": {"repository": "a", "digest": "sha256:1"}}, {"config": {"drainSeconds": "2m"}}]:
            with self.assertRaises(self.jsonschema.ValidationError, msg=change):
                self.jsonschema.validate({**self.values, **change}, self.schema)

    def test_templates_use_values_that_exist(self):
        for template in (CHART / "templates").iterdir():
            for path in re.findall(r"\.Values((?:\.\w+)+)", template.read_text()):
                place = self.values
                for name in path.strip(".").split("."):
                    self.assertIn(name, place, f"{template.name}: .Values{path}")
                    place = place[name]

    def test_version_is_that_of_the_program(self):
        manifest = (ROOT / "Cargo.toml").read_text()
        version = re.search(r'^version = "(.*)"', manifest, re.M).group(1)
        chart = load(CHART / "Chart.yaml")
        self.assertEqual((chart["version"], chart["appVersion"]), (version, version))

    def test_rules_are_those_of_the_repository(self):
        self.assertEqual((CHART / "rules.yml").read_text(), (ROOT / "packaging/prometheus/rules.yml").read_text())

    def rendered(self, **changes):
        """The objects that the templates make with the default values and these changes: a dictionary by kind and name."""
        yaml = module("yaml")
        values = {**self.values, **{name: self.values[name] | change if isinstance(change, dict) else change
                                    for name, change in changes.items()}}
        self.jsonschema.validate(values, self.schema)
        templates = {path.name: path.read_text() for path in (CHART / "templates").iterdir()}
        manifest = load(CHART / "Chart.yaml")
        about = {"Name": manifest["name"], "Version": manifest["version"], "AppVersion": manifest["appVersion"]}
        files = {"rules.yml": (CHART / "rules.yml").read_text()}
        texts = chart.Chart(yaml, files, templates, values, chart=about).render()
        objects = [one for name, text in texts.items() if name.endswith(".yaml") for one in yaml.safe_load_all(text) if one]
        return {(one["kind"], one["metadata"]["name"]): one for one in objects}

    def gateway_toml(self, objects):
        text = objects["Secret", "gw-model-gateway-settings"]["stringData"]["gateway.toml"]
        return text, tomllib.loads(text)

    def test_objects_of_the_default_values_belong_together(self):
        objects = self.rendered()
        pod = objects["StatefulSet", "gw-model-gateway"]["spec"]["template"]
        labels = objects["StatefulSet", "gw-model-gateway"]["spec"]["selector"]["matchLabels"]
        self.assertEqual(labels.items() - pod["metadata"]["labels"].items(), set())
        for service in ["gw-model-gateway", "gw-model-gateway-pods"]:
            self.assertEqual(objects["Service", service]["spec"]["selector"], labels)
        container = pod["spec"]["containers"][0]
        volumes = {volume["name"] for volume in pod["spec"]["volumes"]} | {"state"}
        self.assertEqual({mount["name"] for mount in container["volumeMounts"]}, volumes)
        self.assertEqual(container["args"], ["serve", "--conf", "/etc/model-gateway-settings/gateway.toml", "--watch"])
        self.assertNotIn("checksum/routes", pod["metadata"]["annotations"])
        # Longer than the lame duck time and the drain of the gateway.
        server = self.gateway_toml(objects)[1]["server"]
        self.assertEqual((server["lame_duck"], server["drain"]), ("10s", "120s"))
        self.assertEqual(pod["spec"]["terminationGracePeriodSeconds"], 160)
        self.assertNotIn("lifecycle", pod["spec"]["containers"][0])
        self.assertNotIn(("NetworkPolicy", "gw-model-gateway"), objects)
        self.assertNotIn(("ServiceMonitor", "gw-model-gateway"), objects)

    def test_values_reach_the_pod_and_its_settings(self):
        objects = self.rendered(
            replicas=3,
            config={"watch": False, "valkey": "redis://valkey:6379/0", "server": 'trusted_proxies = ["10.0.0.0/8"]',
                    "extra": "[limits]\nrequests = 100\n"},
            admin={"existingSecret": "tokens"},
            extraEnv=[{"name": "OTEL_SERVICE_NAME", "value": "edge"}],
            extraVolumes=[{"name": "tls", "secret": {"secretName": "certificate"}}],
            extraVolumeMounts=[{"name": "tls", "mountPath": "/etc/model-gateway-tls"}],
            networkPolicy={"enabled": True, "monitoring": [{"namespaceSelector": {}}]},
            metrics={"serviceMonitor": {"enabled": True, "interval": "30s", "labels": {"release": "prometheus"}},
                     "prometheusRule": {"enabled": True, "labels": {}, "runbooks": "https://docs.example/"}},
        )
        pod = objects["StatefulSet", "gw-model-gateway"]["spec"]["template"]
        container = pod["spec"]["containers"][0]
        self.assertNotIn("--watch", container["args"])
        self.assertIn("checksum/routes", pod["metadata"]["annotations"])
        self.assertEqual(container["env"], [{"name": "OTEL_SERVICE_NAME", "value": "edge"}])
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        self.assertEqual((mounts["tls"], mounts["admin"]), ("/etc/model-gateway-tls", "/etc/model-gateway-admin"))
        secrets = {volume["name"]: volume["secret"]["secretName"] for volume in pod["spec"]["volumes"] if "secret" in volume}
        self.assertEqual((secrets["tls"], secrets["admin"]), ("certificate", "tokens"))
        settings = self.gateway_toml(objects)[1]
        self.assertEqual(settings["server"]["trusted_proxies"], ["10.0.0.0/8"])
        self.assertEqual(settings["admin"]["tokens"], "/etc/model-gateway-admin/admin.toml")
        self.assertEqual((settings["store"]["valkey"], settings["limits"]["requests"]), ("redis://valkey:6379/0", 100))
        self.assertEqual(len(objects["NetworkPolicy", "gw-model-gateway"]["spec"]["ingress"]), 2)
        groups = objects["PrometheusRule", "gw-model-gateway"]["spec"]["groups"]
        runbooks = [rule["annotations"]["runbook"] for group in groups for rule in group["rules"] if "alert" in rule]
        self.assertTrue(runbooks)
        for runbook in runbooks:
            self.assertRegex(runbook, r"^https://docs\.example/\S+\.md#")
        self.assertEqual(objects["PodDisruptionBudget", "gw-model-gateway"]["spec"]["maxUnavailable"], 1)
        with self.assertRaises(chart.Failure):
            self.rendered(replicas=2)

    def test_settings_are_accepted_by_the_program(self):
        target = os.environ.get("CARGO_TARGET_DIR", ROOT / "target")
        binary = Path(os.environ.get("BINARY", f"{target}/debug/model-gateway"))
        if not binary.exists():
            skip(f"no {binary}")
        for changes in [{}, {"config": {"server": 'trusted_proxies = ["10.0.0.0/8"]', "extra": "[limits]\nrequests = 9\n"},
                             "admin": {"existingSecret": "tokens"}}]:
            objects = self.rendered(**changes)
            data = objects["ConfigMap", "gw-model-gateway-routes"]["data"]
            with tempfile.TemporaryDirectory() as folder:
                text = self.gateway_toml(objects)[0].replace("/etc/model-gateway/", f"{folder}/")
                (Path(folder) / "gateway.toml").write_text(text)
                # The image has the price file where no volume of the chart hides it: routes may name it.
                prices = "/usr/share/model-gateway/prices.toml"
                mounts = objects["StatefulSet", "gw-model-gateway"]["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
                self.assertFalse([mount for mount in mounts if prices.startswith(mount["mountPath"] + "/")])
                self.assertIn(f'"$root{prices}"', (DOCKER / "rootfs").read_text())
                for name in ["routes.toml", "keys.toml"]:
                    (Path(folder) / name).write_text(data[name])
                run(str(binary), "check", "--no-secrets", "--conf", f"{folder}/gateway.toml")

    def test_chart_passes_helm(self):
        # Debian has no package of it, so that it is optional everywhere.
        if not shutil.which("helm"):
            skip("no helm: the templates were not rendered")
        run("helm", "lint", "--strict", str(CHART))
        everything = ["--set", "replicas=3,config.valkey=redis://a:1,networkPolicy.enabled=true",
                      "--set", "metrics.serviceMonitor.enabled=true,metrics.prometheusRule.enabled=true"]
        for options in [[], everything]:
            list(module("yaml").safe_load_all(run("helm", "template", "gw", str(CHART), *options).stdout))
        self.assertNotEqual(run("helm", "template", "gw", str(CHART), "--set", "replicas=2", check=False).returncode, 0)


class Schemas(unittest.TestCase):
    def test_schemas_of_the_configuration_are_valid_draft_4(self):
        validator = module("jsonschema").Draft4Validator
        for file in (ROOT / "conf/schema").glob("*.json"):
            validator.check_schema(module("json").loads(file.read_text()))


if __name__ == "__main__":
    unittest.main(verbosity=2)
