"""A server lets nobody do more than they may, says nothing of its insides, and reads no file for
those who ask."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

import sojourn
import web  # noqa: F401 - what libuv makes once is there before anybody looks
from faults.tools import wait_until
from served import models
from sojourn.cli.server_client import Client, ServerError
from sojourn.service.addresses import parsed
from sojourn.service.catalogue import Catalogue
from sojourn.service.http.limits import Limits
from sojourn.service.http.router import Role, Route
from sojourn.service.operating import Operation
from sojourn.service.page.guard import SECRET_HEADER
from sojourn.service.server import Server
from sojourn.service.tls import Tls
from sojourn.service.tokens import Tokens

INFER, ADMIN = "infer-0123456789abcdef", "admin-0123456789abcdef"
TOKENS = Tokens([(Role.INFER, INFER), (Role.ADMIN, ADMIN)])
HEALTH = "/grpc.health.v1.Health/Check"


@pytest.fixture
def pool() -> Iterator[sojourn.Pool]:
    with sojourn.Pool() as made:
        yield made


def server_of(pool: sojourn.Pool, folder: Path, **more: Any) -> Server:
    entries = {name: str(folder / name) for name in ("times", "thrice")}
    if not folder.exists():
        models(folder)
    return Server(Catalogue(pool, entries), **{"http": "127.0.0.1:0", **more})


def asked(
    server: Server, method: str, path: str, body: bytes = b"", *, door: str = "http", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(*parsed(server.addresses[door]), timeout=60)
    if server.operating.page is not None:  # else only its own scripts may ask for some of it
        headers = {SECRET_HEADER: server.operating.page.guard.secret, **headers}
    try:
        connection.request(
            method, path, body or None, {key.replace("_", "-"): v for key, v in headers.items()}
        )
        response = connection.getresponse()
        # One without a length may go on for ever: its beginning will do.
        body = response.read() if response.length is not None else response.read1(65536)
        return response.status, dict(response.headers), body
    finally:
        connection.close()


def path_of(route: Route, part: str = "nix") -> str:
    return re.sub(r"\{\w+\}", part, route.pattern)


# -- roles -----------------------------------------------------------------------------------------


def test_every_route_is_for_its_role_and_no_other(pool: sojourn.Pool, tmp_path: Path) -> None:
    with server_of(pool, tmp_path / "m", operation=Operation(tokens=TOKENS)) as server:
        routes = server.router.routes
        assert {route.role for route in routes} == set(Role)
        for route in routes:
            shown = {}
            for who, headers in (
                (Role.ANYBODY, {}),
                (Role.INFER, {"authorization": f"Bearer {INFER}"}),
                (Role.ADMIN, {"authorization": f"Bearer {ADMIN}"}),
            ):
                status, answered, _ = asked(server, route.method, path_of(route), **headers)
                shown[who] = status
                if status == 401:
                    assert answered["www-authenticate"] == "Bearer"
            for who, status in shown.items():
                if who.value >= route.role.value:
                    assert status not in (401, 403), (route, who)
                else:
                    assert status == (401 if who is Role.ANYBODY else 403), (route, who)


def test_only_what_probes_and_browsers_need_is_for_anybody(
    pool: sojourn.Pool, tmp_path: Path
) -> None:
    server = server_of(pool, tmp_path / "m")
    for route in server.router.routes:
        if route.role is Role.ANYBODY:
            assert route.method == "GET", route
            assert "{" not in route.pattern or route.pattern.startswith("/page/"), route
        if re.search(r"load|admin|repository/models", route.pattern):
            assert route.role is Role.ADMIN, route


@pytest.mark.parametrize("admin", [False, "127.0.0.1:0"])
def test_what_is_for_admins_can_be_off_or_at_an_address_of_its_own(
    pool: sojourn.Pool, tmp_path: Path, admin: bool | str
) -> None:
    operation = Operation(tokens=TOKENS, admin=admin)
    with server_of(pool, tmp_path / "m", operation=operation) as server:
        token = {"authorization": f"Bearer {ADMIN}"}
        assert all(route.role is not Role.ADMIN for route in server.router.routes)
        assert asked(server, "GET", "/admin/status", **token)[0] == 404
        assert asked(server, "POST", "/v2/repository/models/times/load", **token)[0] == 404
        document = json.loads(asked(server, "GET", "/openapi.json")[2])
        assert not any(path.startswith("/admin") for path in document["paths"])
        if admin is False:
            assert set(server.addresses) == {"http"}
            return
        assert asked(server, "GET", "/admin/status", door="admin", **token)[0] == 200
        assert asked(server, "GET", "/admin/status", door="admin")[0] == 401
        assert asked(server, "GET", "/healthz", door="admin")[0] == 200
        assert asked(server, "GET", "/v2/models/times", door="admin", **token)[0] == 404


# -- what a request may reach ----------------------------------------------------------------------

_opened: list[str] | None = None


def _note(event: str, args: tuple[Any, ...]) -> None:
    if _opened is not None and event in _TOUCHING:
        _opened.extend(str(arg) for arg in args)


_TOUCHING = {"open", "os.listdir", "os.scandir", "os.stat", "os.remove", "os.mkdir", "os.rename",
             "import", "subprocess.Popen", "os.exec", "glob.glob", "shutil.rmtree"}  # fmt: skip
sys.addaudithook(_note)


def test_no_name_in_a_request_becomes_a_path(pool: sojourn.Pool, tmp_path: Path) -> None:
    global _opened
    secret = tmp_path / "outside-secret"
    models(secret)
    names = [
        "..%2Foutside-secret%2Ftimes",
        "%2e%2e/outside-secret",
        "%2Fetc%2Foutside-secret",
        "times%2F..%2F..%2Foutside-secret%2Ftimes",
        "outside-secret%00",
        "file:%2F%2Foutside-secret",
        "times@outside-secret",
    ]
    with server_of(pool, tmp_path / "m", operation=Operation(tokens=TOKENS)) as server:
        _opened = []
        try:
            for route in server.router.routes:
                if "{" not in route.pattern:
                    continue
                for name in names:
                    for body in (b"", json.dumps({"path": str(secret / "times")}).encode()):
                        status, _, said = asked(
                            server, route.method, path_of(route, name), body,
                            authorization=f"Bearer {ADMIN}",
                        )  # fmt: skip
                        is_known = status not in (400, 404, 409, 501)
                        assert not is_known or b'"ready":false' in said, (route, name, said)
        finally:
            touched, _opened = _opened, None
        assert [one for one in touched if "outside-secret" in one] == []


def test_no_answer_tells_of_the_servers_insides(pool: sojourn.Pool, tmp_path: Path) -> None:
    bodies = (
        b"{", b"\xff\xfe", b"[" * 5000, b"null", b"[]", b'{"inputs": 1}', b'{"instances": {}}',
        b'{"version": "x"}', b'{"version": -1}', b'{"version": 99999999999999999999}',
        b'{"inputs":[{"name":"x","shape":[-1],"datatype":"FP32","data":[1]}]}',
        b'{"inputs":[{"name":"x","shape":[1,4],"datatype":"NO","data":[1,1,1,1]}]}',
        b'{"instances": [[1, "a"]]}',
    )  # fmt: skip
    inside = re.compile(rb'Traceback|File "|\.py\b|site-packages|0x[0-9a-f]{6}|<[a-z_.]+ object')
    with server_of(pool, tmp_path / "m", operation=Operation(tokens=TOKENS)) as server:
        for route in server.router.routes:
            if route.pattern.startswith("/page/") or route.pattern == "/admin/logs":
                continue  # files of ours, and the log itself
            if route.pattern.endswith("metrics"):
                continue  # says which line has opened a pool, to those who may infer
            for body in bodies:
                status, _, said = asked(
                    server, route.method, path_of(route, "times"), body,
                    authorization=f"Bearer {ADMIN}",
                )  # fmt: skip
                assert status < 500 or status in (501, 503), (route, body, said)
                assert not inside.search(said), (route, body, said)


def test_an_error_that_nobody_expected_stays_in_the_log(
    pool: sojourn.Pool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(request: Any) -> Any:
        raise RuntimeError("the password is secret")

    server = server_of(pool, tmp_path / "m")
    server.router.add("GET", "/broken", broken, role=Role.ANYBODY)
    with server:
        status, headers, said = asked(server, "GET", "/broken")
    assert status == 500
    assert b"secret" not in said
    assert "the password is secret" in caplog.text
    assert headers["x-request-id"] in caplog.text, "so that it can be found"


# -- headers ---------------------------------------------------------------------------------------


def test_a_request_id_cannot_add_headers_or_lines(pool: sojourn.Pool, tmp_path: Path) -> None:
    log = tmp_path / "access.jsonl"
    operation = Operation(access_log=str(log))
    with server_of(pool, tmp_path / "m", operation=operation) as server:
        assert (
            asked(server, "GET", "/healthz", X_Request_Id="mine-1")[1]["x-request-id"] == "mine-1"
        )
        for forged in (
            b"a\r\n set-cookie: b=1",
            b"a\x0bb",
            b"a\tb",
            b'a", "status": 500, "x": "',
            b"\xc3\xa4",
            b"x" * 4000,
            b"a%0d%0aset-cookie: b",
        ):
            with socket.create_connection(parsed(server.addresses["http"]), 30) as raw:
                raw.sendall(
                    b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-request-id: "
                    + forged + b"\r\n\r\n"
                )  # fmt: skip
                answer = b"".join(iter(lambda raw=raw: raw.recv(65536), b""))
            head = answer.partition(b"\r\n\r\n")[0].decode("latin-1")
            assert "set-cookie" not in head
            if head.startswith("HTTP/1.1 200"):
                [given] = re.findall(r"^x-request-id: (.*)$", head.replace("\r", ""), re.M)
                assert re.fullmatch(r"[0-9a-f]+-[0-9a-f]+", given)
            else:
                assert head.startswith("HTTP/1.1 400")
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(entries) == 8
    assert {entry["status"] for entry in entries} <= {200, 400}
    assert entries[0]["request_id"] == "mine-1"


def test_the_access_log_has_every_request_and_no_body_or_token(
    pool: sojourn.Pool, tmp_path: Path
) -> None:
    log = tmp_path / "access.jsonl"
    operation = Operation(tokens=TOKENS, access_log=str(log))
    body = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [7654321] * 4}]}
    with server_of(pool, tmp_path / "m", operation=operation) as server:
        client = Client(f"http://{server.addresses['http']}", INFER)
        client.ask("POST", "/v2/models/times/infer", body)
        with pytest.raises(ServerError):
            client.ask("POST", "/v2/models/nix/infer", body)
        with pytest.raises(ServerError):
            client.ask("GET", "/admin/status")
    text = log.read_text()
    assert "7654321" not in text
    assert INFER not in text
    good, unknown, refused = (json.loads(line) for line in text.splitlines())
    assert (good["status"], good["model"], good["protocol"]) == (200, "times", "kserve-rest")
    assert good["received_bytes"] > 0
    assert good["sent_bytes"] > 0
    assert good["seconds"] > 0
    assert unknown["status"] == 404
    assert refused["status"] == 403


def test_what_is_refused_before_it_was_read_is_counted_and_logged_too(
    pool: sojourn.Pool, tmp_path: Path
) -> None:
    log = tmp_path / "access.jsonl"
    with server_of(pool, tmp_path / "m", operation=Operation(access_log=str(log))) as server:
        for said in (
            b"nonsense\r\n\r\n",
            b"POST /v2/models/times/infer HTTP/1.1\r\ncontent-length: 999999999999\r\n\r\n",
        ):
            with socket.create_connection(parsed(server.addresses["http"]), 30) as raw:
                raw.sendall(said)
                head = raw.makefile("rb").readline()
            assert head.split()[1] in (b"400", b"413")
        text = asked(server, "GET", "/metrics")[2].decode()
    assert re.search(r'requests_total{model="",protocol="http",code="400"} 1\n', text)
    assert re.search(r'requests_total{model="",protocol="kserve-rest",code="413"} 1\n', text)
    shown = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(one["status"], one["path"]) for one in shown[:2]] == [
        (400, ""),
        (413, "/v2/models/times/infer"),
    ]


# -- TLS -------------------------------------------------------------------------------------------


class Authority:
    """An authority of its own, made with the `openssl` command."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.certificate = str(folder / "ca.pem")
        self._openssl("req", "-x509", *_NEW_KEY, "-keyout", "ca.key", "-out", "ca.pem", "-days",
                      "2", "-subj", "/CN=test authority", "-addext",
                      "keyUsage=critical,keyCertSign,digitalSignature")  # fmt: skip

    def issue(self, name: str) -> tuple[str, str]:
        (self._folder / "extensions").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        self._openssl("req", *_NEW_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj",
                      f"/CN={name}")  # fmt: skip
        self._openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                      "-CAcreateserial", "-days", "2", "-out", f"{name}.pem", "-extfile",
                      "extensions")  # fmt: skip
        os.chmod(self._folder / f"{name}.key", 0o600)
        return str(self._folder / f"{name}.pem"), str(self._folder / f"{name}.key")

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=self._folder)


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def test_tls_is_spoken_by_both_doors(pool: sojourn.Pool, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    tls = Tls(*authority.issue("server"))
    with server_of(pool, tmp_path / "m", tls=tls, grpc="127.0.0.1:0") as server:
        url = f"https://{server.addresses['http']}"
        assert Client(url, ca=authority.certificate).ask("GET", "/v2")["name"] == "sojourn"
        assert Client(url, pinned=tls.certificate).ask("GET", "/v2")["name"] == "sojourn"
        with pytest.raises(ServerError, match="certificate verify failed"):
            Client(url).ask("GET", "/v2")
        with pytest.raises(ServerError, match="does not answer"):
            Client(url.replace("https", "http")).ask("GET", "/v2")
        old = ssl.create_default_context(cafile=authority.certificate)
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with (
            socket.create_connection(parsed(server.addresses["http"]), 30) as raw,
            pytest.raises((ssl.SSLError, OSError)),
        ):
            old.wrap_socket(raw, server_hostname="127.0.0.1")
        credentials = grpc.ssl_channel_credentials(Path(authority.certificate).read_bytes())
        assert health(server, credentials) == b"\x08\x01"


@pytest.mark.parametrize("door", ["http", "grpc"])
def test_clients_that_never_greet_count_as_connected(
    pool: sojourn.Pool, tmp_path: Path, door: str
) -> None:
    """Else they would take every descriptor, and no model could be opened."""
    authority = Authority(tmp_path / "ca")
    tls, limits = Tls(*authority.issue("server")), Limits(connections=3, header_seconds=300)
    with (
        server_of(pool, tmp_path / "m", tls=tls, limits=limits, grpc="127.0.0.1:0") as server,
        contextlib.ExitStack() as stack,
    ):
        address = parsed(server.addresses[door])

        def silent() -> socket.socket:
            return stack.enter_context(socket.create_connection(address, 10))

        first = [silent() for _ in range(3)]
        assert silent().recv(1) == b""  # one too many
        first[0].close()
        context = ssl.create_default_context(cafile=authority.certificate)

        def can_greet() -> bool:
            raw = silent()
            try:
                with context.wrap_socket(raw, server_hostname="127.0.0.1"):
                    return True
            except OSError:
                return False

        wait_until(can_greet)
        began = time.monotonic()
        server.close()  # which waits for none of them
        assert time.monotonic() - began < 60
        assert first[1].recv(1) == b""


def test_mutual_tls_wants_a_certificate_of_its_authority(
    pool: sojourn.Pool, tmp_path: Path
) -> None:
    authority, other = Authority(tmp_path / "ca"), Authority(tmp_path / "other")
    tls = Tls(*authority.issue("server"), authority.certificate)
    mine, foreign = authority.issue("client"), other.issue("client")
    with server_of(pool, tmp_path / "m", tls=tls, grpc="127.0.0.1:0") as server:
        url = f"https://{server.addresses['http']}"
        trusting = {"ca": authority.certificate}
        good = Client(url, certificate=mine[0], key=mine[1], **trusting)
        assert good.ask("GET", "/v2")["name"] == "sojourn"
        with pytest.raises(ServerError):
            Client(url, **trusting).ask("GET", "/v2")
        with pytest.raises(ServerError):
            Client(url, certificate=foreign[0], key=foreign[1], **trusting).ask("GET", "/v2")
        root = Path(authority.certificate).read_bytes()
        pair = (Path(mine[1]).read_bytes(), Path(mine[0]).read_bytes())
        assert health(server, grpc.ssl_channel_credentials(root, *pair)) == b"\x08\x01"
        with pytest.raises(grpc.RpcError):
            health(server, grpc.ssl_channel_credentials(root))


def health(server: Server, credentials: grpc.ChannelCredentials) -> bytes:
    with grpc.secure_channel(server.addresses["grpc"], credentials) as channel:
        call = channel.unary_unary(HEALTH)
        return call(b"", timeout=30)


def test_a_new_certificate_is_used_by_both_doors_without_a_restart(
    pool: sojourn.Pool, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "ca")
    tls = Tls(*authority.issue("server"))
    with server_of(pool, tmp_path / "m", tls=tls, grpc="127.0.0.1:0") as server:
        before = serials(server, authority)
        authority.issue("server")
        assert serials(server, authority) == before
        server.reload_certificates()
        for _ in range(2):
            after = serials(server, authority)
            assert after["http"] == after["grpc"] != before["http"]


def serials(server: Server, authority: Authority) -> dict[str, str]:
    """Which certificate each door shows."""
    context = ssl.create_default_context(cafile=authority.certificate)
    context.set_alpn_protocols(["h2", "http/1.1"])
    found = {}
    for name, address in server.addresses.items():
        with (
            socket.create_connection(parsed(address), 30) as raw,
            context.wrap_socket(raw, server_hostname="127.0.0.1") as secure,
        ):
            shown = secure.getpeercert()
            assert shown is not None
            found[name] = str(shown["serialNumber"])
    return found


# -- numbers ---------------------------------------------------------------------------------------


def test_metrics_are_what_prometheus_reads_at_both_paths(
    pool: sojourn.Pool, tmp_path: Path
) -> None:
    with server_of(pool, tmp_path / "m") as server:
        body = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1] * 4}]}
        for _ in range(3):
            asked(server, "POST", "/v2/models/times/infer", json.dumps(body).encode())
        for path in ("/metrics", "/monitoring/prometheus/metrics"):
            status, headers, said = asked(server, "GET", path)
            assert status == 200
            assert headers["content-type"].startswith("text/plain; version=0.0.4")
            found = {
                (sample.name, *sample.labels.values()): sample.value
                for family in text_string_to_metric_families(said.decode())
                for sample in family.samples
            }
            assert len(found) == sum(not line.startswith(b"#") for line in said.splitlines())
        assert found["sojourn_server_model_requests_total", "times", "2", "succeeded"] == 3
        assert found["sojourn_server_batch_rows_count", "times", "2"] == 3
        assert found["sojourn_server_model_loaded", "times", "2"] == 1
        assert found["sojourn_server_model_memory_bytes", "times", "2"] > 0
        assert found["sojourn_sessions_opened_total",] >= 1
        threads = [
            threading.Thread(target=asked, args=(server, "GET", "/metrics")) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def test_a_server_that_stops_is_not_ready_but_alive(pool: sojourn.Pool, tmp_path: Path) -> None:
    with server_of(pool, tmp_path / "m") as server:
        assert asked(server, "GET", "/readyz")[0] == 200
        server.handler.is_stopping = True
        assert asked(server, "GET", "/readyz")[0] == 503
        assert asked(server, "GET", "/healthz")[0] == 200
        assert asked(server, "HEAD", "/healthz")[2] == b""


def test_while_models_are_loaded_it_is_alive_but_not_ready(
    pool: sojourn.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_load = threading.Event()
    bring_up = Catalogue._bring_up

    async def later(self: Catalogue, *given: Any, **more: Any) -> None:
        await asyncio.to_thread(may_load.wait)
        await bring_up(self, *given, **more)

    monkeypatch.setattr(Catalogue, "_bring_up", later)
    server = server_of(pool, tmp_path / "m")
    starting = threading.Thread(target=server.start)
    starting.start()
    try:
        while "http" not in server.addresses:
            starting.join(0.01)
        assert asked(server, "GET", "/healthz")[0] == 200
        assert asked(server, "GET", "/readyz")[0] == 503
        status, headers, said = asked(server, "GET", "/v2/models/times")
        assert (status, headers["retry-after"]) == (503, "1")
        assert b"is being loaded" in said
        may_load.set()
        starting.join()
        assert asked(server, "GET", "/readyz")[0] == 200
        assert asked(server, "GET", "/v2/models/times")[0] == 200
    finally:
        may_load.set()
        starting.join()
        server.close()
