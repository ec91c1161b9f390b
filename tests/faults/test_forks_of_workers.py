"""A function that forks in its worker: the copy gives no answers."""

from __future__ import annotations

from typing import Any

import pytest

import sojourn


@pytest.mark.parametrize("how", ["returns", "raises", "exits"])
def test_a_fork_of_a_worker_that_returns_to_our_loop_ends_at_once(how):
    def build() -> Any:
        import os
        import sys

        def fork(x: Any) -> Any:
            pid = os.fork() if x < 0 else 1
            if pid == 0 and how == "raises":
                raise ValueError("of the copy")
            if pid == 0 and how == "exits":
                sys.exit(3)
            if x < 0 and pid:
                os.waitpid(pid, 0)  # it ends, and so nothing of it answers later
            return x + (0 if pid else 100)

        return fork

    with sojourn.open(build) as session:
        for x in (1, -2, 3, -4, 5, 6, -7, 8):
            assert session.run("output", {"x": x}) == x
    assert session.receipt.clean


def test_a_fork_of_an_isolated_function_gives_no_second_answer():
    @sojourn.isolated
    def fork() -> str:
        import os

        pid = os.fork()
        if pid:
            os.waitpid(pid, 0)
        return "the function" if pid else "the copy"

    assert [fork() for _ in range(3)] == ["the function"] * 3
