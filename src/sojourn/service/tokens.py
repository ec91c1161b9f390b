"""Bearer tokens and their roles.

Only digests are kept. If no tokens are configured, requests from this machine may do everything and
others may infer; admins from other machines always need a token.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import stat
from collections.abc import Iterable, Iterator, MutableMapping
from typing import NamedTuple

from sojourn.service.http.router import Role

VARIABLES = {
    Role.INFER: "SOJOURN_SERVE_INFER_TOKENS",
    Role.ADMIN: "SOJOURN_SERVE_ADMIN_TOKENS",
}
_ROLES = {"infer": Role.INFER, "admin": Role.ADMIN}
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]{16,512}=*")  # as in RFC 6750
_HASHED = re.compile(r"sha256:([0-9a-f]{64})")
_LOCAL = re.compile(
    r"(?:ipv[46]:)?\[?(?:(?:::ffff:)?127\.\d+\.\d+\.\d+|::1)\]?(?::\d+)?|unix:.*", re.IGNORECASE
)


class _Token(NamedTuple):
    digest: bytes
    role: Role


class Tokens:
    """The tokens of a server. Immutable: another set of tokens is another object."""

    def __init__(self, tokens: Iterable[tuple[Role, str]] = ()) -> None:
        self._tokens = tuple(_Token(_digest(token), role) for role, token in tokens)

    @property
    def are_wanted(self) -> bool:
        """Whether any tokens are configured, so that requests without one are refused."""
        return bool(self._tokens)

    def role(self, token: str | None, peer: str | None = None) -> Role:
        """Return the role of a request with this token, from this address. Takes the same time for
        every unknown token."""
        if not self._tokens:
            return Role.ADMIN if peer is not None and is_loopback(peer) else Role.INFER
        if token is None:
            return Role.ANYBODY
        digest = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        allowed = Role.ANYBODY
        for known in self._tokens:
            if hmac.compare_digest(known.digest, digest) and known.role.value > allowed.value:
                allowed = known.role
        return allowed

    def __repr__(self) -> str:
        count = {role: sum(t.role is role for t in self._tokens) for role in _ROLES.values()}
        return f"<Tokens {count[Role.INFER]} infer, {count[Role.ADMIN]} admin>"


def read(path: str | None, environment: MutableMapping[str, str] = os.environ) -> Tokens:
    """Read the tokens of a file and of the environment, where spaces separate them.

    The variables are removed from the environment, because workers inherit it.
    """
    found = list(_of_file(path)) if path is not None else []
    for role, variable in VARIABLES.items():
        for token in environment.pop(variable, "").split():
            if not _is_well_formed(token):
                raise ValueError(f"{variable}: {_FORM}")
            found.append((role, token))
    return Tokens(found)


def bearer(authorization: str | None) -> str | None:
    """Return the token in an `Authorization` header."""
    if authorization is None:
        return None
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def is_loopback(peer: str) -> bool:
    """Whether an address, as written by sockets or gRPC, is a loopback address."""
    return _LOCAL.fullmatch(peer) is not None


_FORM = (
    "a token must have 16 to 512 letters, digits or -._~+/ (make one with `openssl rand -hex 32`), "
    "or be sha256:<the digest of one in hex>"
)


def _of_file(path: str) -> Iterator[tuple[Role, str]]:
    with open(path, encoding="utf-8") as file:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise ValueError(f"{path}: the tokens must be in a regular file")
        if mode & (stat.S_IRWXO | stat.S_IWGRP):
            raise PermissionError(
                f"{path}: everybody may read or change these tokens (mode {mode & 0o777:o}); "
                f"chmod 600 {path}"
            )
        try:
            lines = file.read(2**20).splitlines()
        except UnicodeDecodeError:
            raise ValueError(f"{path}: the tokens must be text in UTF-8") from None
    found = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        # Messages never contain the line: even a malformed one may be somebody's token.
        if len(words) != 2 or words[0] not in _ROLES:
            raise ValueError(f"{path}:{number}: a line must be `infer TOKEN` or `admin TOKEN`")
        if not _is_well_formed(words[1]):
            raise ValueError(f"{path}:{number}: {_FORM}")
        found.append((_ROLES[words[0]], words[1]))
    if not found:
        raise ValueError(f"{path}: no tokens in it")
    yield from found


def _is_well_formed(token: str) -> bool:
    return bool(_TOKEN.fullmatch(token) or _HASHED.fullmatch(token))


def _digest(token: str) -> bytes:
    hashed = _HASHED.fullmatch(token)
    return bytes.fromhex(hashed[1]) if hashed else hashlib.sha256(token.encode()).digest()
