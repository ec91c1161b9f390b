"""What a worker prints arrives as it was written, but for the chatter of frameworks."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

import models
import sojourn
from sojourn.process.output import Stream

CHATTER = b"2026-01-01 00:00:00.000000: I tensorflow/core/platform/cpu_feature_guard.cc:1] hello\n"


@pytest.fixture
def errors() -> Iterator[Stream]:
    stream = Stream("errors", filters_chatter=True)
    yield stream
    stream.close()


def test_empty_lines_are_shown(errors):
    os.write(errors.fd, b"one\n\n" + CHATTER + b"two\n \n")
    assert errors.take() == "one\n\ntwo\n \n"


def test_a_character_that_is_written_in_parts_arrives_whole(errors):
    text = "né 漢字\n"
    shown = ""
    for byte in text.encode():
        os.write(errors.fd, bytes([byte]))
        shown += errors.take()
    assert shown == text


def test_chatter_that_is_written_in_parts_is_not_shown(errors):
    shown = ""
    for part in (b"before\n" + CHATTER[:60], CHATTER[60:70], CHATTER[70:] + b"after"):
        os.write(errors.fd, part)
        shown += errors.take()
    assert shown == "before\nafter"


def test_a_line_that_is_not_finished_is_shown_at_once(errors):
    os.write(errors.fd, b"\r 10 %")
    assert errors.take() == "\r 10 %"
    os.write(errors.fd, b"\r 20 %")
    assert errors.take() == "\r 20 %"


def test_a_stream_that_is_closed_while_it_is_read_has_no_more_words():
    stream = Stream("errors", filters_chatter=False)
    os.write(stream.fd, b"words")
    problems = []

    def read():
        try:
            while stream.tail():
                stream.take()
        except BaseException as error:
            problems.append(error)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    stream.close()
    for reader in readers:
        reader.join(60)
    assert problems == []
    assert (stream.tail(), stream.take()) == ("", "")


@pytest.mark.usefixtures("zygote")
def test_how_a_worker_died_can_still_be_asked_by_who_is_late():
    session = sojourn.open(models.adder)
    backend = session._stay.backend
    os.kill(session.pid, signal.SIGKILL)
    session.close()
    assert "SIGKILL" in str(backend.death().how)
