"""Authorization: checks whether a client may use a route, before anything is done.

Without tokens only the client's address identifies a client, and two others can send requests from
it: a web page that a user of this machine has open, and a proxy. Their requests count as not local.
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
    """Authorizes requests by token, client address, and whether a proxy or web page sent them."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens  # replaced as a whole when they are read again

    def check(self, request: Request, route: Route) -> None:
        """Raise Refused unless this request may use this route."""
        if not self._is_for_all(route.role):
            what = f"{route.method} {route.pattern}"
            self.admit(route.role, what, request.headers, request.peer)

    def admit(self, needed: Role, what: str, headers: Mapping[str, str], peer: str | None) -> None:
        """Raise Refused unless the client at `peer` that sent these headers has this role."""
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
    """Whether the request came neither through a proxy nor from a page of another site."""
    if any(name in headers for name in _OF_PROXIES):
        return False
    host = headers.get("host", "")
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2].lower() != host.lower():
        return False
    return _is_of_this_machine(host)


@functools.lru_cache(64)
def _is_of_this_machine(host: str) -> bool:
    """Whether the host is localhost or an IP address. False for any other name: an attacker may
    have pointed it here, so that their page has our origin (DNS rebinding)."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return name in ("", "localhost") or ":" in name or name.replace(".", "").isdigit()
