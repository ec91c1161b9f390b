"""What is in `deploy/` can be read by those it is for, and calls a command that is there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from sojourn.cli.serve import command

DEPLOY = Path(__file__).parent.parent / "deploy"


def check_call(words: list[str]) -> None:
    """The words after `sojourn serve` are ones that it takes."""
    parser = command.make_parser(click.Context(command))
    parser.parse_args(args=list(words))


def test_the_unit_is_one_that_systemd_accepts(tmp_path: Path) -> None:
    text = (DEPLOY / "sojourn.service").read_text()
    [call] = re.findall(r"^ExecStart=\S+/sojourn serve (.*)$", text, re.MULTILINE)
    check_call(call.split())
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here")
    unit = tmp_path / "sojourn.service"
    unit.write_text(text.replace("/opt/sojourn/bin/sojourn", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_image_starts_the_server_as_nobody_in_particular() -> None:
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line and line[0] != "#"]
    known = {"FROM", "WORKDIR", "COPY", "ARG", "RUN", "ENV", "USER", "EXPOSE", "STOPSIGNAL",
             "HEALTHCHECK", "ENTRYPOINT", "CMD"}  # fmt: skip
    assert {word for word, _ in lines} <= known
    said = dict(lines)  # the last of each counts
    assert said["USER"] == "sojourn"
    entry = yaml.safe_load(said["ENTRYPOINT"])
    assert entry[:4] == ["tini", "--", "sojourn", "serve"]
    check_call(entry[4:] + yaml.safe_load(said["CMD"]))
    for word, rest in lines:
        if word == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                assert (DEPLOY.parent / source).exists()


@pytest.mark.parametrize("name", ["sojourn", "sojourn-grpc"])
def test_the_runtimes_of_kserve_are_what_their_schema_wants(name: str) -> None:
    documents: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / "kserve.yaml").read_text()))
    [runtime] = [one for one in documents if one["metadata"]["name"] == name]
    assert runtime["apiVersion"] == "serving.kserve.io/v1alpha1"
    assert runtime["kind"] == "ServingRuntime"
    spec = runtime["spec"]
    assert set(spec) <= {"annotations", "supportedModelFormats", "protocolVersions", "containers"}
    assert set(spec["protocolVersions"]) <= {"v1", "v2", "grpc-v2"}
    for served in spec["supportedModelFormats"]:
        assert isinstance(served["name"], str)
        assert isinstance(served.get("version", ""), str), "a number would be refused"
    [container] = spec["containers"]
    assert container["name"] == "kserve-container"
    [port] = container["ports"]
    assert any(word.endswith(f":{port['containerPort']}") for word in container["args"])
    assert container["command"][-2:] == ["sojourn", "serve"]
    check_call(container["args"])


def test_the_ray_cluster_is_one_that_kuberay_takes() -> None:
    ray_cluster = yaml.safe_load((DEPLOY / "kuberay.yaml").read_text())
    assert (ray_cluster["apiVersion"], ray_cluster["kind"]) == ("ray.io/v1", "RayCluster")
    groups = [ray_cluster["spec"]["headGroupSpec"], *ray_cluster["spec"]["workerGroupSpecs"]]
    for group in groups:
        [container] = group["template"]["spec"]["containers"]
        assert container["resources"]["limits"] == container["resources"]["requests"]
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
