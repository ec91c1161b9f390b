"""`sojourn doctor` names what is wrong, with the cure, and only what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from sojourn.cli.main import main
from sojourn.probes import machine, processes
from sojourn.probes.doctor import OK, PROBLEM, WARNING, Facts, examine
from sojourn.probes.gpu import Gpu
from sojourn.process import lifeline
from sojourn.process.trial import try_lifeline

HEALTHY = Facts(
    builds={"tensorflow-cpu": "2.21.0"},
    features={"memfd": "", "pidfd": "", "lifeline": ""},
    max_descriptors=4096,
    max_processes=None,
    memory_limit=16 * 2**30,
)
WITH_GPU = replace(
    HEALTHY,
    builds={"tensorflow": "2.21.0"},
    has_driver=True,
    has_nvml=True,
    gpus=(Gpu("GPU-1", "A100", 40 * 2**30, 30 * 2**30),),
)


def verdicts(facts: Facts) -> set[tuple[str, str]]:
    return {(check.name, check.verdict) for check in examine(facts) if check.verdict != OK}


def test_a_healthy_machine_has_nothing_to_cure():
    for facts in (HEALTHY, WITH_GPU):
        assert verdicts(facts) == set()
        assert not any(check.cure for check in examine(facts))


@pytest.mark.parametrize(
    ("facts", "name", "verdict", "says"),
    [
        (replace(HEALTHY, python=(3, 9, 1)), "python", PROBLEM, "3.10 to 3.13"),
        (replace(HEALTHY, python=(3, 14, 0)), "python", PROBLEM, "3.10 to 3.13"),
        (replace(HEALTHY, is_64_bit=False), "python", PROBLEM, "64-bit"),
        (replace(HEALTHY, builds={}), "tensorflow", PROBLEM, "sojourn[cpu]"),
        (
            replace(HEALTHY, builds={"tensorflow": "2.21.0", "tensorflow-cpu": "2.21.0"}),
            "tensorflow",
            PROBLEM,
            "pip uninstall tensorflow tensorflow-cpu, then pip install tensorflow",
        ),
        (replace(HEALTHY, tensorflow_is_whole=False), "tensorflow", PROBLEM, "--force-reinstall"),
        (replace(HEALTHY, builds={"tensorflow": "2.9.3"}), "tensorflow", WARNING, "2.16"),
        (replace(HEALTHY, has_driver=True), "gpu", WARNING, "nvidia-smi"),
        (replace(WITH_GPU, has_nvml=False), "gpu bytes", WARNING, "nvidia-ml-py"),
        (
            replace(WITH_GPU, builds={"tensorflow-cpu": "2.21.0"}),
            "gpu build",
            WARNING,
            "tensorflow[and-cuda]",
        ),
        (replace(WITH_GPU, has_cudnn=False), "gpu build", WARNING, "tensorflow[and-cuda]"),
        (replace(WITH_GPU, visible_devices="-1"), "cuda visibility", WARNING, "unset"),
        (replace(HEALTHY, platform="darwin"), "system", PROBLEM, "inline"),
        (replace(HEALTHY, features={"pidfd": "no"}), "pidfd", PROBLEM, "seccomp"),
        (replace(HEALTHY, max_descriptors=600), "descriptors", WARNING, "ulimit -n"),
        (replace(HEALTHY, max_descriptors=100), "descriptors", PROBLEM, "ulimit -n"),
        (replace(HEALTHY, max_processes=100), "processes", WARNING, "ulimit -u"),
        (replace(HEALTHY, max_file_bytes=2**20), "file size", WARNING, "ulimit -f"),
        (replace(HEALTHY, memory_limit=2**30), "memory", WARNING, "0.7 GiB"),
        (replace(HEALTHY, kills_for_memory=2), "memory kills", WARNING, "limit"),
        (replace(HEALTHY, stale=((7, "x"), (8, "y"))), "stale processes", PROBLEM, "kill 7 8"),
    ],
)
def test_each_trouble_is_named_once_with_its_cure(facts, name, verdict, says):
    assert verdicts(facts) == {(name, verdict)}
    [check] = [check for check in examine(facts) if check.verdict != OK]
    assert says in check.cure


def test_this_machine_can_do_what_sojourn_needs_and_it_was_really_tried():
    done = CliRunner().invoke(main, ["doctor", "--json"])
    found = json.loads(done.output)
    by_name = {check["name"]: check for check in found["checks"]}
    for feature in ("memfd", "eventfd", "pidfd", "smaps", "lifeline"):
        assert by_name[feature]["text"] == "tried, works"
    assert by_name["tensorflow"]["verdict"] == OK
    assert found["problems"] == sum(c["verdict"] == PROBLEM for c in found["checks"])
    assert done.exit_code == (1 if found["problems"] else 0)


def test_a_lifeline_that_does_not_hold_is_found_out(monkeypatch):
    ours, theirs = lifeline.pair()
    kept = ours.dup()  # somebody else holds our end: nothing happens when we close ours
    monkeypatch.setattr(lifeline, "pair", lambda: (ours, theirs))
    with pytest.raises(OSError, match="outlived its client"):
        try_lifeline(seconds=0.2)
    kept.close()


def test_a_process_that_has_lost_its_client_is_found():
    gone = subprocess.Popen(["true"])
    gone.wait()
    lost = subprocess.Popen(
        [f"sojourn: lost of {gone.pid}"], executable="/bin/cat", stdin=subprocess.PIPE
    )
    ours = subprocess.Popen(
        [f"sojourn: ours of {os.getpid()}"], executable="/bin/cat", stdin=subprocess.PIPE
    )
    for process in (lost, ours):  # one that has just begun has no title yet
        while not Path(f"/proc/{process.pid}/cmdline").read_bytes():
            pass
    stale = {one.pid: one.name for one in machine.stale_processes()}
    for process in (lost, ours):
        process.communicate()
    assert stale.get(lost.pid) == "lost"
    assert ours.pid not in stale


def test_a_process_of_a_container_is_not_taken_for_one_that_has_lost_its_client():
    gone = subprocess.Popen(["true"])
    gone.wait()
    title = f"sojourn: inside of {gone.pid}"  # a number of the container's
    code = f"import os; os.execv('/bin/cat', ['{title}'])"
    inside = subprocess.Popen(
        ["unshare", "--user", "--map-root-user", "--pid", "--fork", sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    while not any(one.client_pid == gone.pid for one in processes.of_client()):
        if inside.poll() is not None:
            pytest.skip("no namespaces of processes here")
    stale = [one.name for one in machine.stale_processes()]
    inside.communicate()
    assert "inside" not in stale


def test_two_builds_of_tensorflow_and_a_low_limit_fail_the_command(tmp_path):
    for name, version in (("tensorflow", "2.20.0"), ("tensorflow_cpu", "2.21.0")):
        folder = tmp_path / f"{name}-{version}.dist-info"
        folder.mkdir()
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (folder / "METADATA").write_text(text)
    command = f"ulimit -n 200; exec {sys.executable} -m sojourn.cli.main doctor"
    done = subprocess.run(
        ["sh", "-c", command],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == ""
    assert "problem  tensorflow       tensorflow 2.20.0 and tensorflow-cpu 2.21.0" in done.stdout
    assert "problem  descriptors      a process may have 200" in done.stdout
    assert "\x1b" not in done.stdout
