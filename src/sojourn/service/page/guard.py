"""Who may ask what of the page, and what a browser may do with it.

Without tokens, programs on this machine may do everything, and other sites in the same browser must
not. They are kept out by the name that the page was asked by (a name of theirs that leads here
would make them this site), by a request's origin, and by a secret that only this site can read.
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
# Scripts and styles are files of ours; text never becomes markup; nobody frames the page.
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
    """The checks of one server. `hosts` are names by which it may be asked for, besides its own.

    Where the server `wants_token`, a request that comes here has shown one.
    """

    def __init__(self, hosts: Iterable[str] = (), wants_token: Callable[[], bool] = bool) -> None:
        self._wants_token = wants_token
        self.secret = secrets.token_urlsafe(32)
        self._hosts = {"localhost", socket.gethostname().lower(), *(h.lower() for h in hosts)}

    def check(self, request: Request) -> None:
        """Raise Refused unless this may be read: a token was shown, or the host is our own."""
        if not self._wants_token():
            name = _name(request.headers.get("host", ""))
            if not (name in self._hosts or name.endswith(".localhost") or _is_address(name)):
                raise Refused(
                    Status.PERMISSION_DENIED,
                    f"the page is not known as {name!r}: have the server want tokens, or name it "
                    "in page_hosts",
                )

    def check_action(self, request: Request) -> None:
        """The same for what changes something: it must come from the page itself, on purpose."""
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
    """The name in a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
