"""What the server's page is told, who may have it do what, and what it remembers."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import models
import sojourn
import web
from served_models import write_version
from sojourn.cli import top_server
from sojourn.cli.main import main
from sojourn.cli.top_server_view import ServerView
from sojourn.events import Event
from sojourn.pool.decisions.status import CopyStatus, ModelStatus, PoolStatus, SpareStatus
from sojourn.service.catalogue import Catalogue
from sojourn.service.failures import Refused
from sojourn.service.http.messages import Request
from sojourn.service.inference import ModelRef
from sojourn.service.operating import Operation
from sojourn.service.page import points, snapshot, stays
from sojourn.service.page.guard import SECRET_HEADER, Guard
from sojourn.service.page.history import History
from sojourn.service.page.page import Page
from sojourn.service.page.points import EVERYTHING, Counts, Point
from sojourn.service.page.stream import Full, Stream
from sojourn.service.page.watching import (
    MOST_LINES,
    MOST_SESSIONS,
    MOST_STEPS,
    Watching,
    model_of,
)
from sojourn.service.rules import ModelRules

ASSETS = Path(snapshot.__file__).parent / "assets"
CLOCK = snapshot.Clock(1_000_000.0)


# -- points ------------------------------------------------------------------------------------


def point(at: float, **facts: Any) -> Point:
    return Point(at, facts.pop("model", EVERYTHING), facts.pop("seconds", 10.0), **facts)


def test_points_that_are_merged_have_the_percentiles_of_all_their_requests():
    fast, slow = (
        point(10, requests=90, histogram={10: 90}),
        point(20, requests=10, histogram={20: 10}),
    )
    [p50], [p99] = (points.columns([points.merged([fast, slow])])[name] for name in ("p50", "p99"))
    assert 0.0005 < p50 <= 0.001024
    assert 0.5 < p99 <= 1.05
    both = points.merged([fast, slow])
    assert (both.requests, both.seconds, both.at) == (100, 20.0, 20)


def test_thinning_keeps_every_request_and_the_most_that_was_held():
    many = [point(i * 10.0, requests=1, held_bytes=i % 97) for i in range(8640)]
    few = points.thinned(many, 720)
    assert len(few) == 720
    assert sum(one.requests for one in few) == 8640
    assert max(one.held_bytes for one in few) == 96


def test_a_model_that_counts_from_zero_again_has_not_done_less_than_nothing():
    before = Counts(100, 5, 50, 80, [0, 100])
    assert points.difference(Counts(103, 6, 52, 83, [1, 102]), before) == Counts(3, 1, 2, 3, [1, 2])
    assert points.difference(Counts(2, 0, 2, 2, [2]), before) == Counts(2, 0, 2, 2, [2])


def test_where_nothing_was_asked_there_is_no_latency():
    table = points.columns([point(10.0)])
    assert (table["p99"], table["batch"], table["requests"]) == ([None], [None], [0.0])


# -- a moment ------------------------------------------------------------------------------------


def copy(name: str, state: str, **facts: Any) -> CopyStatus:
    model, version = model_of(name)
    plain = {"bytes": 100, "runs": 3, "changed": False, "holders": (), **facts}
    return CopyStatus(name, model, version, 0, 1, state, **plain)


def taken(
    status: PoolStatus, broken: dict[str, tuple[float, str]] | None = None, **more: Any
) -> Any:
    over: Any = lambda what, name: 7.0 if what == "closing" else None  # noqa: E731
    facts: dict[str, Any] = {"versions": [], "counts": {}, "held": {}, "incidents": (), **more}
    return snapshot.take(
        status,
        facts["versions"],
        facts["counts"],
        facts["held"],
        broken or {},
        over,
        facts["incidents"],
        CLOCK,
        5.0,
        own_name=facts.get("own_name", str),
    )


def pool_of(*copies: CopyStatus, spares: tuple[SpareStatus, ...] = ()) -> PoolStatus:
    names = {(c.model, c.version) for c in copies} | {("gone", 1)}
    known = tuple(ModelStatus(*key, True, "serving", 1, 0, 0) for key in sorted(names))
    return PoolStatus(300, 1000, 1, 1, 0, spares=spares, copies=copies, models=known)


def test_each_copy_is_a_block_with_its_state_and_what_it_counts_down_to():
    status = pool_of(
        copy("a", "resident", leaves_at=65.0),
        copy("b@2", "leased"),
        copy("c[1]", "being closed"),
        copy("d", "being opened"),
        spares=(SpareStatus("ready", 20),),
    )
    blocks = {block.name: block for block in taken(status).blocks}
    assert [b.state for b in blocks.values()] == ["idle", "leased", "closing", "opening", "spare"]
    assert blocks["a"].until == 1_000_065.0
    assert (blocks["b@2"].model, blocks["b@2"].version) == ("b", 2)
    assert blocks["c[1]"].until == 1_000_007.0  # when its receipt is due
    assert blocks["d"].until is None  # nothing of it was opened before


def test_nothing_of_a_snapshot_changes_while_only_time_passes():
    status = pool_of(copy("a", "resident", leaves_at=65.0))
    assert taken(status) == taken(status)


def test_a_worker_that_died_is_shown_until_its_model_is_back():
    broken = {"gone": (50.0, "was killed by SIGKILL"), "stranger": (50.0, "not of this pool")}
    [block] = taken(pool_of(), broken).blocks
    assert (block.state, block.words, block.since) == ("broken", "was killed by SIGKILL", 50.0)
    [dying] = taken(pool_of(copy("gone", "being closed")), broken).blocks
    assert dying.state == "broken"
    [back] = taken(pool_of(copy("gone", "being opened")), broken).blocks
    assert back.state == "opening"


def test_a_worker_of_a_second_name_that_died_is_shown_by_the_models_own():
    status, died = pool_of(copy("m", "resident")), {"m#2": (9.0, "killed")}
    blocks = taken(status, died, own_name=lambda name: name.partition("#")[0]).blocks
    assert [(block.model, block.state) for block in blocks] == [("m", "idle"), ("m", "broken")]


def test_what_events_tell_is_remembered_within_bounds():
    receipts: list[Any] = []
    watching = Watching(lambda: None, receipts.append)

    def tell(kind: str, session: str, host_bytes: int = 0, **detail: Any) -> None:
        watching._hear(Event(kind, session, None, host_bytes, detail))

    tell("engine.chosen", "m@2[0]", engine="litert", why="4 times as fast")
    tell("session.opening", "m@2[0]")
    tell("session.ready", "m@2[0]", 7)
    assert watching.engine("m", 2) == ("litert", "4 times as fast")
    assert watching.engine("m", 1) == ("", "")
    assert watching.held() == {"m@2[0]": 7}
    for is_known in (False, True):  # how long it takes: by those that were closed before
        tell("session.draining", "m@2[0]")
        assert (watching.is_over_at("closing", "m@2[0]") is not None) == is_known
        tell("session.closed", "m@2[0]")
    tell("session.receipt", "m@2[0]", receipt={"held_bytes": 7})
    assert [one["session"] for one in receipts] == ["m@2[0]"]
    tell("worker.died", "n", how="was killed by SIGKILL", worker_pid=5)
    [incident] = watching.incidents()
    assert incident.words == "was killed by SIGKILL, worker pid 5"
    for number in range(3 * MOST_SESSIONS):
        for kind in ("session.opening", "session.ready", "session.steps", "session.broken"):
            tell(kind, f"s{number}", 1)
    assert len(watching.broken()) == MOST_SESSIONS
    assert len(watching.lines()) == MOST_LINES + MOST_STEPS


# -- those who look -----------------------------------------------------------------------------


def test_a_client_gets_everything_first_and_then_only_what_changed():
    async def main() -> None:
        stream = Stream()
        stream.put("a", b"1")
        stream.put("b", b"2")
        client = stream.client()
        assert (await anext(client)).startswith(b"retry")
        assert await anext(client) == b"event: a\ndata: 1\n\nevent: b\ndata: 2\n\n"
        stream.put("a", b"1")
        stream.put("b", b"3")
        stream.put("b", b"4")
        assert await anext(client) == b"event: b\ndata: 4\n\n"
        await client.aclose()
        assert not stream.has_clients

    asyncio.run(main())


def test_clients_are_bounded_let_go_at_the_end_and_hear_that_the_server_is_there():
    async def main() -> None:
        stream = Stream(most_clients=1, beat_seconds=0.01)
        client = stream.client()
        await anext(client)
        with pytest.raises(Full):
            stream.client()
        assert await anext(client) == b": still here\n\n"
        stream.end()
        assert [message async for message in client] == []
        assert not stream.has_clients

    asyncio.run(main())


def test_a_page_that_is_told_something_as_it_stops_stops():
    async def main(pool: sojourn.Pool, ticks: int) -> None:
        catalogue = SimpleNamespace(pool=pool)
        page = Page(SimpleNamespace(catalogue=catalogue, statistics=list))  # type: ignore[arg-type]
        await page.start()
        for _ in range(3):
            await asyncio.sleep(0)
        page._woken.set()
        for _ in range(ticks):
            await asyncio.sleep(0)
        done, _ = await asyncio.wait({asyncio.ensure_future(page.stop())}, timeout=5)
        assert done

    with sojourn.Pool() as pool:
        for ticks in range(5):
            asyncio.run(main(pool, ticks))


# -- history ------------------------------------------------------------------------------------


def test_history_survives_a_restart_and_without_a_file_it_does_not(tmp_path: Path):
    path = tmp_path / "history.db"
    now = time.time()
    receipt = {"at": now, "session": "m", "held_bytes": 5, "clean": True}

    async def main() -> None:
        first = History(path)
        await first.open()
        first.add([point(now - 7200, requests=1), point(now, requests=2, histogram={3: 2})])
        first.add_receipt(receipt)
        await first.close()
        again = History(path)
        await again.open()
        assert [p.requests for p in await again.points(EVERYTHING, 3600)] == [2]
        assert [p.requests for p in await again.points(EVERYTHING, 86400)] == [1, 2]
        assert await again.receipts(10, lambda session: session == "m") == [receipt]
        assert again.is_kept
        await again.close()
        memory = History()
        await memory.open()
        assert (await memory.points(EVERYTHING, 86400), memory.is_kept) == ([], False)
        await memory.close()

    asyncio.run(main())


def test_history_is_bounded_in_age_and_size(tmp_path: Path):
    path = tmp_path / "history.db"
    now = time.time()

    async def main() -> None:
        history = History(path, keep_seconds=1000, max_bytes=200_000, prune_seconds=0)
        await history.open()
        for batch in range(20):
            at = now - 900 + batch * 45
            history.add(
                point(at + i / 10, histogram=dict.fromkeys(range(20), 9)) for i in range(400)
            )
            history.add([point(at - 5000, model="old")])
            await history.write()
        kept = await history.points(EVERYTHING, 7200)
        await history.close()
        assert 0 < len(kept) < 8000
        assert kept[-1].at == pytest.approx(now - 900 + 19 * 45 + 39.9)

    asyncio.run(main())
    with sqlite3.connect(path) as file:
        assert file.execute("SELECT count(*) FROM points WHERE model = 'old'").fetchone() == (0,)
    file.close()
    assert path.stat().st_size < 1_000_000


@pytest.mark.parametrize("damage", [b"m\xfe", b"", b"\xc1", 7])
def test_what_is_damaged_in_the_file_costs_nothing_else(tmp_path: Path, damage: object):
    path = tmp_path / "history.db"
    now = time.time()

    async def filled() -> None:
        history = History(path)
        await history.open()
        history.add([point(now - 2, requests=1, model="m1"), point(now - 1, requests=2)])
        for session in ("one", "two"):
            history.add_receipt({"at": now, "session": session})
        await history.close()

    asyncio.run(filled())
    with sqlite3.connect(path) as file:
        for table, which in (("points", "model = 'm1'"), ("receipts", "session = 'one'")):
            body: object = damage
            if damage == b"m\xfe":  # a byte in the midst of text
                [(whole,)] = file.execute(f"SELECT body FROM {table} WHERE {which}")
                body = whole.replace(b"m1", damage).replace(b"one", b"\xfene")
            file.execute(f"UPDATE {table} SET body = ? WHERE {which}", (body,))
    file.close()

    async def read() -> None:
        history = History(path)
        await history.open()
        assert [p.requests for p in await history.points(EVERYTHING, 3600)] == [2]
        assert await history.points("m1", 86400) == []
        found = await history.receipts(10, lambda session: True)
        assert [receipt["session"] for receipt in found] == ["two"]
        assert history.problem == ""
        await history.close()

    asyncio.run(read())


def test_a_file_that_cannot_be_written_costs_the_history_and_nothing_else(tmp_path: Path):
    stranger = tmp_path / "notes.txt"
    stranger.write_text("not a database, but long enough to look like one" * 100)

    async def main() -> None:
        for path in (stranger, tmp_path / "missing" / "history.db"):
            history = History(path)
            await history.open()
            history.add([point(time.time(), requests=7)])
            await history.write()
            assert [p.requests for p in await history.points(EVERYTHING, 7200)] == [7]
            assert str(path) in history.problem
            await history.close()

    asyncio.run(main())
    assert "not a database" in stranger.read_text()


# -- who may ask --------------------------------------------------------------------------------


def asked(guard: Guard, **headers: str) -> Request:
    given = {"host": "127.0.0.1:8501", SECRET_HEADER: guard.secret, **headers}
    return Request("POST", "/", headers={key.replace("_", "-"): v for key, v in given.items()})


def test_actions_come_from_the_page_itself_or_not_at_all():
    guard = Guard(["models.example"])
    for fine in (
        {},
        {"origin": "http://127.0.0.1:8501", "sec_fetch_site": "same-origin"},
        {"host": "localhost:8501", "origin": "http://localhost:8501"},
        {"host": "[::1]:8501"},
        {"host": "models.example"},
    ):
        guard.check_action(asked(guard, **fine))
    for foul in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {SECRET_HEADER: "guessed"},
        {SECRET_HEADER: ""},
        {"host": "evil.example", "origin": "http://evil.example"},  # a name that leads here
        {"host": "evil.example:8501"},
        {"host": "evil.example", "authorization": "Bearer made-up"},
        {"host": "127.0.0.1.evil.example"},
        {"host": ""},
    ):
        with pytest.raises(Refused):
            guard.check_action(asked(guard, **foul))
    with_tokens = Guard(wants_token=lambda: True)  # a request that comes here has shown one
    with_tokens.check_action(asked(with_tokens, host="proxy.example"))


# -- a server -----------------------------------------------------------------------------------


@contextmanager
def serving(history: Path | None = None, **registered: Any) -> Iterator[sojourn.Server]:
    with sojourn.Pool("1GiB") as pool:
        for name, model in registered.items():
            pool.register(name, model)
        operation = Operation(history=None if history is None else str(history))
        with web.serving(pool, operation=operation) as server:
            yield server


def ask(
    server: sojourn.Server, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, bytes]:
    answered = web.ask(server, path, body, method, **headers)
    return answered.status, answered.body


def got(server: sojourn.Server, path: str) -> Any:
    status, body = ask(server, "GET", f"/page/api/{path}")
    assert status == 200, body
    return json.loads(body)


def act(server: sojourn.Server, action: str, model: str = "", **more: Any) -> tuple[int, Any]:
    secret = got(server, "state")["server"]["secret"]
    wish = {"model": model, "confirmed": True, **more}
    status, body = ask(server, "POST", f"/page/api/actions/{action}", wish, x_sojourn_page=secret)
    return status, json.loads(body)


def infer(server: sojourn.Server, model: str, **inputs: float) -> tuple[int, bytes]:
    given = [
        {"name": name, "datatype": "FP32", "shape": [1], "data": [value]}
        for name, value in inputs.items()
    ]
    return ask(server, "POST", f"/v2/models/{model}/infer", {"inputs": given})


def test_the_page_and_its_files_are_served_with_a_policy_that_lets_nothing_in(zygote: None):
    with serving() as server:
        answered = web.ask(server, "/page/")
        text, policy = answered.body.decode(), answered.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "style=" not in text
        assert "<style" not in text
        assert "http" not in text.replace("https://", "http")  # nothing from elsewhere
        for file in [
            *ASSETS.glob("*.*"),
            *ASSETS.glob("vendor/*.js"),
            *ASSETS.glob("vendor/*.css"),
        ]:
            status, body = ask(server, "GET", f"/page/{file.name}")
            assert (status, body) == (200, file.read_bytes())
        assert ask(server, "GET", "/page/..%2Fpage.py")[0] == 404
        assert ask(server, "GET", "/")[0] == 307


def test_the_files_of_the_page_are_small_and_come_with_their_licences():
    files = [file for file in ASSETS.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 200_000
    for library in ASSETS.glob("vendor/*.js"):
        assert "MIT" in library.with_suffix(".LICENSE").read_text()


def test_what_is_resident_asked_and_given_back_is_told(zygote: None):
    with serving(adder=models.adder) as server:
        assert infer(server, "adder", a=1, b=2)[0] == 200
        assert infer(server, "adder", a=1)[0] == 400
        state = got(server, "state")
        [block] = state["snapshot"]["blocks"]
        assert (block["name"], block["state"], block["runs"]) == ("adder", "idle", 1)
        assert block["held_bytes"] > 2**20
        [row] = state["snapshot"]["models"]
        assert (row["state"], row["requests"], row["failures"]) == ("AVAILABLE", 2, 1)
        about = got(server, "models/adder")
        assert list(about["signatures"]) == ["serving_default"]
        [error] = about["errors"]
        assert (error["status"], error["count"]) == ("INVALID_ARGUMENT", 1)
        status, outcome = act(server, "evict", "adder")
        assert (status, outcome["words"]) == (200, "adder was evicted, its memory is back")
        [receipt] = got(server, "receipts.json")["receipts"]
        assert (receipt["session"], receipt["left_behind"], receipt["runs"]) == ("adder", "", 1)
        assert receipt["returned_bytes"] == receipt["held_bytes"] > 2**20
        table = list(
            csv.reader(io.StringIO(ask(server, "GET", "/page/api/receipts.csv")[1].decode()))
        )
        assert (table[0][1], table[1][1]) == ("session", "adder")
        assert b"<svg" in ask(server, "GET", "/page/api/stays.svg")[1]
        assert got(server, "stays")["sessions"] == 1


def test_to_look_at_a_model_does_not_open_it(zygote: None):
    with serving(adder=models.adder) as server:
        about = got(server, "models/adder")
        assert (about["signatures"], about["receipts"], about["errors"]) == ({}, [], [])
        assert got(server, "state")["snapshot"]["blocks"] == []
        assert ask(server, "GET", "/page/api/models/unknown")[0] == 404


def test_what_a_models_files_tell_is_known_before_it_is_opened(zygote: None, tmp_path: Path):
    with sojourn.Pool() as pool:
        catalogue = Catalogue(pool, {"m": str(write_version(tmp_path / "m", 3))})
        with web.serving(catalogue) as server:
            about = got(server, "models/m")
            assert about["platform"] == "onnxruntime_onnx"
            inputs = about["signatures"]["serving_default"]["inputs"]
            assert inputs == {"x": {"dtype": "float32", "shape": [None, 4]}}
            assert pool.stats().copies == ()


def test_a_model_that_backs_off_can_be_unpinned_and_evicted(zygote: None):
    with serving(adder=models.adder) as server:
        server.call(lambda: server.handler.load("adder"))
        served = server.handler.catalogue.resolve(ModelRef("adder"))
        for _ in range(10):  # until that takes longer than this test
            served.trouble.record("it died", time.monotonic())
        assert infer(server, "adder", a=1, b=2)[0] == 503
        for action in ("pin", "unpin", "evict"):
            assert act(server, action, "adder")[0] == 200
            path = f"/admin/models/adder/{action}"
            assert ask(server, "POST", path, {})[0] == 200


def test_each_action_says_how_it_went(zygote: None):
    with serving(adder=models.adder) as server:
        assert act(server, "load", "adder") == (200, {"words": "adder is loaded"})
        assert act(server, "pin", "adder")[0] == 200
        [block] = got(server, "state")["snapshot"]["blocks"]
        assert (block["pinned"], block["until"]) == (True, None)
        assert act(server, "unpin", "adder")[0] == 200
        status, outcome = act(server, "unload", "adder")
        assert status == 200
        assert "adder is no longer served; closed in" in outcome["words"]
        assert act(server, "load", "unknown")[0] == 404
        assert act(server, "explode", "adder")[0] == 404
        for action in ("drain", "reload"):
            assert act(server, action)[0] == 501  # its program does that


def test_a_model_with_new_settings_is_shown_evicted_and_pinned_by_its_own_name(
    zygote: None, tmp_path: Path
):
    path = str(write_version(tmp_path / "m", 1))
    with sojourn.Pool() as pool:
        catalogue = Catalogue(pool, {"m": path})
        with web.serving(catalogue) as server:
            rules = {"m": ModelRules(path=path, max_runs=100)}
            assert act(server, "load", "m")[0] == 200
            server.call(lambda: server.handler.reload(rules))
            assert [copy.model for copy in pool.stats().copies] == ["m#2"]
            shown = got(server, "state")["snapshot"]
            assert [(block["model"], block["state"]) for block in shown["blocks"]] == [
                ("m", "idle")
            ]
            assert [(row["name"], row["copies"]) for row in shown["models"]] == [("m", 1)]
            page = server.operating.page
            assert page is not None
            page._sample()
            assert {point.model for point in page.history.newest()} == {EVERYTHING, "m"}
            assert act(server, "pin", "m")[0] == 200
            assert [copy.pinned for copy in pool.stats().copies] == [True]
            assert act(server, "unpin", "m")[0] == 200
            words = {"words": "m was evicted, its memory is back"}
            assert act(server, "evict", "m") == (200, words)
            assert pool.stats().copies == ()
            receipts = [one["session"] for one in got(server, "models/m")["receipts"]]
            assert "m#2" in receipts


def test_nothing_is_done_by_get_unconfirmed_or_for_another_site(zygote: None):
    with serving(adder=models.adder) as server:
        secret = got(server, "state")["server"]["secret"]
        wish = {"model": "adder", "confirmed": True}
        act_path = "/page/api/actions/load"
        assert ask(server, "GET", act_path)[0] == 405
        assert ask(server, "POST", act_path, wish)[0] == 403
        assert ask(server, "POST", act_path, {"model": "adder"}, x_sojourn_page=secret)[0] == 400
        assert ask(server, "POST", act_path, b'{"model": "\xff"}', x_sojourn_page=secret)[0] == 400
        foreign = {"x_sojourn_page": secret, "origin": "http://evil.example"}
        assert ask(server, "POST", act_path, wish, **foreign)[0] == 403
        assert ask(server, "GET", "/page/api/state", host="evil.example")[0] == 403
        assert got(server, "state")["snapshot"]["blocks"] == []


def test_what_was_counted_is_there_after_a_restart(zygote: None, tmp_path: Path):
    path = tmp_path / "history.db"
    with serving(path, adder=models.adder) as server:
        infer(server, "adder", a=1, b=2)
        act(server, "evict", "adder")
    with serving(path, adder=models.adder) as server:
        series = got(server, "series?seconds=86400")
        assert series["is_kept"]
        assert sum(bar["count"] for bar in series["bars"]) == 1
        assert got(server, "series?seconds=3600&model=adder")["points"] >= 1
        assert [r["session"] for r in got(server, "receipts.json")["receipts"]] == ["adder"]
        assert ask(server, "GET", "/page/api/series?seconds=-1")[0] == 400


def test_a_cell_that_a_spreadsheet_would_run_is_text():
    table = stays.to_csv([stays.row({"session": "=cmd()", "clean": True, "at": 1.0})]).decode()
    assert "'=cmd()" in table


def test_top_shows_the_same_in_a_terminal(zygote: None):
    with serving(adder=models.adder, other=models.adder) as server:
        infer(server, "adder", a=1, b=2)
        infer(server, "other", a=1, b=2)
        act(server, "evict", "other")
        url = f"http://{server.http_address}"
        shown = CliRunner().invoke(main, ["top", "--url", url, "--once"])
        assert shown.exit_code == 0, shown.output
        assert f"{url}  sojourn" in shown.output
        assert re.search(r"\[▓+·", shown.output)
        lines = [line.split() for line in shown.output.splitlines()]
        assert ["adder", "idle"] in [line[:2] for line in lines]
        assert ["other", "1", "available"] in [line[:3] for line in lines]
        assert any(
            line[:1] == ["other"] and line[-3:] == "nothing left behind".split() for line in lines
        )
        printed = json.loads(CliRunner().invoke(main, ["top", "--url", url, "--json"]).output)
        assert [block["name"] for block in printed["snapshot"]["blocks"]] == ["adder"]
        assert "secret" not in printed["server"]
    gone = CliRunner().invoke(main, ["top", "--url", url, "--once"])
    assert gone.exit_code == 1
    assert "does not answer" in gone.output


def test_the_bar_in_a_terminal_has_a_part_for_each_copy_and_names_move_no_cursor():
    block = {"held_bytes": 1, "runs": 0, "leases": 2, "pinned": False, "since": 0.0, "until": 60.0}
    named = {"name": "a\x1b[2J", "words": ""}
    blocks = [
        {**block, **named, "state": state, "bytes": 25} for state in ("leased", "idle", "closing")
    ]
    budget = {"charged_bytes": 75, "limit_bytes": 100}
    assert (
        top_server.bar(budget, blocks, 42) == "[" + "█" * 10 + "▓" * 10 + "▒" * 10 + "·" * 10 + "]"
    )
    snapshot = {"budget": budget, "blocks": blocks, "waits": [], "incidents": []}
    lines = top_server.overview({"snapshot": snapshot, "now": 48.0, "latest": {}})
    assert not any("\x1b" in line for line in lines)
    assert lines[4].endswith("by 2 requests")
    assert lines[5].endswith("leaves in 12 s")
    assert lines[6].endswith("receipt in 12 s")


def test_the_live_view_turns_between_the_views_of_a_server():
    state = {
        "now": 1.0,
        "server": {"version": "1", "name": "here", "started": 0.0},
        "snapshot": {
            "budget": {"charged_bytes": 0, "limit_bytes": None},
            "blocks": [],
            "waits": [],
            "incidents": [],
            "models": [],
        },
        "latest": {},
        "receipts": [],
    }

    async def look() -> None:
        app = ServerView(lambda: state, "http://x", 60.0)
        async with app.run_test() as pilot:
            await app.workers.wait_for_complete()
            await pilot.pause()
            seen = []
            for key in "123":
                await pilot.press(key)
                seen.append(str(app.query_one("#view").render()).strip())
            assert "nothing is resident" in seen[0]
            assert seen[1:] == ["no model is served", "nothing has been closed yet"]

    asyncio.run(look())
