"""The routes of the page: its files, its data, its exports and its actions."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import math
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from sojourn.errors import SojournError
from sojourn.pool.decisions.status import PoolStatus
from sojourn.service.failures import Refused, Status, invalid
from sojourn.service.handler import Failure
from sojourn.service.http.messages import Request, Response, json_response
from sojourn.service.http.router import Answering, Role, Router
from sojourn.service.inference import ModelRef
from sojourn.service.page import stays
from sojourn.service.page.actions import Actions
from sojourn.service.page.guard import HEADERS
from sojourn.service.page.page import Page
from sojourn.service.page.points import EVERYTHING, Point, bars, columns, thinned
from sojourn.service.page.stream import Full
from sojourn.service.page.watching import model_of
from sojourn.service.served import Served
from sojourn.service.signatures import platform_of, read_signatures

MOST_POINTS = 720  # on a plot: a screen cannot show more
MOST_RECEIPTS = 10_000
MODEL_RECEIPTS = 20
_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
_encode = msgspec.json.Encoder(enc_hook=str).encode


class _Wish(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request for an action, which must say that the user confirmed it."""

    model: str = ""
    version: int | None = None
    confirmed: bool = False


class Routes:
    """The functions that answer the routes of one page."""

    def __init__(self, page: Page, can_act: bool) -> None:
        self._page = page
        self._can_act = can_act
        self._actions = Actions(page.handler, page.drain, page.reload)

    def add_to(self, router: Router) -> None:
        """Register the routes."""
        router.add("GET", "/", self._to_page, role=Role.ANYBODY, summary="To the page")
        router.add("GET", "/page", self._to_page, role=Role.ANYBODY, summary="To the page")
        router.add("GET", "/page/", self._file, role=Role.ANYBODY, summary="The page")
        router.add("GET", "/page/{file}", self._file, role=Role.ANYBODY, summary="Its files")
        for path, answer, summary in (
            ("state", self._state, "What is resident and asked for, now"),
            ("stream", self._stream, "The same as server-sent events, as it changes"),
            ("series", self._series, "What was: curves over the last `seconds`"),
            ("models/{name}", self._model, "One model: signature, engine, errors, receipts"),
            ("stays", self._stays, "The stays that the events tell of"),
            ("stays.svg", self._drawing, "The same, drawn"),
            ("receipts.json", self._receipts, "Receipts, the newest first"),
            ("receipts.csv", self._table, "The same for a spreadsheet"),
        ):
            router.add("GET", f"/page/api/{path}", self._read(answer), summary=summary)
        post = ("POST", "/page/api/models/{name}/signature", self._read_signature)
        router.add(*post, summary="Open a model to read its signature")
        if not self._can_act:
            return
        act = ("POST", "/page/api/actions/{action}", self._act)
        router.add(*act, role=Role.ADMIN, summary="Load, unload, evict, pin, drain, reload")

    def _read(self, answer: Answering) -> Answering:
        async def checked(request: Request) -> Response:
            self._page.guard.check(request)
            response = await answer(request)
            response.headers = {**HEADERS, "Cache-Control": "no-store", **response.headers}
            return response

        return checked

    # -- files --------------------------------------------------------------------------------

    async def _to_page(self, request: Request) -> Response:
        return Response(307, headers={"Location": "/page/", **HEADERS})

    async def _file(self, request: Request) -> Response:
        name = request.parts.get("file", "index.html")
        found = _files().get(name)
        if found is None:
            raise Refused(Status.NOT_FOUND, f"the page has no file {name!r}")
        body, tag = found
        headers = {**HEADERS, "ETag": tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(304, headers=headers)
        return Response(200, body, _TYPES[name.rpartition(".")[2]], headers)

    # -- current state --------------------------------------------------------------------------

    async def _state(self, request: Request) -> Response:
        page = self._page
        shown = {"now": time.time(), "server": page.server(), "latest": page.latest()}
        shown |= {"snapshot": page.snapshot()}
        shown["receipts"] = [stays.row(r) for r in await page.history.receipts(10, _all)]
        return Response(200, _encode(shown))

    async def _stream(self, request: Request) -> Response:
        page = self._page
        try:
            messages = page.stream.client()
        except Full:
            raise Refused(Status.RESOURCE_EXHAUSTED, "too many are looking", 5.0) from None
        page.show()

        async def greeted() -> AsyncIterator[bytes]:
            hello = _encode({"now": time.time(), "can_act": self._can_act})
            yield b"event: hello\ndata: %s\n\n" % hello
            async for message in messages:
                yield message

        return Response(200, greeted(), "text/event-stream", {"X-Accel-Buffering": "no"})

    # -- history --------------------------------------------------------------------------------

    async def _series(self, request: Request) -> Response:
        parameters = request.parameters()
        seconds = _seconds(parameters.get("seconds", "3600"))
        history = self._page.history
        points = await history.points(parameters.get("model", EVERYTHING), seconds)
        # The points of a week would block the event loop for too long.
        shown = await asyncio.to_thread(_shown, points) if points[999:] else _shown(points)
        return Response(200, _encode({**shown, "is_kept": history.is_kept}))

    async def _stays(self, request: Request) -> Response:
        story, source = await self._page.story()
        return json_response(
            {
                "source": source,
                "sessions": len(story.sessions),
                "seconds": story.seconds,
                "peak_bytes": story.peak_bytes,
                "died": sum(len(session.broke_at) for session in story.sessions),
            }
        )

    async def _drawing(self, request: Request) -> Response:
        story, _ = await self._page.story()
        drawn = await asyncio.to_thread(stays.drawing, story)
        return Response(200, drawn.encode(), "image/svg+xml")

    async def _receipts(self, request: Request) -> Response:
        found = await self._page.history.receipts(MOST_RECEIPTS, _all)
        rows = await asyncio.to_thread(lambda: [stays.row(receipt) for receipt in found])
        return Response(200, _encode({"receipts": rows}))

    async def _table(self, request: Request) -> Response:
        found = await self._page.history.receipts(MOST_RECEIPTS, _all)
        body = await asyncio.to_thread(stays.to_csv, map(stays.row, found))
        return Response(200, body, "text/csv; charset=utf-8")

    # -- a model --------------------------------------------------------------------------------

    async def _model(self, request: Request) -> Response:
        page, name = self._page, request.parts["name"]
        page.handler.statuses(name)  # raises if the model is not known
        own = page.handler.catalogue.own_name
        receipts = await page.history.receipts(
            MODEL_RECEIPTS, lambda session: own(model_of(session)[0]) == name
        )
        about = {
            "name": name,
            **await self._known(name),
            "errors": _grouped(one for one in page.handler.failures if one.model == name),
            "receipts": [stays.row(receipt) for receipt in receipts],
        }
        return Response(200, _encode(about))

    async def _known(self, name: str) -> dict[str, Any]:
        """Facts that are known without opening the model, so that viewing it costs no memory."""
        page = self._page
        catalogue = page.handler.catalogue
        try:
            served = catalogue.resolve(ModelRef(name))
            signatures = served.signatures
            if not signatures and _is_resident(page.pool.stats(), served):
                await catalogue.signature(served)
                signatures = served.signatures
            elif not signatures and served.path:
                rules = served.options
                signatures = await asyncio.to_thread(
                    read_signatures, served.path, rules.signature, rules.tags
                )
        except (SojournError, OSError):
            return {"engine": "", "platform": "", "why": "", "signatures": {}}
        chosen, why = page.watching.engine(served.pool_name, served.version)
        return {
            "engine": served.engine or chosen or served.options.engine or "",
            "platform": platform_of(served.path) if served.path else "",
            "why": why,
            "signatures": {key: _plain(one.spec) for key, one in signatures.items()},
        }

    async def _read_signature(self, request: Request) -> Response:
        self._page.guard.check_action(request)
        found = await self._page.handler.metadata(ModelRef(request.parts["name"]))
        return json_response(
            {"signatures": {key: _plain(one.spec) for key, one in found.signatures.items()}}
        )

    # -- actions ----------------------------------------------------------------------------------

    async def _act(self, request: Request) -> Response:
        self._page.guard.check_action(request)
        try:
            wish = msgspec.json.decode(request.body, type=_Wish)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise invalid(f"the body: {error}") from None
        if not wish.confirmed:
            raise Refused(Status.FAILED_PRECONDITION, "`confirmed` must be true")
        words = await self._actions.perform(request.parts["action"], wish.model, wish.version)
        self._page.show()
        return json_response({"words": words})


def _is_resident(status: PoolStatus, served: Served) -> bool:
    return any(
        (copy.model, copy.version) == (served.pool_name, served.version)
        and copy.state in ("resident", "leased")
        for copy in status.copies
    )


def _plain(signature: Any) -> dict[str, Any]:
    return {
        side: {
            name: {"dtype": spec.dtype, "shape": None if spec.shape is None else list(spec.shape)}
            for name, spec in getattr(signature, side).items()
        }
        for side in ("inputs", "outputs")
    }


def _shown(points: Sequence[Point]) -> dict[str, Any]:
    few = thinned(points, MOST_POINTS)
    return {"columns": columns(few), "bars": bars(few), "points": len(points)}


def _grouped(failures: Iterable[Failure]) -> list[dict[str, Any]]:
    """Group equal failures, with their count and the time of the last; newest first."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for one in failures:
        before = found.pop((one.status, one.words), {"count": 0})
        found[one.status, one.words] = {**asdict(one), "count": before["count"] + 1}
    return list(reversed(found.values()))


def _all(session: str) -> bool:
    return True


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= 10 * 365 * 86400:
        raise invalid(f"seconds must be positive, not {text!r}")
    return seconds


@functools.cache
def _files() -> dict[str, tuple[bytes, str]]:
    """The page's files by name, each with a hash of its content; read at the first request."""
    folder = Path(__file__).with_name("assets")
    found = {}
    for file in (*folder.iterdir(), *(folder / "vendor").iterdir()):
        if file.suffix[1:] in _TYPES:
            body = file.read_bytes()
            found[file.name] = (body, f'"{hashlib.sha256(body).hexdigest()[:16]}"')
    return found
