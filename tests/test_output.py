"""What a worker prints arrives as it was written, but for the chatter of frameworks."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

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


def test_how_c_plus_plus_ends_is_told_by_the_error_for_it_alone(errors):
    os.write(errors.fd, b"terminate called without an active exception\n")
    assert errors.take() == ""
    assert errors.tail() == "terminate called without an active exception"


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


# -- showing it --------------------------------------------------------------------------------


def speaking() -> Any:
    """A step that changes a variable and prints what many terminals cannot show."""
    import tensorflow as tf

    v1 = tf.compat.v1
    count = v1.get_variable("count", [], initializer=v1.zeros_initializer())
    with tf.control_dependencies([tf.print("━ né")]):
        following = v1.assign_add(count, 1.0)
    return {}, {"next": following, "count": count}


class Failing(io.StringIO):
    """What somebody has put in the place of a stream."""

    def write(self, text: str) -> int:
        raise RuntimeError("no")


def closed_stream() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.usefixtures("zygote")
@pytest.mark.parametrize("stream", [Failing, closed_stream, lambda: None, lambda: 1])
def test_output_that_cannot_be_shown_changes_nothing_about_a_step(monkeypatch, stream):
    with sojourn.open(speaking) as session:
        monkeypatch.setattr(sys, "stderr", stream())
        assert session.run("next") == 1
        assert session.run("next") == 2
        monkeypatch.undo()
        assert session.run("count") == 2


@pytest.mark.usefixtures("zygote")
def test_what_an_encoding_lacks_is_shown_in_another_way(monkeypatch):
    shown = io.BytesIO()
    with sojourn.open(speaking) as session:
        monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(shown, encoding="latin-1"))
        assert session.run("next") == 1
        assert shown.getvalue() == "\\u2501 né\n".encode("latin-1")
        monkeypatch.undo()


@pytest.mark.usefixtures("zygote")
def test_a_broken_pipe_hides_neither_a_result_nor_the_end_of_a_worker(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)

    class Pipe(io.StringIO):
        def write(self, text: str) -> int:
            return os.write(writer, text.encode())

    with sojourn.open(speaking) as session:
        monkeypatch.setattr(sys, "stderr", Pipe())
        assert session.run("next") == 1
        os.kill(session.pid, signal.SIGABRT)
        with pytest.raises(sojourn.SessionBroken):
            while True:
                session.run("next")
        monkeypatch.undo()
    os.close(writer)
