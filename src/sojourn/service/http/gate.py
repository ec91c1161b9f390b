"""Who may ask for what, before anything is done.

Without tokens there is only the client's address to go by, and two can borrow it: a web page that
a user of this machine has open, and a proxy. What came through one of them counts as not local.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from urllib.parse import urlsplit

from sojourn.service.failures import Refused, Status
from sojourn.service.http.messages import Request
from sojourn.service.http.router import Role, Route
from sojourn.service.tokens import Tokens, bearer

_OF_PROXIES = ("forwarded", "x-forwarded-for", "x-real-ip", "via")


class Gate:
    """Decides by the token, the client's address and the way the request came."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens  # replaced as a whole when they are read again

    def check(self, request: Request, route: Route) -> None:
        """Raise Refused unless this request may have this route."""
        if not self._is_for_all(route.role):
            what = f"{route.method} {route.pattern}"
            self.admit(route.role, what, request.headers, request.peer)

    def admit(self, needed: Role, what: str, headers: Mapping[str, str], peer: str | None) -> None:
        """Raise Refused unless who sent these headers from there may have what needs this role."""
        if self._is_for_all(needed):
            return
        tokens = self.tokens
        token = bearer(headers.get("authorization"))
        if not tokens.are_wanted and not _is_direct(headers):
            peer = None
        role = tokens.role(token, peer)
        if role.value >= needed.value:
            return
        if role is Role.ANYBODY:
            lack = "is not known" if token is not None else "is needed"
            raise Refused(Status.UNAUTHENTICATED, f"a bearer token {lack}")
        why = "this token may only infer" if tokens.are_wanted else "it needs an admin's token"
        raise Refused(Status.PERMISSION_DENIED, f"{what}: {why}")

    def _is_for_all(self, needed: Role) -> bool:
        return needed is Role.ANYBODY or (needed is Role.INFER and not self.tokens.are_wanted)


def _is_direct(headers: Mapping[str, str]) -> bool:
    """Whether neither a proxy nor a page of another site had a hand in it."""
    if any(name in headers for name in _OF_PROXIES):
        return False
    host = headers.get("host", "")
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2].lower() != host.lower():
        return False
    return _is_of_this_machine(host)


@functools.lru_cache(64)
def _is_of_this_machine(host: str) -> bool:
    """False for a name that somebody may have pointed here so that a page of theirs is of our
    origin (DNS rebinding)."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return name in ("", "localhost") or ":" in name or name.replace(".", "").isdigit()
