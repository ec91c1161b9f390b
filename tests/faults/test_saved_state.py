"""Saved state that several write and read at once: everybody sees the old or the new, whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import sojourn
from faults.tools import Background
from sojourn.session import checkpoints, folders

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "restores_beside_saves.py"


def test_a_restore_beside_a_process_that_saves_gives_the_old_or_the_new_state():
    # A share of what the script does at length.
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--restores", "150", "--json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["restores"] == 150


@pytest.mark.parametrize("can_exchange", [True, False], ids=["exchange", "renames"])
def test_several_may_save_and_restore_one_path_at_once(tmp_path, monkeypatch, can_exchange):
    path = str(tmp_path / "saved")
    if not can_exchange:
        monkeypatch.setattr(folders, "_exchange", lambda above, one, other: False)

    def save(number: int) -> None:
        def produce(prefix: bytes) -> checkpoints.Written:
            for part in (b".index", b".data"):
                Path(os.fsdecode(prefix + part)).write_text(str(number))
            return checkpoints.Written(["v"], [])

        checkpoints.write(path, produce, "test")

    def save_many(numbers: range) -> int:
        saved = 0
        for number in numbers:
            try:
                save(number)
                saved += 1
            except sojourn.CheckpointError:
                assert not can_exchange  # who is slower of two that rename may have to give up
        return saved

    def read_many(count: int) -> set[str]:
        seen = set()
        for _ in range(count):
            with checkpoints.opened(path) as saved:
                prefix = f"/proc/self/fd/{saved.folder}/state"  # it may be moved in between
                found = {Path(prefix + part).read_text() for part in (".index", ".data")}
                assert len(found) == 1
                seen |= found
        return seen

    save(0)
    savers = [Background(save_many, range(n * 1000, n * 1000 + 100)) for n in (1, 2)]
    readers = [Background(read_many, 200) for _ in range(2)]
    for reader in readers:
        assert reader.result()
    assert all(saver.result() > 50 for saver in savers)
    with checkpoints.opened(path):
        pass
    assert os.listdir(tmp_path) == ["saved"]


def test_a_state_that_is_replaced_while_it_is_read_stays_until_it_was(tmp_path):
    path = str(tmp_path / "saved")

    def produce(prefix: bytes) -> checkpoints.Written:
        Path(os.fsdecode(prefix) + ".index").write_text("state")
        return checkpoints.Written(["v"], [])

    checkpoints.write(path, produce, "test")
    with checkpoints.opened(path) as one, checkpoints.opened(path) as other:
        checkpoints.write(path, produce, "test")
        for saved in (one, other):
            assert Path(os.fsdecode(saved.prefix()) + ".index").read_text() == "state"
        assert len(os.listdir(tmp_path)) == 2
    assert os.listdir(tmp_path) == ["saved"]
