"""Access to the page, and the headers that restrict what a browser may do with it.

Without tokens, programs on this machine may do everything, but other sites in the same browser must
not. Three checks keep those out: the host name of the request (an attacker's name that resolves to
this machine would make their site the same as ours), the request's origin, and a secret that only
our own site can read.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Callable, Iterable

from sojourn.service.failures import Refused, Status
from sojourn.service.http.messages import Request

SECRET_HEADER = "x-sojourn-page"
# Scripts and styles are our own files only; text never becomes markup; no site may frame the page.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


class Guard:
    """The checks of one server. `hosts` are accepted host names, besides the server's own.

    If the server `wants_token`, a request that arrives here has presented one already.
    """

    def __init__(self, hosts: Iterable[str] = (), wants_token: Callable[[], bool] = bool) -> None:
        self._wants_token = wants_token
        self.secret = secrets.token_urlsafe(32)
        self._hosts = {"localhost", socket.gethostname().lower(), *(h.lower() for h in hosts)}

    def check(self, request: Request) -> None:
        """Raise Refused unless a token was presented or the host name is our own."""
        if not self._wants_token():
            name = _name(request.headers.get("host", ""))
            if not (name in self._hosts or name.endswith(".localhost") or _is_address(name)):
                raise Refused(
                    Status.PERMISSION_DENIED,
                    f"the page is not known as {name!r}: have the server want tokens, or name it "
                    "in page_hosts",
                )

    def check_action(self, request: Request) -> None:
        """Check a request that changes something: besides `check`, it must be sent by the page
        itself, on purpose."""
        self.check(request)
        headers = request.headers
        origin = headers.get("origin")
        if (
            origin is not None
            and origin.partition("://")[2].lower() != headers.get("host", "").lower()
        ):
            raise Refused(Status.PERMISSION_DENIED, f"actions must not come from {origin!r}")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise Refused(Status.PERMISSION_DENIED, "actions must not come from another site")
        if not hmac.compare_digest(headers.get(SECRET_HEADER, "").encode(), self.secret.encode()):
            raise Refused(
                Status.PERMISSION_DENIED,
                f"the header {SECRET_HEADER} must be the `secret` of page/api/state",
            )


def _name(host: str) -> str:
    """The host name in a Host header, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
