"""Routes: which function answers which path."""

from __future__ import annotations

import enum
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import unquote

from sojourn.service.http.messages import Request, Response

Answering = Callable[[Request], Awaitable[Response]]
_REMEMBERED = 1024  # cached paths; limited because clients choose the names in them


class Role(enum.Enum):
    """The role that a route needs. An admin may use every route."""

    ANYBODY = 0
    INFER = 1
    ADMIN = 2


@dataclass(frozen=True, slots=True)
class Route:
    """A method, a pattern such as `/v2/models/{name}/infer`, its function and the role needed."""

    method: str
    pattern: str
    answer: Answering
    role: Role = Role.INFER
    summary: str = ""  # for the OpenAPI document


class Router:
    """Finds routes by method and path. A named part matches text without a slash or colon, and is
    percent-decoded."""

    def __init__(self) -> None:
        self.routes: list[Route] = []
        self._fixed: dict[tuple[str, str], Route] = {}
        self._others: list[tuple[re.Pattern[str], Route]] = []
        self._found: dict[tuple[str, str], tuple[Route, dict[str, str]]] = {}

    def add(
        self,
        method: str,
        pattern: str,
        answer: Answering,
        *,
        role: Role = Role.INFER,
        summary: str = "",
    ) -> None:
        """Register `answer` for this method and pattern."""
        self._add(Route(method, pattern, answer, role, summary))

    def _add(self, route: Route) -> None:
        self.routes.append(route)
        self._found.clear()
        if "{" in route.pattern:
            self._others.append((_compiled(route.pattern), route))
        else:
            self._fixed[route.method, route.pattern] = route

    def split(self, role: Role) -> Router:
        """Move the routes that need this role to a new router, and return it."""
        routes, apart = self.routes, Router()
        self.routes, self._fixed, self._others = [], {}, []
        self._found.clear()
        for route in routes:
            (apart if route.role is role else self)._add(route)
        return apart

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]] | None:
        """The route for this path and the path's parts, or None. HEAD uses the route of GET."""
        found = self._found.get((method, path))  # cached: most paths are requested repeatedly
        if found is None:
            found = self._search(method, path)
            if found is not None:
                if len(self._found) >= _REMEMBERED:
                    self._found.clear()
                self._found[method, path] = found
        return found

    def _search(self, method: str, path: str) -> tuple[Route, dict[str, str]] | None:
        if method == "HEAD":
            method = "GET"
        path = _without_host(path)
        route = self._fixed.get((method, path))
        if route is not None:
            return route, {}
        for pattern, route in self._others:
            if route.method == method and (match := pattern.fullmatch(path)):
                return route, {name: unquote(part) for name, part in match.groupdict().items()}
        return None

    def methods(self, path: str) -> list[str]:
        """The methods of this path; empty if no such path exists."""
        path = _without_host(path)
        fixed = [method for method, known in self._fixed if known == path]
        return fixed + [route.method for pattern, route in self._others if pattern.fullmatch(path)]


def _without_host(path: str) -> str:
    """The path alone, also of an absolute URL, which clients send to proxies."""
    if "://" in path and not path.startswith("/"):
        return "/" + path.partition("://")[2].partition("/")[2]
    return path


def _compiled(pattern: str) -> re.Pattern[str]:
    pieces = re.split(r"\{(\w+)\}", pattern)
    return re.compile(
        "".join(
            f"(?P<{piece}>[^/:]+)" if is_name else re.escape(piece)
            for is_name, piece in ((bool(i % 2), piece) for i, piece in enumerate(pieces))
        )
    )
