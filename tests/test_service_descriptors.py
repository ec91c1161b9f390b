"""Clients never get the descriptors that models need."""

from __future__ import annotations

import logging
import resource

import pytest

from sojourn.service import descriptors


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "allowed"),
    [
        (1024, 1_000_000, 65536, 4096),
        (1024, resource.RLIM_INFINITY, 65536, 4096),
        (1024, 4096, 4096, 2048),
        (256, 256, None, 128),
        (100_000, 1_000_000, None, 4096),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None, 4096),
    ],
)
def test_the_limit_is_raised_and_clients_get_half_of_it_at_most(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    soft: int,
    hard: int,
    raised: int | None,
    allowed: int,
) -> None:
    changed: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: changed.append(limits))
    with caplog.at_level(logging.WARNING, "sojourn.service"):
        assert descriptors.connections(4096) == allowed
    assert changed == ([] if raised is None else [(raised, hard)])
    assert ("ulimit" in caplog.text) == (allowed < 4096)


def test_all_doors_together_get_half_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    assert [descriptors.connections(4096, doors) for doors in (0, 1, 2, 3)] == [512, 512, 256, 170]
    assert descriptors.connections(100, 3) == 100
