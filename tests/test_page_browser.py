"""The server's page in a real browser: what a person sees, does, and is kept from."""

from __future__ import annotations

import ast
import asyncio
import json
import math
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

import install_browser
import models
import sojourn
from sojourn.service.http.router import Role
from sojourn.service.operating import Operation
from sojourn.service.page.history import History
from sojourn.service.page.points import Point
from sojourn.service.server import Server
from sojourn.service.tokens import Tokens

pytestmark = pytest.mark.usefixtures("zygote")
SHOTS = Path(__file__).parent.parent / "build" / "page"
AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text()
NASTY = "<img src=x onerror='window.attacked=1'>\"'${1}"


@pytest.fixture(scope="module")
def browser(zygote: None) -> Iterator[Any]:
    path = install_browser.browser()
    if path is None:
        if os.environ.get("CI"):
            pytest.fail(f"CI must run these: {install_browser.HOW}")
        pytest.skip(f"no browser: {install_browser.HOW}")
    sync_api = pytest.importorskip("playwright.sync_api")
    # What uvloop makes once, its threads included, is there before anybody looks.
    uvloop.run(_resolve())
    with elsewhere(), sync_api.sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        chromium = playwright.chromium.launch(executable_path=path, args=arguments)
        os.environ["TMPDIR"] = tempfile.gettempdir()
        warm = chromium.new_page()  # the first page of a browser starts processes that stay
        warm.goto("about:blank")
        yield chromium
        chromium.close()


async def _resolve() -> None:
    await asyncio.get_running_loop().getaddrinfo("localhost", 80)


@contextmanager
def elsewhere() -> Iterator[None]:
    """What a browser writes all the time goes to a folder that the tests do not look at."""
    before = os.environ["TMPDIR"]
    folder = tempfile.mkdtemp(prefix="sojourn-browser-", dir="/tmp")
    os.environ["TMPDIR"] = folder
    try:
        yield
    finally:
        os.environ["TMPDIR"] = before
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def look(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens the page of a server. What the browser complains of fails the test."""
    contexts, complaints = [], []

    def look_at(server: Server, where: str = "", wanted: str | None = None, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        context.set_default_timeout(90_000)  # tells "never" from "at once", on a busy machine too
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"http://{server.http_address}/page/{where}")
        page.get_by_text("live" if wanted is None else wanted, exact=True).wait_for()
        return page

    look_at.complaints = complaints  # type: ignore[attr-defined]
    yield look_at
    for context in contexts:
        context.close()
    gone = "net::ERR_"  # the server was closed before its page
    assert [words for words in complaints if gone not in words] == []


@contextmanager
def serving(operation: Operation | None = None, **registered: Any) -> Iterator[Server]:
    with sojourn.Pool("1GiB") as pool:
        for name, model in registered.items():
            pool.register(name, model)
        with Server(pool, http="127.0.0.1:0", operation=operation) as server:
            yield server


def block(page: Any, name: str, state: str) -> Any:
    return page.locator(f".block[data-state={state}]").filter(has_text=name)


def press(page: Any, label: str) -> None:
    page.locator("main").get_by_role("button", name=label, exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name=label.split()[0], exact=True).click()


def test_loading_a_model_by_the_page_changes_the_bar(look: Any) -> None:
    with serving(adder=models.adder, big=models.holding(64)) as server:
        page = look(server)
        assert page.locator(".block").count() == 0
        page.get_by_role("navigation").get_by_role("link", name="big").click()
        press(page, "Load big")
        page.get_by_text("big is loaded").wait_for()
        page.get_by_role("link", name="Overview").click()
        block(page, "big", "idle").wait_for()
        [copy] = server.handler.catalogue.pool.stats().copies
        share = block(page, "big", "idle").evaluate(
            "e => e.offsetWidth / e.parentElement.offsetWidth"
        )
        assert share == pytest.approx(copy.bytes / 2**30, abs=0.02)
        page.get_by_role("navigation").get_by_role("link", name="big").click()
        press(page, "Unload big")
        page.get_by_text("big is no longer served; closed in").wait_for()
        page.get_by_role("cell", name="nothing").first.wait_for()  # its receipt
        page.get_by_role("link", name="Overview").click()
        page.get_by_text("Nothing is resident").wait_for()


def test_an_action_that_is_not_confirmed_is_not_done(look: Any) -> None:
    with serving(adder=models.adder) as server:
        page = look(server, "#/models/adder")
        page.get_by_role("button", name="Load adder", exact=True).click()
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Load adder", exact=True).click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        assert page.get_by_role("dialog").count() == 0
        assert page.get_by_role("button", name="Load adder", exact=True).evaluate(
            "e => e === document.activeElement"
        )
        assert server.handler.catalogue.pool.stats().copies == ()


def test_a_worker_killed_from_outside_shows_as_broken_and_comes_back(look: Any) -> None:
    with serving(adder=models.adder) as server:
        pool = server.handler.catalogue.pool
        with pool.lease("adder") as session:
            pid = session.pid
        page = look(server)
        block(page, "adder", "idle").wait_for()
        os.kill(pid, signal.SIGKILL)
        block(page, "adder", "broken").wait_for()
        page.get_by_text("was killed by SIGKILL").first.wait_for()
        page.get_by_role("navigation").get_by_role("link", name="adder").click()
        press(page, "Load adder")
        page.get_by_role("link", name="Overview").click()
        block(page, "adder", "idle").wait_for()
        assert block(page, "adder", "broken").count() == 0


def test_names_are_text_wherever_they_are_shown(look: Any) -> None:
    def build() -> Any:
        import tensorflow as tf

        v1 = tf.compat.v1
        x = v1.placeholder(tf.float32, [None, 2])
        return {NASTY: x}, {"</script><script>window.attacked=3</script>": x * 2}

    with serving(**{NASTY: build}) as server:
        server.call(lambda: server.handler.load(NASTY))
        page = look(server)
        page.locator(".block").filter(has_text=NASTY).wait_for()
        page.get_by_role("navigation").get_by_role("link", name=NASTY).click()
        page.get_by_role("heading", name=NASTY).wait_for()
        page.get_by_role("group", name=NASTY).wait_for()
        page.get_by_role("button", name="Run").click()
        page.get_by_role("heading", name="Answer").wait_for()
        # What is copied does what it says, too, whatever is in the names.
        command = page.get_by_label("curl", exact=True).inner_text()
        done = subprocess.run(
            ["bash", "-c", f"{command} --silent"], capture_output=True, timeout=60
        )
        assert json.loads(done.stdout)["model_name"] == NASTY, done
        page.get_by_text("Python, tritonclient").click()
        program = page.get_by_label("Python, tritonclient", exact=True).inner_text()
        texts = {
            node.value for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Constant)
        }
        assert NASTY in texts
        page.goto(f"http://{server.http_address}/page/#/receipts")
        page.locator(".chart svg").filter(has_text=NASTY[-20:]).wait_for()
        assert page.evaluate("window.attacked") is None
        assert page.locator("img[src=x]").count() == 0
        # And if markup ever got in, it would not run.
        markup = "<img src=x onerror='window.attacked=4'>"
        for way in (
            "document.body.innerHTML = m",
            "eval(m)",
            "document.body.setAttribute('onclick', m)",
        ):
            let_in = f"m => {{ try {{ {way}; return true }} catch {{ return false }} }}"
            assert not page.evaluate(let_in, markup)
        assert page.evaluate("window.attacked") is None
    assert all("olicy" in words or "Trusted" in words for words in look.complaints)
    look.complaints.clear()


def picture() -> Any:
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, 4, 4, 3], name="image")
    return {"image": x}, {"mean": tf.reduce_mean(x, [1, 2])}


PNG = (  # one red pixel
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00\x00\x00\x90wS\xde"
    b"\x00\x00\x00\x0cIDATx\x9cc\xf8\xcf\xc0\x00\x00\x03\x01\x01\x00\xc9\xfe\x92\xef\x00\x00\x00\x00"
    b"IEND\xaeB`\x82"
)


def test_a_model_is_tried_with_json_csv_and_an_image(look: Any) -> None:
    with serving(picture=picture, softmax=models.softmax_regression, adder=models.adder) as server:
        for name in ("picture", "adder"):
            server.call(lambda name=name: server.handler.load(name))
        page = look(server, "#/models/picture")
        files = page.locator("input[type=file]")
        files.set_input_files({"name": "red.png", "mimeType": "image/png", "buffer": PNG})
        page.get_by_text("red.png as [1, 4, 4, 3]").wait_for()
        page.get_by_role("button", name="Run").click()
        answer = page.get_by_label("mean, values")
        assert json.loads(answer.inner_text()) == pytest.approx([1.0, 0.0, 0.0])
        page.goto(f"http://{server.http_address}/page/#/models/adder")
        table = {"name": "rows.csv", "mimeType": "text/csv", "buffer": b"b,a\n10,1\n20,2\n"}
        page.locator("input[type=file]").first.set_input_files(table)
        page.get_by_role("button", name="Run").click()
        page.get_by_text("[11,22]").wait_for()
        curl = page.get_by_label("curl", exact=True).inner_text()
        assert "/v2/models/adder/infer" in curl
        assert '"data":[1,2]' in curl
        page.locator("textarea").first.fill("[1, 2, 3]")
        page.get_by_role("button", name="Run").click()
        page.get_by_role("heading", name="No answer").wait_for()
    look.complaints[:] = [c for c in look.complaints if "status of 500" not in c]


def write_history(path: Path, hours: float, model: str) -> int:
    async def write() -> int:
        history = History(path)
        await history.open()
        now, count = time.time(), int(hours * 360)
        for i in range(count):
            at = now - (count - i) * 10
            wave = math.sin(i / 300)
            asked = int(400 + 300 * wave)
            counts = {11: asked // 2, 12: asked // 3, 14: asked // 8, 17: max(1, asked // 60)}
            held = int((700 + 200 * wave) * 2**20)
            for name in ("", model):
                one = Point(at, name, 10.0, asked, int(i % 97 == 0), asked // 4, asked, held, 2**30)
                history.add([Point(**{**_fields(one), "histogram": counts})])
            if i % 90 == 0:
                receipt = {"at": at, "session": model, "held_bytes": held, "returned_bytes": held}
                more = {"peak_bytes": held, "seconds": 0.009, "runs": asked, "how": "closed"}
                history.add_receipt({**receipt, **more, "clean": True})
        await history.close()
        return count

    with ThreadPoolExecutor(1) as thread:  # in this one the browser's loop runs
        return thread.submit(lambda: asyncio.run(write())).result()


def _fields(point: Point) -> dict[str, Any]:
    return {name: getattr(point, name) for name in Point.__slots__}


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("history") / "history.db"
    assert write_history(path, 24, "adder") == 8640
    return path


def test_a_day_of_history_is_drawn_at_once(
    day: Path, look: Any, tmp_path: Path, record_property: Any
) -> None:
    path = Path(shutil.copy(day, tmp_path))
    with serving(Operation(history=str(path)), adder=models.adder) as server:
        page = look(server)
        page.locator(".plot canvas").nth(3).wait_for()
        page.evaluate("performance.clearMeasures()")
        began = time.monotonic()
        page.get_by_role("button", name="24 h").click()
        page.locator('.range[data-drawn="86400"]').wait_for()
        seconds = time.monotonic() - began
        drawn = page.evaluate("performance.getEntriesByName('sojourn-plots')[0].duration") / 1000
        record_property("seconds_from_press_to_plots", round(seconds, 3))
        record_property("seconds_drawing", round(drawn, 3))
        print(f"24 hours of history: {seconds:.3f} s after the press, {drawn:.3f} s of it drawing")
        # What is drawn is bounded, and stands for all of it: that is what makes it quick.
        series = page.evaluate("fetch('api/series?seconds=86400').then(r => r.json())")
        assert series["points"] >= 8600
        assert 300 < len(series["columns"]["at"]) <= 720
        assert sum(bar["count"] for bar in series["bars"]) > 3_000_000


VIEWS = {  # where each is, and what is there when it is drawn
    "overview": ("", ".block[data-state=leased]"),
    "model": ("#/models/adder", "textarea"),
    "receipts": ("#/receipts", ".chart svg"),
}


def words(violations: list[dict[str, Any]]) -> list[str]:
    return [
        f"{v['id']}: {v['help']}: " + "; ".join(n["html"][:120] for n in v["nodes"][:3])
        for v in violations
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_and_pictures_are_taken(
    day: Path, look: Any, tmp_path: Path, scheme: str
) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    path = Path(shutil.copy(day, tmp_path))
    # What the page is made of is the same in the dark: only its colours are others.
    rules = "" if scheme == "light" else "{runOnly: ['color-contrast']}"
    with serving(
        Operation(history=str(path)),
        adder=models.adder,
        big=models.holding(200),
        other=models.holding(120),
    ) as server:
        pool = server.handler.catalogue.pool
        for name in ("adder", "big", "other"):
            server.call(lambda name=name: server.handler.load(name))
        with pool.lease("other") as other:
            dead = other.pid
        os.kill(dead, signal.SIGKILL)
        with pool.lease("big"):
            page = look(server, color_scheme=scheme)
            page.evaluate(AXE)
            for name, (where, ready) in VIEWS.items():
                page.evaluate("where => { location.hash = where }", where)
                for width, height in ((1440, 900), (820, 1180), (390, 844)):
                    page.set_viewport_size({"width": width, "height": height})
                    page.locator(ready).first.wait_for()
                    taken = page.screenshot(full_page=True)
                    (SHOTS / f"{name}-{width}-{scheme}.png").write_bytes(taken)
                    wide = page.evaluate("document.documentElement.scrollWidth")
                    assert wide <= width, f"{name} is {wide} wide on a screen of {width}"
                    found = page.evaluate(f"axe.run({rules}).then(result => result.violations)")
                    assert words(found) == []


def test_everything_is_reached_by_keyboard(look: Any) -> None:
    with serving(adder=models.adder) as server:
        server.call(lambda: server.handler.load("adder"))
        page = look(server)
        block(page, "adder", "idle").wait_for()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        reached = set()
        for _ in range(30):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.textContent"))
        assert {"Overview", "adder", "Receipts", "1 h"} <= {text.strip() for text in reached}


def test_without_a_connection_the_page_says_so_and_comes_back(look: Any) -> None:
    with sojourn.Pool() as pool:
        pool.register("adder", models.adder)
        with Server(pool, http="127.0.0.1:0") as server:
            address = server.http_address
            page = look(server)
        page.get_by_text("reconnecting").wait_for()
        with Server(pool, http=address):
            page.get_by_text("live", exact=True).wait_for()
            page.get_by_role("navigation").get_by_role("link", name="adder").wait_for()
            page.context.close()
    look.complaints.clear()  # that the server was away


def test_a_server_with_tokens_shows_itself_to_those_who_have_one(look: Any) -> None:
    reader, admin = "reader-of-this-server", "admin-of-this-server"
    tokens = Tokens([(Role.INFER, reader), (Role.ADMIN, admin)])
    with serving(Operation(tokens=tokens), adder=models.adder) as server:
        page = look(server, "#/models/adder", "token wanted")
        page.get_by_label("Bearer token").fill(reader)
        page.get_by_role("button", name="Use it").click()
        page.get_by_text("live", exact=True).wait_for()
        press(page, "Load adder")
        page.get_by_role("dialog").get_by_text("this token may only infer").wait_for()
        assert server.handler.catalogue.pool.stats().copies == ()
        page.get_by_label("Bearer token").fill(admin)
        page.get_by_role("button", name="Use it").click()
        page.get_by_text("live", exact=True).wait_for()
        press(page, "Load adder")
        page.get_by_text("adder is loaded").wait_for()
        assert admin not in page.content()
    look.complaints.clear()  # that it was refused


def test_the_nodes_of_a_cluster_are_shown_where_there_is_one(look: Any) -> None:
    copies = [{"model": "bert", "state": "open", "bytes": 2**28, "leases": 1, "runs": 9}]
    node = {"node": "left", "id": "1", "address": "10.0.0.1:7", "devices": ["cpu"], "calls": 1}
    node |= {"budget_bytes": 2**30, "held_bytes": 2**28, "copies": copies}
    other = {**node, "node": NASTY, "id": "2", "copies": []}
    status = {"nodes": [node, other], "lost": []}
    with serving(Operation(cluster=lambda: status), adder=models.adder) as server:
        page = look(server)
        page.get_by_role("link", name="Cluster").click()
        block(page, "bert", "leased").wait_for()
        page.get_by_role("heading", name=NASTY).wait_for()
        assert page.get_by_role("row").count() == 3
