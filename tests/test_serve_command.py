"""`sojourn serve` and the commands that ask a running server, with real processes."""

from __future__ import annotations

import contextlib
import json
import math
import os
import pty
import re
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import click
import grpc
import numpy as np
import pytest

import served_models
from clients import remaining
from faults.tools import wait_until
from served import SOJOURN, Served, called, data_of, models, serving
from sojourn.cli import predict, ps, server_client
from sojourn.cli.server_client import ServerError
from sojourn.service import records

pytestmark = pytest.mark.usefixtures("own_servers")
ROW = "[[1, 1, 1, 1]]"
TOKEN = "0123456789abcdef"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    models(tmp_path / "models")
    return tmp_path


def test_a_server_is_found_asked_and_stopped_by_commands(folder: Path) -> None:
    with serving(folder, str(folder / "models")) as server:
        [listed] = data_of("ps")["servers"]
        assert listed["url"] == server.url
        assert listed["pid"] == server.process.pid
        assert [one["name"] for one in listed["models"]] == ["thrice", "times"]
        assert not any(one["is_loaded"] for one in listed["models"])

        assert data_of("predict", "times", ROW) == {"outputs": {"y": [[8.0]]}}
        [loaded] = data_of("load", "thrice")["models"]
        assert loaded["is_loaded"]
        assert loaded["memory_bytes"] > 0
        [receipt] = data_of("unload", "times")["receipts"]
        assert receipt["clean"]
        assert receipt["returned_bytes"] == receipt["held_bytes"] > 0
        assert called("predict", "times", ROW).exit_code == 1
        for pinned in ("pin", "unpin"):
            server.client().ask("POST", f"/admin/models/thrice/{pinned}")
            [shown] = data_of("ps")["servers"]
            assert shown["models"][0]["pinned"] == (pinned == "pin")
            assert (shown["models"][0]["leaves_in_seconds"] is None) == (pinned == "pin")
        assert data_of("unload", "thrice", "--keep-serving") == {"evicted": True}
        assert data_of("predict", "thrice", ROW) == {"outputs": {"y": [[12.0]]}}

        lines = called("logs").output.splitlines()
        assert any(re.search(r"model.unloaded times: .* clean=True", one) for one in lines), lines
        [stopped] = data_of("stop")["stopped"]
        assert stopped == {"url": server.url, "pid": server.process.pid, "ended": True}
        assert server.process.wait(1) == 0
        assert remaining(server.process.pid) == []
    assert not (folder / "ready.json").exists()
    assert records.running() == []
    assert called("ps").exit_code == 1


def test_what_commands_print_for_people(folder: Path) -> None:
    with serving(folder, str(folder / "models"), "--memory=1GiB") as server:
        assert called("predict", "times", ROW).output == "y float32 1x1\n[[8.]]\n"
        head, titles, thrice, times = called("ps").output.splitlines()
        assert head.startswith(f"{server.url}  pid {server.process.pid}, up ")
        assert head.endswith(" of 1.0 GiB")
        assert titles.split()[:6] == ["model", "version", "state", "holds", "copies", "under"]
        assert thrice.split() == ["thrice", "3", "on", "demand", "-", "0", "0", "-"]
        assert times.split()[:3] == ["times", "2", "available"]
        assert called("load", "thrice").output.startswith("thrice, version 3: available, ")
        assert called("unload", "thrice").output.startswith("closed in ")
        assert called("ps").output.splitlines()[2].split()[:3] == ["thrice", "3", "unloaded"]
        assert called("stop").output == f"{server.url} has ended\n"


def test_predict_takes_json_arrays_files_and_standard_input(folder: Path) -> None:
    np.save(folder / "row.npy", np.ones((2, 4), np.float32))
    (folder / "row.json").write_text(json.dumps({"x": [[1, 2, 3, 4]]}))
    kserve = {
        "inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [[1, 1, 1, 1]]}]
    }
    with serving(folder, str(folder / "models")):
        for words, given, expected in (
            ([ROW], None, [[8.0]]),
            (['{"x": [[1, 1, 1, 1]]}'], None, [[8.0]]),
            ([f"x={ROW}"], None, [[8.0]]),
            ([str(folder / "row.npy")], None, [[8.0], [8.0]]),
            ([f"x={folder / 'row.npy'}"], None, [[8.0], [8.0]]),
            ([str(folder / "row.json")], None, [[20.0]]),
            ([], ROW, [[8.0]]),
            (["-"], ROW, [[8.0]]),
            (["--version=2", ROW], None, [[8.0]]),
        ):
            assert data_of("predict", "times", *words, input=given)["outputs"]["y"] == expected
        sent = data_of("predict", "times", json.dumps(kserve))
        assert sent["outputs"][0]["data"] == [8.0]
        rows = json.dumps({"instances": [[1, 1, 1, 1]]})
        assert data_of("predict", "times", rows) == {"predictions": [[8.0]]}
        for words, code, why in (
            (["times", "nonsense"], 2, "Data must be JSON"),
            (["times", "nowhere.npy"], 2, "No such file"),
            (["times", '{"z": [1]}'], 1, "input 'x' is missing"),
            (["times", "[[1, 2]]"], 1, ""),
            (["times", '[["a", 1, 1, 1]]'], 2, "input 'x'"),
            (["times", "[[null, 1, 1, 1]]"], 2, "input 'x'"),
            (["nix", ROW], 1, "Servable not found"),
            (["times", "--version=9", ROW], 1, "Servable not found"),
            (["times", ROW, ROW], 2, "name=value"),
        ):
            result = called("predict", *words)
            assert (result.exit_code, why in result.output) == (code, True), result.output
            assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("value", "datatype", "sent"),
    [
        ([None], "FP32", None),
        ([1.7], "INT32", None),
        ([True], "INT32", None),
        ([1e99], "FP32", None),
        (["no"], "BOOL", None),
        ([None], "BYTES", None),
        ([1], "BYTES", None),
        ([None], "COMPLEX64", None),
        ([[1], [2, 3]], "FP32", None),
        ([{"b64": "AAH/"}, "text"], "BYTES", [b"\0\1\xff", b"text"]),
        ([2**62 + 1], "INT64", [2**62 + 1]),
        ([1, 0.5, math.inf], "FP32", [1.0, 0.5, math.inf]),
        (3, "FP64", 3.0),
    ],
)
def test_predict_sends_what_it_was_given_or_says_why_not(
    value: object, datatype: str, sent: object
) -> None:
    spec = {"name": "x", "datatype": datatype}
    if sent is None:
        with pytest.raises(click.UsageError, match="input 'x': "):
            predict._array("x", value, spec)
    else:
        assert predict._array("x", value, spec).tolist() == sent


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "EOF"),
        (b"PK\3\4 an archive of several", "magic string"),
        (b"\x93NUMPY\1\0\x10\0{'descr': ('<f8',\n", "array in a .npy file"),
    ],
)
def test_a_damaged_array_is_told(content: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    result = called("predict", "times", str(tmp_path / "x.npy"), "--url=http://127.0.0.1:1")
    assert (result.exit_code, why in result.output) == (2, True), result.output


def test_an_input_that_is_given_twice_is_told() -> None:
    result = called("predict", "times", "x=[1]", "x=[2]", "--url=http://127.0.0.1:1")
    assert (result.exit_code, "given twice" in result.output) == (2, True), result.output


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:http", "http://127.0.0.1:99999", "http://[::1", "http://a b:80"]
)
def test_what_is_no_url_is_told(url: str) -> None:
    result = called("ps", f"--url={url}")
    assert (result.exit_code, "--url must be like" in result.output) == (2, True), result.output


@pytest.mark.parametrize("content", ["caf\xe9-0123456789abcdef", "0123456789\x1babcdef"])
def test_a_token_that_no_header_can_carry_is_told(content: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(content, "latin-1")
    for words, environment in (
        ([f"--token-file={tmp_path / 'token'}"], {}),
        ([], {"SOJOURN_TOKEN": content}),
    ):
        result = called("ps", "--url=http://127.0.0.1:1", *words, env=environment)
        assert (result.exit_code, "ASCII" in result.output) == (2, True), result.output


def test_sigterm_answers_what_is_under_way_and_leaves_nothing(folder: Path) -> None:
    with serving(folder, str(folder / "models")) as server:
        answers: list[object] = []
        first = threading.Event()

        def ask() -> None:
            try:
                while True:
                    answers.append(server.infer())
                    first.set()
            except Exception as error:
                answers.append(error)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert first.wait(60)
        assert server.end(signal.SIGTERM) == 0
        for thread in threads:
            thread.join()
        good = [answer for answer in answers if answer == [8.0]]
        refused = [str(answer) for answer in answers if answer != [8.0]]
        assert len(good) + len(refused) == len(answers)
        assert len(refused) == len(threads)
        assert all("does not answer" in why or "stop" in why for why in refused), refused
        assert remaining(server.process.pid) == []
        assert "SIGTERM: answering what is under way" in server.log.read_text()


def test_both_doors_are_open_once_it_is_ready(folder: Path) -> None:
    with serving(folder, str(folder / "models"), "--grpc=127.0.0.1:0") as server:
        with grpc.insecure_channel(server.facts["grpc"]) as channel:
            answer = channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=30)
        assert answer == b"\x08\x01", "SERVING"
        assert data_of("ps")["servers"][0]["grpc"] == server.facts["grpc"]
        assert server.end() == 0
        assert remaining(server.process.pid) == []


def test_a_second_signal_hurries_a_server_that_waits_for_a_client(folder: Path) -> None:
    rows = 2**20
    head = json.dumps({
        "inputs": [{"name": "x", "shape": [rows, 4], "datatype": "FP32",
                    "parameters": {"binary_data_size": rows * 16}}],
        "parameters": {"binary_data_output": True},
    }).encode()  # fmt: skip
    with serving(folder, str(folder / "models"), "--grace=600") as server:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            host, _, port = server.facts["http"].rpartition(":")
            client.connect((host, int(port)))
            client.sendall(
                b"POST /v2/models/times/infer HTTP/1.1\r\nhost: x\r\n"
                b"inference-header-content-length: %d\r\ncontent-length: %d\r\n\r\n"
                % (len(head), len(head) + rows * 16)
                + head + np.ones((rows, 4), np.float32).tobytes()
            )  # fmt: skip
            assert client.recv(12) == b"HTTP/1.1 200"  # and it does not read on
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: "answering what is under way" in server.log.read_text())
            with pytest.raises(subprocess.TimeoutExpired):
                server.process.wait(0.5)
            while server.process.poll() is None:
                server.process.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    server.process.wait(2)
        assert server.process.returncode == 0
        assert remaining(server.process.pid) == []
        assert "Traceback" not in server.log.read_text()


def test_ctrl_c_ends_it_as_well(folder: Path) -> None:
    with serving(folder, str(folder / "models")) as server:
        assert server.infer() == [8.0]
        assert server.end(signal.SIGINT) == 0
        assert remaining(server.process.pid) == []
        assert "Traceback" not in server.log.read_text()


def test_a_server_that_is_killed_leaves_nothing(folder: Path) -> None:
    with serving(folder, str(folder / "models")) as server:
        assert server.infer() == [8.0]
        assert server.infer("thrice") == [12.0]
        server.end(signal.SIGKILL)
        assert remaining(server.process.pid) == []
        assert records.running() == []


def test_several_servers_are_told_apart_by_their_url(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    models(other / "models")
    with (
        serving(folder, str(folder / "models")) as one,
        serving(other, str(other / "models")) as two,
    ):
        assert {listed["url"] for listed in data_of("ps")["servers"]} == {one.url, two.url}
        result = called("predict", "times", ROW)
        assert result.exit_code == 2
        assert one.url in result.output
        assert two.url in result.output
        assert data_of("predict", "times", ROW, "--url", two.url)["outputs"]["y"] == [[8.0]]
        assert data_of("ps", env={"SOJOURN_URL": one.url})["servers"][0]["pid"] == one.process.pid
        [stopped] = data_of("stop", "--url", one.url)["stopped"]
        assert stopped == {"url": one.url, "pid": one.process.pid, "ended": True}
        assert one.process.wait(60) == 0
        [stopped] = data_of("stop", "--all")["stopped"]
        assert stopped["ended"]


def test_a_server_that_is_stuck_is_listed_and_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ps, "ANSWER_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        record = records.Record(1, url, None, url, time.time(), "/")
        monkeypatch.setattr(ps, "running", lambda: [record])
        [listed] = data_of("ps")["servers"]
        assert listed["problem"] == f"{url} does not answer: timed out"


def test_a_server_that_answers_grpc_only_is_listed_named_and_told_why_it_cannot_be_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = records.Record(1, "", "127.0.0.1:2", None, time.time(), "/")
    for module in (ps, server_client):
        monkeypatch.setattr(module, "running", lambda: [record])
    [listed] = data_of("ps")["servers"]
    assert listed["url"] == "grpc://127.0.0.1:2"
    why = "HTTP, by which commands ask, of grpc://127.0.0.1:2 is off."
    assert listed["problem"] == why
    for words in (["predict", "times", ROW], ["load", "times"], ["logs", "--url", "127.0.0.1:2"]):
        result = called(*words)
        assert (result.exit_code, why in result.output) == (1, True), result.output


@pytest.mark.parametrize(
    ("named", "is_here"),
    [
        ("https://127.0.0.1:1", True),
        ("127.0.0.1:1", True),
        ("localhost:1", True),
        ("https://localhost:2", True),  # its admin port
        ("http://127.0.0.1:1", False),  # it speaks no such thing
        ("https://127.0.0.1:3", False),
        ("https://elsewhere:1", False),
    ],
)
def test_a_server_that_is_named_by_its_url_is_asked_as_it_says_itself(
    monkeypatch: pytest.MonkeyPatch, named: str, is_here: bool
) -> None:
    record = records.Record(
        1, "https://127.0.0.1:1", None, "https://127.0.0.1:2", 0.0, "/", "cert.pem"
    )
    monkeypatch.setattr(server_client, "running", lambda: [record, record])
    client = server_client.Wanted(named, None, None, None, None).client(admin=True)
    expected = (record.admin_url, "cert.pem") if is_here else (client.url, None)
    assert (client.url, client.pinned) == expected


def test_following_logs_has_no_timeout_and_a_killed_server_is_an_error_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timeouts = []
    connected = server_client.Client._connected

    def seen(client: server_client.Client) -> Any:
        timeouts.append(client.timeout)
        return connected(client)

    def answer(door: socket.socket) -> None:
        connection, _ = door.accept()
        with connection:
            connection.recv(2**16)
            head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            connection.sendall(head + b"6\r\nfirst\n\r\n20\r\ncut")

    monkeypatch.setattr(server_client.Client, "_connected", seen)
    with socket.create_server(("127.0.0.1", 0)) as door:
        server = threading.Thread(target=answer, args=(door,))
        server.start()
        result = called("logs", "-f", "--url", f"http://127.0.0.1:{door.getsockname()[1]}")
        server.join()
    assert timeouts == [None]
    assert result.exit_code == 1
    assert result.output.startswith("first\n")
    assert "broke off" in result.output
    assert isinstance(result.exception, SystemExit)


def test_logs_are_followed_until_the_server_ends(folder: Path) -> None:
    with serving(folder, str(folder / "models")) as server:
        following = subprocess.Popen(
            [*SOJOURN, "logs", "--follow", "--url", server.url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert following.stdout is not None
        assert "serving 2 models" in following.stdout.readline()
        server.infer()
        assert "session.ready times@2" in following.stdout.readline()
        assert server.end() == 0, "those who follow the log do not hold it up"
        assert following.wait(60) == 0
        following.communicate()


# -- reading the configuration again ---------------------------------------------------------------


def test_sighup_changes_models_and_tokens_and_says_what_needs_a_restart(folder: Path) -> None:
    file, tokens = folder / "serve.toml", folder / "tokens"
    file.write_text('tokens = "tokens"\nmemory = "1GiB"\n[models.times]\npath = "models/times"\n')
    tokens.write_text(f"admin old-{TOKEN}\n")
    tokens.chmod(0o600)
    with serving(folder, f"--config={file}") as server:
        old, new = ({"token": f"{when}-{TOKEN}"} for when in ("old", "new"))
        assert server.infer(**old) == [8.0]
        file.write_text(
            'tokens = "tokens"\nmemory = "2GiB"\n[models.thrice]\npath = "models/thrice"\n'
        )
        tokens.write_text(f"admin new-{TOKEN}\n")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: answers(server, "thrice", **new) == [12.0])
        for model, shown in (("thrice", old), ("times", new)):
            with pytest.raises(ServerError):
                server.infer(model, **shown)
        file.write_text("memory = nonsense\n")
        assert refused_reload(server, **new).startswith(f"nothing was changed: {file}:1: ")
        file.write_text('tokens = "tokens"\npaths = ["not-there"]\n')
        told = refused_reload(server, **new)
        assert told.startswith("nothing was changed: ")
        assert "not-there" in told
        assert server.infer("thrice", **new) == [12.0]
        log = server.log.read_text()
        assert "reload: model thrice: new" in log
        assert "reload: model times: removed" in log
        assert "memory: '2GiB' instead of '1GiB'; this takes a restart" in log
        assert "reload: the tokens were read again" in log
        assert re.search(r"model.unloaded times: .* clean=True", log)
        assert server.end() == 0
        assert remaining(server.process.pid) == []


def test_a_model_that_appears_in_the_folder_is_served(folder: Path) -> None:
    with serving(folder, str(folder / "models"), "--watch=0.05") as server:
        served_models.write_version(folder / "models" / "five", 5)
        wait_until(lambda: answers(server, "five") == [20.0])
        assert server.end() == 0


def refused_reload(server: Served, **more: Any) -> str:
    """Why the configuration cannot be used."""
    with pytest.raises(ServerError) as refused:
        server.client(**more).ask("POST", "/admin/reload")
    assert refused.value.status == 400
    return refused.value.message


def answers(server: Served, model: str, **more: Any) -> Any:
    try:
        return server.infer(model, **more)
    except ServerError:
        return None


# -- starting --------------------------------------------------------------------------------------


def test_check_says_what_it_would_do_or_what_is_wrong(folder: Path) -> None:
    result = called("serve", str(folder / "models"), "--check", "--memory=1GiB")
    assert result.exit_code == 0
    assert "memory = 1GiB" in result.output
    assert (
        f"model times: an ONNX model at {folder / 'models' / 'times'}, version 2" in result.output
    )
    result = called("serve", str(folder / "models"), "--check", "--tokens=/nowhere", "--json")
    assert result.exit_code == 1
    assert "/nowhere" in json.loads(result.stdout)["problems"][0]
    result = called("serve", str(folder / "models"), "--check", "--http=0.0.0.0:8501", "--json")
    assert "anybody who reaches 0.0.0.0:8501" in json.loads(result.stdout)["warnings"][0]


def test_a_wrong_configuration_is_told_with_its_line_and_is_a_wrong_call(folder: Path) -> None:
    file = folder / "serve.toml"
    file.write_text('memory = "1GiB"\nmax_conections = 3\n[models.times]\npath = "x"\ncopies = 0\n')
    result = called("serve", "--config", str(file))
    assert result.exit_code == 2
    assert f"{file}:2: no such setting: 'max_conections'; did you mean" in result.output
    assert f"{file}:5: " in result.output
    told = called("serve", "--config", str(file), "--check", "--json")
    assert told.exit_code == 2
    assert [one.split(":")[1] for one in json.loads(told.stdout)["problems"]] == ["2", "5"]
    result = called("serve")
    assert result.exit_code == 2
    assert "Name a folder of models" in result.output
    result = called("serve", str(folder / "models"), env={"SOJOURN_SERVE_COPIES": "many"})
    assert result.exit_code == 2
    assert "SOJOURN_SERVE_COPIES" in result.output


def test_a_port_that_is_taken_is_said_so(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = subprocess.run(
            [*SOJOURN, "serve", str(folder / "models"), "--grpc=",
             f"--http=127.0.0.1:{taken.getsockname()[1]}"],
            capture_output=True, text=True,
        )  # fmt: skip
    assert done.returncode == 1
    assert "address already in use" in done.stderr.lower()
    assert "Traceback" not in done.stderr


def test_flags_win_over_the_environment_and_that_over_the_file(folder: Path) -> None:
    file = folder / "serve.toml"
    file.write_text(f'paths = ["{folder / "models"}"]\nmemory = "1GiB"\nspares = 0\n')
    environment = {"SOJOURN_SERVE_MEMORY": "2GiB", "SOJOURN_SERVE_CONFIG": str(file)}
    with serving(folder, **environment) as server:
        assert data_of("ps")["servers"][0]["memory"]["limit_bytes"] == 2 * 2**30
        server.end()
    with serving(folder, "--memory=3GiB", **environment):
        assert data_of("ps")["servers"][0]["memory"]["limit_bytes"] == 3 * 2**30


def test_in_a_terminal_it_shows_what_it_loads_and_can_be_ended_meanwhile(folder: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*SOJOURN, "serve", str(folder / "models"), "--load=eager", "--http=127.0.0.1:0",
         "--grpc="],
        stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    try:
        while b"loading t" not in shown:
            shown += os.read(ours, 65536)
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(OSError):  # it has ended
            while piece := os.read(ours, 65536):
                shown += piece
        assert process.wait(60) == 0
    finally:
        os.close(ours)
        process.kill()
        process.wait()
    assert b"Traceback" not in shown
    assert remaining(process.pid) == []


def test_systemd_is_told_when_it_answers_and_when_it_stops(folder: Path) -> None:
    path = str(folder / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(path)
        with serving(folder, str(folder / "models"), NOTIFY_SOCKET=path) as server:
            assert listening.recv(100) == b"READY=1"
            server.end()
            assert listening.recv(100) == b"STOPPING=1"


def test_every_flag_has_its_variable_in_its_help() -> None:
    from sojourn.service.settings import SETTINGS

    text = " ".join(called("serve", "--help").output.split())
    for setting in SETTINGS:
        if setting.name != "paths":
            assert setting.flag in text
            assert f"[{setting.variable}" in text


def test_tokens_of_the_environment_do_not_reach_the_workers(folder: Path) -> None:
    token = f"admin-{TOKEN}"
    with serving(folder, str(folder / "models"), SOJOURN_SERVE_ADMIN_TOKENS=token) as server:
        assert called("predict", "times", ROW).exit_code == 1
        environment = {"SOJOURN_TOKEN": token}
        assert data_of("predict", "times", ROW, env=environment)["outputs"]["y"] == [[8.0]]
        assert called("ps").exit_code == 0, "it is there, and says that it wants a token"
        assert "SOJOURN_TOKEN" in called("ps").output
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
        for child in children.read_text().split():
            with open(f"/proc/{child}/environ", "rb") as file:
                assert token.encode() not in file.read()
        assert token not in server.log.read_text()
        assert os.environ.get("SOJOURN_SERVE_ADMIN_TOKENS") is None
