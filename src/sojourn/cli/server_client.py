"""Find a running server and send requests to it, for commands."""

from __future__ import annotations

import functools
import http.client
import json
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import click

from sojourn.cli.terminal import plain
from sojourn.service.records import Record, running

_READ_BYTES = 2**16
_URL_WANTED = "--url must be like http://127.0.0.1:8501, not {!r}"


class ServerError(click.ClickException):
    """Raised if the server refused a request or did not answer. Exit code 1."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(plain(message))
        self.status = status


@dataclass(frozen=True, slots=True)
class Client:
    """A client of one server. Each request uses a new connection."""

    url: str
    token: str | None = None
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    pinned: str | None = None  # path of the server's own certificate, from its record
    timeout: float | None = 600.0

    def ask(self, method: str, path: str, value: Any = None) -> Any:
        """Send a request and return the JSON of the answer."""
        body = None if value is None else json.dumps(value).encode()
        answer, _ = self.exchange(method, path, body, {"Content-Type": "application/json"})
        try:
            return json.loads(answer) if answer else None
        except ValueError:
            raise ServerError(f"{self.url}{path} did not answer with JSON") from None

    def exchange(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[bytes, http.client.HTTPMessage]:
        """Send a request; return the answer's body and headers, or raise ServerError."""
        with closing(self._connected()) as connection:
            response = self._response(connection, method, path, body, headers)
            try:
                return response.read(), response.headers
            except (OSError, http.client.HTTPException) as error:
                raise ServerError(f"{self.url} broke off: {error!r}") from None

    def lines(self, path: str) -> Iterator[str]:
        """Yield the lines of an answer as they arrive."""
        with closing(self._connected()) as connection:
            response = self._response(connection, "GET", path, None, {})
            try:
                for line in response:
                    yield line.decode(errors="replace").rstrip("\n")
            except (OSError, http.client.HTTPException) as error:
                raise ServerError(f"{self.url} broke off: {error!r}") from None

    def _response(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> http.client.HTTPResponse:
        token = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        try:
            connection.request(method, path, body, {**headers, **token})
            response = connection.getresponse()
            if response.status < 300:
                return response
            message = _message(response.read(_READ_BYTES)) or f"HTTP status {response.status}"
        except (OSError, http.client.HTTPException) as error:
            raise ServerError(f"{self.url} does not answer: {error}") from None
        if response.status == 401:
            message += "; give one by SOJOURN_TOKEN or --token-file"
        raise ServerError(message, response.status)

    def _connected(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, parts.port, timeout=self.timeout)
        try:
            context = ssl.create_default_context(cafile=self.ca or self.pinned)
            if self.ca is None and self.pinned is not None:
                # Trust exactly this certificate, whatever its name and its issuer are.
                context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
                context.check_hostname = False
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise ServerError(f"the certificates cannot be used: {error}") from None
        return http.client.HTTPSConnection(host, parts.port, timeout=self.timeout, context=context)


def model_path(name: str, what: str) -> str:
    """Return a path of the admin API for a model, whose name may contain any characters."""
    return f"/admin/models/{quote(name, safe='')}/{what}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The server that the user chose, and the credentials for it."""

    url: str | None
    token: str | None
    ca: str | None
    certificate: str | None
    key: str | None

    def record(self) -> Record | None:
        """Return the record of the chosen server, or of the only one on this machine; None if the
        chosen server runs elsewhere."""
        records = running()
        if self.url is not None:
            return next((record for record in records if _is_at(record, self.url)), None)
        if not records:
            raise click.ClickException("No server of yours runs here; give the --url of another.")
        if len(records) > 1:
            urls = ", ".join(record.name for record in records)
            raise click.UsageError(f"Several servers run here; choose one with --url: {urls}")
        return records[0]

    def client(self, *, admin: bool = False) -> Client:
        """Return a client for the chosen server. Its admin API may have a separate port."""
        record = self.record()
        if record is None:
            assert self.url is not None
            return self.of(self.url)
        return self.of_record(record, admin=admin)

    def of_record(self, record: Record, *, admin: bool = False) -> Client:
        """Return a client for the server of a record."""
        url = record.admin_url if admin else record.url
        if not url:
            what = "The admin API" if record.url else "HTTP, by which commands ask,"
            raise click.ClickException(f"{what} of {record.name} is off.")
        return self.of(url, record.certificate)

    def of(self, url: str, pinned: str | None = None) -> Client:
        """Return a client for the server at this URL."""
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise click.UsageError(_URL_WANTED.format(url))
        return Client(
            f"{parts.scheme}://{parts.netloc}",
            self.token,
            self.ca,
            self.certificate,
            self.key,
            pinned,
        )


def _is_at(record: Record, url: str) -> bool:
    """Whether the URL, with or without a protocol, belongs to the server of the record."""
    named = urlsplit(url if "//" in url else f"//{url}")
    where = named.netloc.replace("localhost", "127.0.0.1")
    return any(
        (named.scheme or own.scheme, where) == (own.scheme, own.netloc)
        for own in map(urlsplit, filter(None, (record.name, record.admin_url)))
    )


def _readable_url(_ctx: Any, _parameter: Any, url: str | None) -> str | None:
    """Refuse an invalid URL before any request is sent."""
    if url is not None:
        try:
            parts = urlsplit(url if "//" in url else f"//{url}")
            is_one = parts.port != 0 and not set(url) & set(" \t\r\n")
        except ValueError:
            is_one = False
        if not is_one:
            raise click.UsageError(_URL_WANTED.format(url))
    return url


def server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--url` and the options for authentication to a command; it receives `wanted`."""
    file = click.Path(exists=True, dir_okay=False)

    @click.option(
        "--url",
        callback=_readable_url,
        envvar="SOJOURN_URL",
        help="The server, such as http://127.0.0.1:8501. Default: the one that runs here.",
    )
    @click.option("--token-file", type=file, help="A file with a token. Default: SOJOURN_TOKEN.")
    @click.option("--ca", type=file, envvar="SOJOURN_CA", help="A certificate authority to trust.")
    @click.option(
        "--cert", type=file, envvar="SOJOURN_CERT", help="Your certificate, for mutual TLS."
    )
    @click.option("--key", type=file, envvar="SOJOURN_KEY", help="The key of your certificate.")
    @functools.wraps(command)
    def with_server(
        *args: Any,
        url: str | None,
        token_file: str | None,
        ca: str | None,
        cert: str | None,
        key: str | None,
        **kwargs: Any,
    ) -> Any:
        text = os.environ.get("SOJOURN_TOKEN", "")
        if token_file is not None:
            text = Path(token_file).read_text(encoding="utf-8", errors="replace")
        token = next(reversed(text.split()), None)  # the file may also contain a line `role TOKEN`
        if token is not None and not (token.isascii() and token.isprintable()):
            raise click.UsageError("A token must be ASCII, without control characters.")
        return command(*args, wanted=Wanted(url, token, ca, cert, key), **kwargs)

    return with_server  # fmt: skip


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return ""
