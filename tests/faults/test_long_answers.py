"""Answers of any size: errors are cut, with the cut said, and no session ends by one."""

from __future__ import annotations

from typing import Any

import pytest

import sojourn
from sojourn.process import crossing
from sojourn.values.texts import MOST_OF_AN_ERROR, shortened

MEGABYTES = [20, 40, 200]


def failing() -> Any:
    """Raises an error as long as it is asked to."""

    def fail(megabytes: Any) -> Any:
        if megabytes:
            raise ValueError("begin" + "x" * int(megabytes) * 2**20 + "end")
        return megabytes

    return fail


@pytest.mark.parametrize("megabytes", MEGABYTES)
def test_a_long_error_is_cut_and_says_so_and_the_session_goes_on(megabytes):
    with sojourn.open(failing) as session:
        with pytest.raises(
            ValueError, match=r"^beginx+\n\[... \d+ characters left out ...\]"
        ) as told:
            session.run("output", {"megabytes": megabytes})
        assert str(told.value).endswith("xend")
        for text in (str(told.value), str(told.value.__cause__)):
            assert MOST_OF_AN_ERROR < len(text) < MOST_OF_AN_ERROR + 100
        assert session.run("output", {"megabytes": 0}) == 0


@pytest.mark.parametrize("megabytes", MEGABYTES)
def test_a_long_error_while_loading_is_cut(megabytes):
    def build() -> Any:
        raise ValueError("x" * megabytes * 2**20)

    with pytest.raises(ValueError, match="characters left out"):
        sojourn.open(build)


def test_a_long_error_of_an_isolated_function_arrives_as_it_was_raised():
    @sojourn.isolated
    def fail() -> None:
        raise ValueError("x" * 100 * 2**20)

    with pytest.raises(ValueError) as told:
        fail()
    assert len(str(told.value)) == 100 * 2**20
    assert "characters left out" in str(told.value.__cause__)


def test_a_long_error_in_a_worker_that_has_no_memory_for_it_is_reported_all_the_same():
    def build() -> Any:
        class Long(Exception):
            def __str__(self) -> str:
                return "x" * 4 * 2**30

        def fail(fails: Any) -> Any:
            if fails:
                raise Long
            return fails

        return fail

    with sojourn.open(build, memory="64MiB") as session:
        with pytest.raises(sojourn.EngineError, match=r"Long: .*cannot be shown"):
            session.run("output", {"fails": True})
        assert session.run("output", {"fails": False}) == 0


def test_an_answer_that_is_too_long_to_be_sent_is_an_error_of_that_call():
    def build() -> Any:
        import tensorflow as tf

        return {}, {"n" * 70 * 2**20: tf.constant(1)}

    with pytest.raises(ValueError, match="header would have"):
        sojourn.open(build)


def test_an_error_with_halves_of_characters_keeps_its_type():
    @sojourn.isolated
    def fail() -> None:
        raise ValueError("\udcff")

    with pytest.raises(ValueError, match="\udcff"):
        fail()


def test_names_of_errors_are_cut_too():
    kind = type("E" * 10_000_000, (Exception,), {"__module__": "m" * 10_000_000})
    assert len(crossing.record(kind("short"))) < 3 * MOST_OF_AN_ERROR


def test_a_text_that_is_short_enough_stays_as_it_is():
    assert shortened("abc", 3) == "abc"
    assert shortened("abcdef", 4) == "ab\n[... 2 characters left out ...]\nef"
