"""Every error has one status, the same in all protocols."""

from __future__ import annotations

import errno

import pytest

from sojourn import errors
from sojourn.process.calls import WorkerDied
from sojourn.service.failures import Refused, Status, refusal


class OpError(Exception):
    """Like those of TensorFlow."""

    error_code = 8
    message = "no room for it"


@pytest.mark.parametrize(
    ("error", "status", "http"),
    [
        (errors.InputError("x"), Status.INVALID_ARGUMENT, 400),
        (errors.StepTimeout("x"), Status.DEADLINE_EXCEEDED, 504),
        (errors.PoolTimeout("x"), Status.DEADLINE_EXCEEDED, 504),
        (errors.SessionBroken("x"), Status.UNAVAILABLE, 503),
        (errors.OutOfMemory("x"), Status.RESOURCE_EXHAUSTED, 429),
        (errors.BudgetExceeded("x"), Status.RESOURCE_EXHAUSTED, 429),
        (errors.ModelError("x"), Status.FAILED_PRECONDITION, 400),
        (errors.EngineError("x"), Status.INVALID_ARGUMENT, 400),
        (errors.EngineError("x", 3), Status.INVALID_ARGUMENT, 400),
        (errors.EngineError("x", 8), Status.RESOURCE_EXHAUSTED, 429),
        (errors.EngineError("x", 5), Status.INVALID_ARGUMENT, 400),  # a table, not our path
        (errors.EngineError("x", 14), Status.INVALID_ARGUMENT, 400),  # not this server
        (OpError(), Status.RESOURCE_EXHAUSTED, 429),
        (errors.PlatformError("no thread"), Status.UNAVAILABLE, 503),
        (errors.SojournError("the zygote ended twice"), Status.UNAVAILABLE, 503),
        (errors.InternalError("x"), Status.INTERNAL, 500),
        (OSError(errno.EMFILE, "Too many open files"), Status.UNAVAILABLE, 503),
        (OSError(errno.ENOENT, "/a/path"), Status.INTERNAL, 500),
        (KeyError("x"), Status.INTERNAL, 500),
    ],
)
def test_every_error_has_its_status(error: Exception, status: Status, http: int) -> None:
    told = refusal(error)
    assert (told.status, told.status.http) == (status, http)


def test_what_was_refused_stays_as_it_is() -> None:
    refused = Refused(Status.NOT_FOUND, "no such model", 3.0)
    assert refusal(refused) is refused


def test_what_nobody_expected_is_not_told() -> None:
    assert "secret" not in str(refusal(KeyError("secret")))


def test_the_last_words_of_a_worker_are_not_for_clients() -> None:
    died = WorkerDied("the worker was killed", 'Traceback: File "/a/path", line 3')
    assert str(refusal(errors.SessionBroken(died.describe()))) == "the worker was killed"
    ended = errors.SojournError("the zygote ended twice: Traceback\n  File ...")
    assert "File" not in str(refusal(ended))


def test_the_words_of_tensorflow_are_told() -> None:
    assert str(refusal(OpError())) == "no room for it"


def test_an_unexpected_error_goes_along_to_whoever_answers_and_writes_the_log() -> None:
    error = KeyError("x")
    told = refusal(error)
    assert told.__cause__ is error
    assert refusal(told) is told
    assert refusal(errors.InputError("x")).__cause__ is None
