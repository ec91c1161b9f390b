"""A worker sees the world as its client sees it, whatever is in it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import models
import sojourn
from sojourn.process.surroundings import Surroundings
from sojourn.process.zygote import zygote as the_zygote


def _environment():
    return lambda: repr(dict(os.environb))


def test_a_variable_of_bytes_that_are_no_text_reaches_the_worker(zygote, monkeypatch):
    monkeypatch.setitem(os.environb, b"ODD\xff", b"\xfe\xff")
    with sojourn.open(_environment) as session:
        assert eval(session.run("output"))[b"ODD\xff"] == b"\xfe\xff"


def test_a_path_object_among_the_import_paths_disturbs_nobody(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [*sys.path, Path(tmp_path)])
    the_zygote.end()  # its successor is told of it as well
    with sojourn.open(models.adder) as session:
        assert session.run("output", {"a": 1.0, "b": 2.0}) == 3.0


def test_a_folder_that_was_removed_keeps_nobody_from_opening(zygote, monkeypatch, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with sojourn.open(models.adder) as session:
        assert session.run("output", {"a": 1.0, "b": 2.0}) == 3.0


def _folder():
    return lambda: os.path.exists("here")


def test_a_folder_that_nobody_can_enter_by_its_name_is_the_workers_too(
    zygote, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    for _ in range(20):  # longer together than a path can be
        os.mkdir("f" * 250)
        os.chdir("f" * 250)
    Path("here").touch()
    with sojourn.open(_folder) as session:
        assert session.run("output")


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "HOME", "PATH"])
def test_a_strangers_model_gets_no_variable_that_could_be_a_secret(name, monkeypatch):
    monkeypatch.setenv(name, "x")
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "1")
    told = Surroundings.here({"SOJOURN_WORKER": "mark"}, secretive=True).environment
    assert name.encode() not in told
    assert told[b"TF_NUM_INTRAOP_THREADS"] == b"1"
    assert told[b"SOJOURN_WORKER"] == b"mark"
