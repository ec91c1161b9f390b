"""What makes no sense is refused before anything starts, by the name that the user wrote."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import models
import sojourn
from sojourn.probes import status_page
from sojourn.session.listing import Lister


def adder() -> Any:
    return lambda a, b: a + b


@pytest.mark.parametrize(
    ("settings", "kind", "words"),
    [
        ({"memory": "lots"}, ValueError, "memory: not an amount of memory: 'lots'"),
        ({"memory": -1}, ValueError, "memory: an amount of memory cannot be negative: -1"),
        ({"memory": 0}, ValueError, "memory must be positive"),
        (
            {"idle_seconds": -1},
            ValueError,
            "idle_seconds must be a number of seconds of at least 0, not -1",
        ),
        ({"idle_seconds": "5"}, TypeError, "idle_seconds must be a number of seconds, not '5'"),
        ({"idle_seconds": float("nan")}, ValueError, "idle_seconds .* not nan"),
        (
            {"max_sessions": 0},
            ValueError,
            "max_sessions must be a whole number of at least 1, not 0",
        ),
        (
            {"max_sessions": 1.5},
            TypeError,
            "max_sessions must be a whole number of at least 1, not 1.5",
        ),
        ({"devices": 3}, TypeError, "devices must be a list such as"),
        ({"devices": ["tpu"]}, ValueError, "each of devices must be 'auto', 'cpu', .*, not 'tpu'"),
        ({"lease_warning_seconds": -1}, ValueError, "lease_warning_seconds .* not -1"),
        ({"parking_folder": 3}, TypeError, "parking_folder must be a path, not 3"),
    ],
)
def test_a_pool_says_which_setting_is_wrong(
    settings: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        sojourn.Pool(**settings)


@pytest.mark.parametrize(
    ("name", "options", "kind", "words"),
    [
        (3, {}, TypeError, "a model's name must be a string, not 3"),
        ("", {}, ValueError, "must not be empty"),
        ("m", {"copies": 10**9}, ValueError, "m: copies must be at most 4096, not 1000000000"),
        ("m", {"copies": 0}, ValueError, "m: copies must be a whole number of at least 1, not 0"),
        (
            "m",
            {"copies": "2"},
            TypeError,
            "m: copies must be a whole number of at least 1, not '2'",
        ),
        (
            "m",
            {"max_runs": 0},
            ValueError,
            "m: max_runs must be a whole number of at least 1, not 0",
        ),
        ("m", {"keep_seconds": "x"}, TypeError, "m: keep_seconds must be a number of seconds"),
        ("m", {"memory": "lots"}, ValueError, "memory: not an amount"),
        ("m", {"max_growth": "lots"}, ValueError, "max_growth: not an amount"),
        ("m", {"device": "tpu"}, ValueError, "device must be 'auto', .* not 'tpu'"),
        ("m", {"isolation": "inline"}, ValueError, "have isolation='process', not 'inline'"),
        ("m", {"restart": "from-checkpoint"}, ValueError, "the pool replaces them"),
        (
            "m",
            {"colour": "red"},
            TypeError,
            r"in a pool has no option 'colour'; .* seed, shadow, sig",
        ),
    ],
)
def test_a_registration_says_what_is_wrong_and_leaves_the_name_free(
    name: Any, options: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with sojourn.Pool() as pool:
        with pytest.raises(kind, match=words):
            pool.register(name, adder, **options)
        assert name not in pool
        pool.register("m", adder, copies=np.int64(2))  # type: ignore[arg-type]


def test_a_lease_takes_the_name_of_a_model_and_a_number_of_seconds() -> None:
    asked: Any
    with sojourn.Pool() as pool:
        pool.register("m", adder)
        for asked in (3, None, ["m"]):
            for ask in (pool.lease, pool.alease, pool.preload):
                with pytest.raises(TypeError, match="a model's name must be a string, not"):
                    ask(asked)
        with pytest.raises(sojourn.ModelError, match=r"no model named 'n' .*registered: m"):
            pool.lease("n")
        for wait in (pool.lease, pool.alease, pool.evict):
            with pytest.raises(
                TypeError, match="timeout must be a number of seconds or None, not '1'"
            ):
                wait("m", timeout="1")  # type: ignore[arg-type]
        for wait in (pool.lease, pool.alease, pool.evict, pool.preload, pool.unregister):
            with pytest.raises(ValueError, match="timeout must not be negative, got -1"):
                wait("m", timeout=-1)
        with pytest.raises(ValueError, match="ready_seconds must not be negative, got -1"):
            pool.update("m", adder, ready_seconds=-1)
        with pytest.raises(ValueError, match="timeout must not be negative, got -1"):
            pool.close(timeout=-1)
        with pytest.raises(TypeError, match="timeout must be a number of seconds or None"):
            pool.close(timeout="soon")  # type: ignore[arg-type]
        assert pool.evict("m", timeout=float("inf"))


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"memory": -1}, ValueError, "memory: an amount of memory cannot be negative: -1"),
        ({"memory": 0}, ValueError, "memory must be positive"),
        ({"timeout": 0}, ValueError, "timeout must be a positive number of seconds, not 0"),
        ({"timeout": "1"}, TypeError, "timeout must be a number of seconds, not '1'"),
        ({"device": None}, ValueError, "device must be 'auto', .*, not None"),
    ],
)
def test_an_isolated_function_says_which_option_is_wrong(
    options: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        sojourn.isolated(**options)


def test_a_sweep_takes_lists_and_a_number_of_workers() -> None:
    same = sojourn.isolated(lambda x: x)
    with pytest.raises(ValueError, match="workers must be a whole number of at least 1, not 0"):
        same.map([1], workers=0)
    with pytest.raises(TypeError, match=r"workers must be a whole number of at least 1, not 1\.5"):
        same.map([1], workers=1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes an iterable for each argument, not 3"):
        same.map(3)  # type: ignore[arg-type]


def test_who_listens_can_be_called_and_where_lines_go_is_a_path(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="must be callable, not 'loud'"):
        sojourn.events.subscribe("loud")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="path must be a path, not 3"):
        sojourn.events.write_lines(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_bytes: not an amount"):
        sojourn.events.write_lines(tmp_path / "events.jsonl", max_bytes="few")
    assert not list(tmp_path.iterdir())


def test_each_subscription_ends_alone() -> None:
    heard: list[str] = []

    def listen(event: sojourn.events.Event) -> None:
        heard.append(event.kind)

    first, second = sojourn.events.subscribe(listen), sojourn.events.subscribe(listen)
    sojourn.events.emit("one")
    first()
    first()
    sojourn.events.emit("two")
    second()
    sojourn.events.emit("three")
    assert heard == ["one", "one", "two"]


@pytest.mark.parametrize("rubbish", [b"[]", b"3", b"{", b'{"serial": "x"}', b'{"opened": []}'])
def test_a_file_that_only_looks_like_a_status_page_is_passed_over(rubbish: bytes) -> None:
    fd = os.memfd_create(status_page.NAME, os.MFD_CLOEXEC)
    try:
        for size in (0, 100, 8192):
            os.truncate(fd, size)
            if size > 1000:
                os.pwrite(fd, rubbish, 512)
            assert not list(status_page.read_all([os.getpid()]))
            assert all(one.client_pid != os.getpid() for one in Lister().list())
    finally:
        os.close(fd)


def test_a_session_with_an_endless_name_is_listed_with_the_beginning_of_it() -> None:
    page = status_page.StatusPage({"name": "näme" * 5000, "owner": "x" * 5000, "serial": 7})
    try:
        [seen] = status_page.read_all([os.getpid()])
        assert seen.facts["serial"] == 7
        assert seen.facts["name"].startswith("nämenäme")
    finally:
        page.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"device": 3}, "device must be 'auto', 'cpu', .* not 3"),
        ({"device": None}, "device must be 'auto', 'cpu', .* not None"),
        ({"memory": 0}, "memory must be positive"),
        ({"memory": "lots"}, "memory: "),
    ],
)
def test_open_says_which_option_is_wrong(options: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        sojourn.open(models.adder, **options)


@pytest.mark.usefixtures("zygote")
def test_a_session_says_which_argument_is_wrong_and_goes_on() -> None:
    with sojourn.open(models.adder) as session:
        for wrong, words in [
            (lambda: session.save(3), "path must be a path, not 3"),
            (lambda: session.restore(None), "path must be a path, not None"),
            (lambda: session.run("output", {}, timeout="x"), "timeout must be a number of seconds"),
            (lambda: session.close(timeout="soon"), "timeout must be a number of seconds"),
            (lambda: session.close(timeout=-1), "timeout must not be negative, got -1"),
            (lambda: sojourn.open(models.adder, timeout=-1), "timeout must not be negative"),
            (
                lambda: session.lend(max_seconds=-1),
                "max_seconds must be a number of seconds of at least 0",
            ),
        ]:
            with pytest.raises((TypeError, ValueError), match=words):
                wrong()
        assert session.run("output", {"a": 1, "b": 2}) == 3
