"""Tokens, roles, TLS and what a log may contain: each by itself, without a server."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

from sojourn.service import access_log, tokens
from sojourn.service.access_log import AccessLog, Entry
from sojourn.service.failures import Refused, Status
from sojourn.service.http.gate import Gate
from sojourn.service.http.messages import Request, Response
from sojourn.service.http.router import Role, Route
from sojourn.service.tls import Tls
from sojourn.service.tokens import Tokens, bearer, is_loopback

INFER = "infer-0123456789abcdef"
ADMIN = "admin-0123456789abcdef"
HERE, ELSEWHERE = "127.0.0.1", "10.1.2.3"


def file_with(folder: Path, text: str | bytes, mode: int = 0o600) -> str:
    path = folder / "tokens"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return str(path)


# -- tokens ----------------------------------------------------------------------------------------


def test_each_token_of_a_file_has_its_role(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"only its digest is in the file").hexdigest()
    text = f"# ours\ninfer {INFER}  # the shop\n\nadmin {ADMIN}\nadmin sha256:{digest}\n"
    known = tokens.read(file_with(tmp_path, text), {})
    assert repr(known) == "<Tokens 1 infer, 2 admin>"
    assert known.role(INFER, ELSEWHERE) is Role.INFER
    assert known.role(ADMIN, ELSEWHERE) is Role.ADMIN
    assert known.role("only its digest is in the file", ELSEWHERE) is Role.ADMIN
    for unknown in (None, "", INFER[:-1], INFER + "x", digest, f"sha256:{digest}", "ä€\udcff"):
        assert known.role(unknown, HERE) is Role.ANYBODY


def test_a_token_that_is_listed_twice_has_the_higher_role() -> None:
    for listed in ([Role.INFER, Role.ADMIN], [Role.ADMIN, Role.INFER]):
        assert Tokens([(role, INFER) for role in listed]).role(INFER) is Role.ADMIN


def test_tokens_of_the_environment_are_taken_out_of_it_because_workers_inherit_it() -> None:
    environment = {
        "SOJOURN_SERVE_INFER_TOKENS": f"{INFER} other-{INFER}",
        "SOJOURN_SERVE_ADMIN_TOKENS": ADMIN,
        "HOME": "/root",
    }
    known = tokens.read(None, environment)
    assert environment == {"HOME": "/root"}
    assert known.role(f"other-{INFER}") is Role.INFER
    assert known.role(ADMIN) is Role.ADMIN


def test_without_tokens_only_this_machine_is_an_admin() -> None:
    known = tokens.read(None, {})
    assert not known.are_wanted
    assert known.role(None, HERE) is Role.ADMIN
    assert known.role(None, ELSEWHERE) is Role.INFER
    assert known.role(ADMIN, ELSEWHERE) is Role.INFER
    assert known.role(None) is Role.INFER, "nobody knows where it came from"


@pytest.mark.parametrize(
    ("peer", "is_local"),
    [
        ("127.0.0.1", True),
        ("127.9.8.7", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("ipv4:127.0.0.1:51234", True),
        ("ipv6:[::1]:51234", True),
        ("unix:/run/sojourn", True),
        ("", False),
        ("128.0.0.1", False),
        ("1127.0.0.1", False),
        ("ipv4:10.0.0.1:127", False),
        ("127.0.0.1.example.com", False),
        ("::2", False),
    ],
)
def test_which_addresses_are_this_machine(peer: str, is_local: bool) -> None:
    assert is_loopback(peer) is is_local


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o620, 0o666])
def test_a_file_that_others_may_read_or_change_is_refused_with_the_cure(
    tmp_path: Path, mode: int
) -> None:
    path = file_with(tmp_path, f"infer {INFER}\n", mode)
    with pytest.raises(PermissionError, match=rf"mode {mode:o}\); chmod 600 "):
        tokens.read(path, {})


def test_a_file_that_its_group_may_read_is_fine_as_secrets_of_kubernetes_are(
    tmp_path: Path,
) -> None:
    assert tokens.read(file_with(tmp_path, f"infer {INFER}\n", 0o440), {}).are_wanted


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no tokens in it"),
        ("# nothing\n", "no tokens in it"),
        (f"{INFER}\n", ":1: a line must be"),
        (f"infer {INFER}\nroot {ADMIN}\n", ":2: a line must be"),
        (f"infer {INFER} {ADMIN}\n", ":1: a line must be"),
        ("infer secret\n", ":1: a token must have 16 to 512"),
        (f"infer sha256:{INFER}\n", ":1: a token must have 16 to 512"),
        (b"infer \xff\xfe\n", "must be text in UTF-8"),
    ],
)
def test_a_malformed_file_is_refused_with_its_line_and_without_its_secrets(
    tmp_path: Path, text: str | bytes, why: str
) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        tokens.read(file_with(tmp_path, text), {})
    assert INFER not in str(caught.value)
    assert ADMIN not in str(caught.value)


def test_a_malformed_token_of_the_environment_is_refused_by_its_variable() -> None:
    with pytest.raises(ValueError, match="SOJOURN_SERVE_ADMIN_TOKENS: a token must have"):
        tokens.read(None, {"SOJOURN_SERVE_ADMIN_TOKENS": "short"})


def test_the_token_of_a_header() -> None:
    assert bearer("Bearer abc") == "abc"
    assert bearer("bearer  abc ") == "abc"
    assert bearer("Basic abc") is None
    assert bearer(None) is None


# -- the gate --------------------------------------------------------------------------------------


async def nothing(request: Request) -> Response:
    return Response()


ROUTES = {role: Route("POST", f"/{role.name.lower()}", nothing, role) for role in Role}


def verdict(gate: Gate, role: Role, peer: str = HERE, **headers: str) -> Status | None:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    request = Request("POST", "/", headers={"host": "127.0.0.1:8501", **names}, peer=peer)
    try:
        gate.check(request, ROUTES[role])
    except Refused as refused:
        return refused.status
    return None


def test_with_tokens_each_role_has_its_routes_and_no_others() -> None:
    gate = Gate(Tokens([(Role.INFER, INFER), (Role.ADMIN, ADMIN)]))
    for authorization, refused in (
        ({}, [None, Status.UNAUTHENTICATED, Status.UNAUTHENTICATED]),
        ({"authorization": "Bearer x"}, [None, Status.UNAUTHENTICATED, Status.UNAUTHENTICATED]),
        ({"authorization": f"Bearer {INFER}"}, [None, None, Status.PERMISSION_DENIED]),
        ({"authorization": f"Bearer {ADMIN}"}, [None, None, None]),
    ):
        assert [verdict(gate, role, **authorization) for role in Role] == refused


def test_without_tokens_the_way_of_a_request_decides_who_is_an_admin() -> None:
    gate = Gate(Tokens())
    assert verdict(gate, Role.ADMIN) is None
    assert verdict(gate, Role.ADMIN, host="localhost:8501") is None
    assert verdict(gate, Role.ADMIN, host="[::1]:8501") is None
    assert verdict(gate, Role.ADMIN, origin="http://127.0.0.1:8501") is None, "our own page"
    for way in (
        {"peer": ELSEWHERE},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"host": "evil.example:8501", "origin": "http://evil.example:8501"},
        {"host": "evil.example:8501"},
        {"x_forwarded_for": ELSEWHERE},
        {"forwarded": f"for={ELSEWHERE}"},
        {"host": "[broken"},
        {"origin": "http://["},
    ):
        assert verdict(gate, Role.ADMIN, **way) is Status.PERMISSION_DENIED, way
        assert verdict(gate, Role.INFER, **way) is None, way


# -- request ids and the access log ----------------------------------------------------------------


def test_a_request_keeps_its_id_unless_that_could_forge_a_header_or_a_line() -> None:
    assert access_log.request_id("4bf92f35/a:1") == "4bf92f35/a:1"
    for forged in (None, "", "a b", "a\r\nset-cookie: b", "a\nb", 'a"', "ä", "x" * 129, "a\0"):
        made = access_log.request_id(forged)
        assert made != forged
        assert access_log.request_id(made) == made
    assert access_log.request_id(None) != access_log.request_id(None)


def entry(number: int) -> Entry:
    return Entry("2026-01-01T00:00:00.000Z", f"id-{number}", HERE, "kserve", "POST", '/a"\n', 200,
                 0.001, 10, 20)  # fmt: skip


def test_every_request_is_one_line_of_json_also_after_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "access.jsonl"
    log = AccessLog(str(path))
    try:
        log.write(entry(1))
        until_written(path, 1)
        path.rename(tmp_path / "access.jsonl.1")
        log.write(entry(2))
        log.write(entry(3))
    finally:
        log.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["request_id"] for line in lines] == ["id-2", "id-3"]
    assert lines[0]["path"] == '/a"\n'
    assert "body" not in lines[0]
    assert path.stat().st_mode & 0o007 == 0


def until_written(path: Path, lines: int) -> None:
    import time

    deadline = time.monotonic() + 30
    while path.read_bytes().count(b"\n") < lines:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_lines_that_cannot_be_kept_are_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_log, "MOST_WAITING", 3)
    monkeypatch.setattr(access_log, "GATHER_SECONDS", 60.0)
    path = tmp_path / "access.jsonl"
    log = AccessLog(str(path))
    for number in range(5):
        log.write(entry(number))
    log.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line.get("request_id") for line in lines] == ["id-0", "id-1", "id-2", None]
    assert lines[-1]["dropped_lines"] == 2


def test_a_log_on_a_full_disk_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    log = AccessLog("/dev/full")
    log.write(entry(1))
    log.close()
    assert "the access log cannot be written" in caplog.text


def test_lines_that_a_full_disk_has_cost_are_counted_and_harm_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_log, "GATHER_SECONDS", 0.0)
    path = tmp_path / "access.jsonl"
    is_full, has_failed = threading.Event(), threading.Event()
    write = os.write

    def some(fd: int, data: bytes) -> int:
        if not is_full.is_set():
            return write(fd, data)
        if not data.startswith(b"{"):
            has_failed.set()
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data[:20])

    log = AccessLog(str(path))
    monkeypatch.setattr(access_log.os, "write", some)
    log.write(entry(0))
    until_written(path, 1)
    is_full.set()
    log.write(entry(1))
    assert has_failed.wait(30)
    is_full.clear()
    log.write(entry(2))
    log.close()
    whole = [line for line in path.read_text().splitlines() if line.endswith("}")]
    lines = [json.loads(line) for line in whole]
    assert [line.get("request_id") for line in lines] == ["id-0", "id-2", None]
    assert lines[-1]["dropped_lines"] == 1


def test_a_log_whose_reader_has_stopped_does_not_keep_a_server_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(access_log, "LAST_SECONDS", 0.1)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        log = AccessLog(str(pipe))
        for number in range(2_000):
            log.write(entry(number))
        log.close()
        assert "the access log is not read" in caplog.text
    finally:
        os.close(reader)
    log._thread.join()
    os.close(log._fd)


# -- TLS -------------------------------------------------------------------------------------------


def made_by_openssl(folder: Path, name: str, *more: str) -> tuple[str, str]:
    certificate, key = str(folder / f"{name}.pem"), str(folder / f"{name}.key")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-keyout", key, "-out", certificate, "-days", "2", "-subj", f"/CN={name}",
         *more],
        check=True, capture_output=True,
    )  # fmt: skip
    os.chmod(key, 0o600)
    return certificate, key


def test_a_certificate_and_its_key_make_a_context_that_takes_no_old_tls(tmp_path: Path) -> None:
    certificate, key = made_by_openssl(tmp_path, "localhost")
    context = Tls(certificate, key).context()
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.verify_mode is ssl.CERT_NONE
    assert Tls(certificate, key, certificate).context().verify_mode is ssl.CERT_REQUIRED


def test_files_that_do_not_fit_are_refused_by_name(tmp_path: Path) -> None:
    certificate, key = made_by_openssl(tmp_path, "localhost")
    _, other = made_by_openssl(tmp_path, "other")
    with pytest.raises(ValueError, match=r"must be a certificate and its key in PEM: KEY_VALUES"):
        Tls(certificate, other).check()
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Tls(str(tmp_path / "nowhere"), key).check()
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Tls(certificate, str(tmp_path / "nowhere")).check()
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Tls(certificate, key, str(tmp_path / "nowhere")).check()
    with pytest.raises(ValueError, match="must have certificates in PEM"):
        Tls(certificate, key, key).check()
    encrypted = tmp_path / "encrypted.key"
    subprocess.run(["openssl", "ec", "-in", key, "-aes128", "-passout", "pass:secret", "-out",
                    str(encrypted)], check=True, capture_output=True)  # fmt: skip
    encrypted.chmod(0o600)
    with pytest.raises(ValueError, match="must not be encrypted"):
        Tls(certificate, str(encrypted)).check()
    os.chmod(key, 0o644)
    with pytest.raises(PermissionError, match=r"mode 644\); chmod 600"):
        Tls(certificate, key).check()
