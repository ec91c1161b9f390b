"""Opens, runs and closes as OpenTelemetry spans.

Where OpenTelemetry's SDK is installed it records them; elsewhere a stand-in of its interface does.
"""

from __future__ import annotations

import os
import sys
import types
from dataclasses import dataclass, field
from typing import Any

import pytest

import models
import sojourn

ADD = {"a": 1, "b": 2}


@dataclass
class _Span:
    name: str
    start_time: int
    done: list[_Span]
    attributes: dict[str, Any] = field(default_factory=dict)
    failed: bool = False
    end_time: int = 0

    def set_attribute(self, name: str, value: Any) -> None:
        self.attributes[name] = value

    def set_status(self, status: Any) -> None:
        self.failed = status == ("status", "error")

    def end(self, end_time: int) -> None:
        assert not self.end_time, "ended twice"
        self.end_time = end_time
        self.done.append(self)


class _Tracer:
    def __init__(self) -> None:
        self.done: list[_Span] = []

    def start_span(self, name: str, *, start_time: int) -> _Span:
        return _Span(name, start_time, self.done)


@pytest.fixture
def spans(monkeypatch):
    """Start tracing; gives a function for what was recorded: name, attributes, failed, span."""
    try:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    except ImportError:
        tracer = _Tracer()
        api = types.ModuleType("opentelemetry.trace")
        api.Status = lambda code: ("status", code)
        api.StatusCode = types.SimpleNamespace(ERROR="error")
        package = types.ModuleType("opentelemetry")
        package.trace = api
        monkeypatch.setitem(sys.modules, "opentelemetry", package)
        monkeypatch.setitem(sys.modules, "opentelemetry.trace", api)
        stop = sojourn.events.trace(tracer)
        yield lambda: [(s.name, s.attributes, s.failed, s) for s in tracer.done]
    else:
        exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        stop = sojourn.events.trace(provider.get_tracer("test"))
        yield lambda: [
            (s.name, dict(s.attributes), not s.status.is_unset, s)
            for s in exporter.get_finished_spans()
        ]
        provider.shutdown()
    stop()


@pytest.mark.usefixtures("zygote")
def test_open_run_and_close_are_spans_with_times_session_and_bytes(spans):
    with sojourn.open(models.adder, name="traced") as session:
        session.run(None, ADD)
        with pytest.raises(sojourn.InputError):
            session.run("nope", ADD)
    names = [name for name, *_ in spans()]
    assert names == ["sojourn.open", "sojourn.run", "sojourn.run", "sojourn.close"]
    assert [failed for _, _, failed, _ in spans()] == [False, False, True, False]
    opened, run, _, closed = (span for *_, span in spans())
    assert opened.start_time < opened.end_time <= run.start_time < run.end_time
    assert closed.start_time < closed.end_time
    assert all(attributes["sojourn.session"] == "traced" for _, attributes, *_ in spans())
    assert spans()[0][1]["code.file.path"] == __file__
    assert spans()[-1][1]["sojourn.returned_bytes"] == session.receipt.returned_bytes
    assert spans()[-1][1]["sojourn.clean"] is True


@pytest.mark.usefixtures("zygote")
def test_what_fails_is_marked_and_no_span_stays_open(spans):
    def build():
        raise ValueError("no")

    with pytest.raises((sojourn.ModelError, ValueError)):
        sojourn.open(build)
    with sojourn.open(models.adder) as session:
        os.kill(session.pid, 9)
        with pytest.raises(sojourn.SessionBroken):
            session.run(None, ADD)
    assert [(name, failed) for name, _, failed, _ in spans()] == [
        ("sojourn.open", True),
        ("sojourn.open", False),
        ("sojourn.run", True),
        ("sojourn.close", False),
    ]


def test_without_opentelemetry_it_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ImportError, match="opentelemetry-api"):
        sojourn.events.trace()
