"""What a server tells of its requests: numbers, spans, its log, and where it is to be found."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from sojourn.service import log_lines, records, tracing
from sojourn.service.access_log import AccessLog
from sojourn.service.http.messages import Request, Response
from sojourn.service.http.router import Role, Router
from sojourn.service.log_lines import LogLines
from sojourn.service.openapi import document
from sojourn.service.records import Record
from sojourn.service.reports import Reports
from sojourn.service.tracing import Tracing
from sojourn.session.metrics import text

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def infer(model: str = "double", **headers: str) -> Request:
    return Request(
        "POST", f"/v2/models/{model}/infer", headers=headers, body=b"12345", peer="127.0.0.1",
        parts={"name": model}, route="/v2/models/{name}/infer", request_id="id-1",
    )  # fmt: skip


# -- numbers ---------------------------------------------------------------------------------------


def samples(reports: Reports) -> dict[tuple[str, tuple[str, ...]], float]:
    families = text_string_to_metric_families(text(reports.counts.families()))
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


def test_requests_are_counted_by_model_protocol_and_code() -> None:
    reports = Reports({"double"}.__contains__)
    reports.of_http(infer(), Response(200, b"123"), 0.001)
    reports.of_http(infer(), Response(200, b"123"), 0.003)
    reports.of_http(infer(), Response(503), 0.001)
    predict = Request("POST", "/v1/models/double:predict", parts={"name": "double"})
    reports.of_http(predict, Response(), 0.001)
    reports.of_http(Request("GET", "/healthz"), Response(), 0.001)
    reports.of_grpc("/inference.GRPCInferenceService/ModelInfer", "double", 0, 0.5)
    reports.of_grpc("/tensorflow.serving.PredictionService/Predict", "double", 5, 0.5)
    found = samples(reports)
    name = "sojourn_server_requests_total"
    assert {key[1]: value for key, value in found.items() if key[0] == name} == {
        ("double", "kserve-rest", "200"): 2,
        ("double", "kserve-rest", "503"): 1,
        ("double", "tfserving-rest", "200"): 1,
        ("", "http", "200"): 1,
        ("double", "kserve-grpc", "0"): 1,
        ("double", "tfserving-grpc", "5"): 1,
    }
    assert found["sojourn_server_request_seconds_count", ("double", "kserve-rest")] == 3
    assert found["sojourn_server_request_seconds_sum", ("double", "kserve-rest")] == (
        pytest.approx(0.005)
    )
    assert found["sojourn_server_received_bytes_total", ("kserve-rest",)] == 15
    assert found["sojourn_server_sent_bytes_total", ("kserve-rest",)] == 6


def test_names_that_clients_make_up_do_not_become_series() -> None:
    reports = Reports({"double"}.__contains__)
    for number in range(100):
        reports.of_http(infer(f"made-up-{number}"), Response(404), 0.001)
    assert "made-up" not in text(reports.counts.families())
    assert samples(reports)["sojourn_server_requests_total", ("", "kserve-rest", "404")] == 100


# -- spans -----------------------------------------------------------------------------------------


def test_a_request_is_a_span_in_the_trace_of_its_client(tmp_path: Path) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    path = tmp_path / "access.jsonl"
    log = AccessLog(str(path))
    reports = Reports(bool, Tracing(provider.get_tracer("test")))
    reports.log = log
    try:
        reports.of_http(infer(traceparent=TRACEPARENT), Response(503), 0.25)
        reports.of_http(infer(traceparent="nonsense"), Response(400), 0.25)
        reports.of_grpc(
            "/inference.GRPCInferenceService/ModelInfer", "double", 14, 0.5,
            peer="ipv4:127.0.0.1:1", metadata={"traceparent": TRACEPARENT},
        )  # fmt: skip
    finally:
        log.close()
        provider.shutdown()
    first, second, third = exporter.get_finished_spans()
    assert first.name == "POST /v2/models/{name}/infer"
    assert f"{first.context.trace_id:032x}" == TRACEPARENT.split("-")[1]
    assert first.parent is not None
    assert f"{first.parent.span_id:016x}" == TRACEPARENT.split("-")[2]
    assert first.attributes is not None
    assert first.attributes["http.response.status_code"] == 503
    assert first.attributes["sojourn.request_id"] == "id-1"
    assert not first.status.is_ok
    assert first.end_time is not None
    assert first.start_time is not None
    assert first.end_time - first.start_time == pytest.approx(0.25e9, rel=0.01)
    assert second.parent is None
    assert second.status.is_ok, "a mistake of the client is none of the server"
    assert third.name == "inference.GRPCInferenceService/ModelInfer"
    assert not third.status.is_ok
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line.get("trace_id") for line in lines] == [
        TRACEPARENT.split("-")[1], None, TRACEPARENT.split("-")[1]
    ]  # fmt: skip


def test_tracing_without_its_packages_says_which_are_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ImportError, match="opentelemetry-sdk and opentelemetry-exporter-otlp"):
        tracing.tracer()


def test_spans_go_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    tracer, end = tracing.tracer()
    Reports(bool, Tracing(tracer)).of_http(infer(), Response(), 0.1)
    end()
    said = json.loads(capsys.readouterr().err)
    assert said["name"] == "POST /v2/models/{name}/infer"
    assert said["resource"]["attributes"]["service.name"] == "sojourn"


# -- the log ---------------------------------------------------------------------------------------


def test_the_last_lines_are_kept_and_those_who_follow_get_the_new_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        lines = LogLines()
        logger = logging.getLogger("sojourn.test_lines")
        logger.addHandler(lines)
        try:
            for number in range(3):
                logger.warning("line %d", number)
            assert lines.last(2) == ["line 1", "line 2"]
            assert lines.last(0) == []
            following = lines.follow(1)
            assert await anext(following) == "line 2"
            ahead = asyncio.ensure_future(anext(following))
            await asyncio.sleep(0)
            await asyncio.to_thread(logger.warning, "line 3")
            assert await ahead == "line 3"
            lines.end_following()
            assert [line async for line in following] == []
            late = asyncio.wait_for(anext(lines.follow(1)), 10)  # asked for while it drains
            assert await late == "line 3"
            assert [line async for line in lines.follow(0)] == []
        finally:
            logger.removeHandler(lines)

    asyncio.run(main())


def test_a_slow_reader_of_the_log_misses_lines_and_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_lines, "_MOST_BEHIND", 2)

    async def main() -> list[str]:
        lines = LogLines()
        following = lines.follow(0)
        waiting = asyncio.ensure_future(anext(following))
        await asyncio.sleep(0)
        for number in range(5):
            lines.handle(logging.makeLogRecord({"msg": f"line {number}"}))
        first = await waiting
        return [first, await anext(following)]

    assert asyncio.run(main()) == ["line 3", "line 4"]


# -- records ---------------------------------------------------------------------------------------


def record(pid: int, started: float = 1.0) -> Record:
    return Record(pid, "http://127.0.0.1:8501", None, None, started, "/models")


@pytest.mark.usefixtures("own_servers")
def test_a_server_is_found_while_it_runs_and_leaves_no_file() -> None:
    ours = record(os.getpid())
    assert records.running() == []
    withdraw = records.publish(ours)
    try:
        assert records.running() == [ours]
    finally:
        withdraw()
        withdraw()
    assert records.running() == []


@pytest.mark.usefixtures("own_servers")
def test_a_record_ends_with_its_process_and_a_fork_has_none() -> None:
    code = (
        "import os, sys, time\n"
        "from sojourn.service.records import Record, publish\n"
        "publish(Record(os.getpid(), 'http://127.0.0.1:1', None, None, 1.0, ''))\n"
        "child = os.fork()\n"
        "if child: print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert [one.pid for one in records.running()] == [process.pid]
        process.kill()
        process.wait()
        assert records.running() == []


@pytest.mark.usefixtures("own_servers")
def test_a_file_that_only_looks_like_a_record_is_not_believed() -> None:
    for content in (b"", b"{}", b"\xff", json.dumps({"pid": "x"}).encode()):
        fd = os.memfd_create("sojourn-server")
        os.write(fd, content)
        try:
            assert records.running() == []
        finally:
            os.close(fd)


# -- the OpenAPI document --------------------------------------------------------------------------


async def nothing(request: Request) -> Response:
    return Response()


def test_the_document_has_every_route_with_its_parameters_and_its_role() -> None:
    router = Router()
    router.add("GET", "/healthz", nothing, role=Role.ANYBODY, summary="Is it alive?")
    router.add("GET", "/healthz/", nothing)
    router.add("POST", "/v1/models/{name}/versions/{version}:predict", nothing)
    router.add("GET", "/v1/models/{name}/versions/{version}", nothing)
    router.add("POST", "/admin/models/{name}/load", nothing, role=Role.ADMIN)
    made = document(router)
    assert made["openapi"].startswith("3.1")
    assert len(made["paths"]) == 5
    alive = made["paths"]["/healthz"]["get"]
    assert alive["summary"] == "Is it alive?"
    assert "security" not in alive
    predict = made["paths"]["/v1/models/{name}/versions/{version}:predict"]["post"]
    assert [one["name"] for one in predict["parameters"]] == ["name", "version"]
    assert predict["security"] == [{"token": []}]
    assert predict["tags"] == ["TensorFlow Serving"]
    assert made["paths"]["/admin/models/{name}/load"]["post"]["x-role"] == "admin"
    operations = [one for methods in made["paths"].values() for one in methods.values()]
    assert len({one["operationId"] for one in operations}) == len(router.routes)
    json.dumps(made)
