"""Moments that hardly anybody meets, made to last: between two renames, a descriptor in hand."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import models
import sojourn
from sojourn.engines import shortage
from sojourn.process.protocol import Forked
from sojourn.process.zygote_process import ZygoteProcess
from sojourn.session import checkpoints, folders


def test_a_restore_that_looks_between_two_renames_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def produce(prefix: bytes) -> checkpoints.Written:
        Path(os.fsdecode(prefix + b".index")).write_text("state")
        return checkpoints.Written(["v"], [])

    checkpoints.write(str(tmp_path / "saved"), produce, "test")
    real, looks = os.open, []

    def open_later(path: Any, *args: Any, **kwargs: Any) -> int:
        if path == "saved" and not looks:
            looks.append(path)
            raise FileNotFoundError(path)
        return real(path, *args, **kwargs)

    monkeypatch.setattr(folders.os, "open", open_later)
    with checkpoints.opened(str(tmp_path / "saved")):
        assert looks


def test_a_ctrl_c_with_a_new_workers_descriptor_in_hand_closes_it(
    zygote: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ZygoteProcess._heard

    def interrupted(self: ZygoteProcess, message: Any) -> None:
        real(self, message)
        if isinstance(message, Forked):
            raise KeyboardInterrupt

    monkeypatch.setattr(ZygoteProcess, "_heard", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sojourn.open(models.adder)  # what is left behind fails every test


def test_an_error_that_python_could_not_make_for_lack_of_memory_is_a_shortage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shortage, "_limit_bytes", 2**20)
    assert shortage.is_shortage(SystemError("error return without exception set"))
    assert not shortage.is_shortage(SystemError("a bug"))
