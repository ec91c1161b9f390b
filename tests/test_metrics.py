"""`sojourn.metrics()` is what Prometheus reads, and its numbers are right."""

from __future__ import annotations

import os
import re

import numpy as np
import pytest

import models
import sojourn
from sojourn.probes.status_page import BUCKETS, bucket, bucket_seconds, quantile

pytestmark = pytest.mark.usefixtures("zygote")

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}
Labels = tuple[tuple[str, str], ...]


def parsed(text: str) -> dict[str, dict[tuple[str, Labels], float]]:
    """Families of samples, by a reader that accepts nothing but the format's own rules."""
    assert text.endswith("\n")
    families: dict[str, dict[tuple[str, Labels], float]] = {}
    kinds: dict[str, str] = {}
    helped: set[str] = set()
    current = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            current, _, about = line[7:].partition(" ")
            assert _NAME.fullmatch(current)
            assert about
            assert current not in helped, "HELP twice"
            helped.add(current)
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            assert name == current, "TYPE follows its HELP"
            assert name not in kinds, "TYPE twice"
            kinds[name] = kind
            families[name] = {}
        else:
            match = re.fullmatch(r"([^{ ]+)(?:\{(.*)\})? (\S+)", line)
            assert match, line
            full, inside, value = match.groups()
            suffix = full.removeprefix(current)
            assert full.startswith(current), "samples stand together"
            assert suffix in _SUFFIXES[kinds[current]], line
            labels = _labels(inside)
            assert (suffix, labels) not in families[current], "a series twice"
            families[current][suffix, labels] = float(value)
    assert helped == set(kinds)
    for name, kind in kinds.items():
        assert kind != "counter" or name.endswith("_total")
        if kind == "histogram":
            _check_histogram(families[name])
    return families


def _labels(inside: str | None) -> Labels:
    if not inside:
        return ()
    found = _LABEL.findall(inside)
    assert ",".join(f'{key}="{value}"' for key, value in found) == inside
    unescaped = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
    return tuple(
        (key, re.sub(r'\\[\\"n]', lambda m: unescaped[m.group()], value)) for key, value in found
    )


def _check_histogram(samples: dict[tuple[str, Labels], float]) -> None:
    for who in [labels for suffix, labels in samples if suffix == "_count"]:
        buckets = [
            (dict(labels)["le"], n)
            for (suffix, labels), n in samples.items()
            if suffix == "_bucket" and labels[:-1] == who
        ]
        bounds = [float(le) for le, _ in buckets]
        counts = [count for _, count in buckets]
        assert buckets[-1][0] == "+Inf"
        assert bounds == sorted(set(bounds))
        assert counts == sorted(counts)
        assert samples["_count", who] == counts[-1]
        assert samples["_sum", who] >= 0


def number(name: str, **labels: str) -> float:
    return parsed(sojourn.metrics())[name].get(("", tuple(labels.items())), 0)


def steps_of(model: str) -> float:
    return number("sojourn_steps_total", model=model)


def test_sessions_are_counted_by_state_and_steps_as_they_are_run():
    steps, opened = steps_of("adder"), number("sojourn_sessions_opened_total")
    closed = number("sojourn_sessions_closed_total")
    with sojourn.open(models.adder) as session:
        for _ in range(5):
            session.run(None, {"a": 1, "b": 2})
        assert number("sojourn_sessions", state="ready") == 1
        assert number("sojourn_sessions_opened_total") == opened + 1
        assert number("sojourn_sessions_closed_total") == closed
        assert steps_of("adder") == steps + 5
    assert number("sojourn_sessions", state="ready") == 0
    assert number("sojourn_sessions_closed_total") == closed + 1
    assert steps_of("adder") == steps + 5


def test_steps_are_counted_by_model_whatever_the_sessions_are_called():
    with sojourn.open(models.adder, name="first") as one, sojourn.open(models.adder) as other:
        before = steps_of("adder")
        for session in (one, other):
            session.run(None, {"a": 1, "b": 2})
        assert steps_of("adder") == before + 2
    with sojourn.Pool() as pool:
        pool.register("sums-of-two", models.adder)
        with pool.lease("sums-of-two") as session:
            session.run(None, {"a": 1, "b": 2})
        assert steps_of("sums-of-two") == 1
    sojourn.isolated(len)([1])
    assert steps_of("len") >= 1
    assert steps_of("adder") == before + 2


def test_latencies_are_a_histogram_that_survives_the_session():
    who = ("model", "sleeper")
    with sojourn.open(models.sleeper) as session:
        session.run(None, {"seconds": 0.0})
        before = parsed(sojourn.metrics())["sojourn_step_seconds"]
        session.run(None, {"seconds": 0.03})
        session.run(None, {"seconds": 0.0})
    after = parsed(sojourn.metrics())["sojourn_step_seconds"]
    assert after["_count", (who,)] == before["_count", (who,)] + 2
    assert after["_sum", (who,)] - before["_sum", (who,)] >= 0.03
    slow = [
        after["_bucket", labels] - before["_bucket", labels]
        for suffix, labels in after
        if suffix == "_bucket" and who in labels and float(dict(labels)["le"]) < 0.03
    ]
    assert max(slow) <= 1


def test_held_and_returned_bytes_are_those_of_the_receipt():
    returned = number("sojourn_returned_bytes_total")
    had = number("sojourn_closed_held_bytes_total")
    with sojourn.open(models.holding(20), name="twenty") as session:
        session.run("sum")
        held = parsed(sojourn.metrics())["sojourn_session_held_bytes"]
        mine = [n for (_, labels), n in held.items() if ("session", "twenty") in labels]
        assert mine[0] > 20 * 2**20
    assert number("sojourn_returned_bytes_total") - returned == session.receipt.returned_bytes
    assert number("sojourn_closed_held_bytes_total") - had == session.receipt.held_bytes
    assert not any("twenty" in str(key) for key in parsed(sojourn.metrics()))


def test_a_worker_that_died_is_counted_as_broken():
    broken = number("sojourn_sessions_broken_total")
    with sojourn.open(models.adder) as session:
        os.kill(session.pid, 9)
        with pytest.raises(sojourn.SessionBroken):
            session.run(None, {"a": 1, "b": 2})
        assert number("sojourn_sessions", state="broken") == 1
    assert number("sojourn_sessions_broken_total") == broken + 1
    assert number("sojourn_sessions", state="broken") == 0


def test_any_name_is_a_proper_label_and_equal_names_are_told_apart():
    name = 'quo"te\\back'
    with (
        sojourn.open(models.adder, name=name),
        sojourn.open(models.adder, name=name) as other,
    ):
        other.run(None, {"a": np.float32(1), "b": np.float32(2)})
        held = parsed(sojourn.metrics())["sojourn_session_held_bytes"]
        mine = [labels for _, labels in held if ("session", name) in labels]
    assert len(mine) == 2
    assert dict(mine[0])["serial"] != dict(mine[1])["serial"]


def test_a_fork_begins_to_count_anew():
    with sojourn.open(models.adder) as session:
        session.run(None, {"a": 1, "b": 2})
        child = os.fork()
        if child == 0:
            counted = 1.0
            try:
                counted = steps_of("adder") + number("sojourn_sessions_opened_total")
            finally:
                os._exit(0 if counted == 0 else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_a_quantile_lies_in_the_bucket_that_its_steps_are_in():
    histogram = [0] * BUCKETS
    for microseconds in range(1, 101):
        histogram[bucket(int(microseconds * 1000))] += 1
    assert quantile(histogram, 0.5) == pytest.approx(50e-6, rel=0.05)
    assert bucket_seconds(6) <= quantile(histogram, 0.99) <= bucket_seconds(7)
    assert quantile([0] * BUCKETS, 0.5) == 0.0
