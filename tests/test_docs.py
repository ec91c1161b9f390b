"""The pages lead somewhere: links resolve, every page can be found, nothing public is left out."""

from __future__ import annotations

import inspect
import re
import runpy
from pathlib import Path

import pytest

import sojourn
from sojourn.cli.main import COMMANDS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^()\s]+)\)")


def prose(page: Path) -> str:
    """The page without its blocks of code, where brackets mean something else."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """What can stand behind the # of a link to this page, as GitHub makes it of the headings."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} +(.+?) *$", prose(page), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found[anchor] = found.get(anchor, 0) + 1
    repeated = {f"{a}-{n}" for a, times in found.items() for n in range(1, times)}
    return found.keys() | repeated


def links(page: Path) -> list[tuple[Path, str]]:
    """The files and anchors that a page links to; addresses on the network are not looked at."""
    found = []
    for link in _LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        found.append(((page.parent / file).resolve() if file else page, anchor))
    return found


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for target, anchor in links(page):
        assert target.exists(), f"{page.name} links to {target}, which is not there"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {target.name} has no #{anchor}"


def test_every_page_can_be_reached_from_the_index() -> None:
    reached, ahead = set(), [DOCS / "index.md"]
    while ahead:
        page = ahead.pop()
        if page not in reached and page.suffix == ".md":
            reached.add(page)
            ahead += [target for target, _ in links(page)]
    assert set(DOCS.glob("*.md")) <= reached


def test_the_index_names_every_page_itself() -> None:
    assert set(DOCS.glob("*.md")) - {DOCS / "index.md"} <= {t for t, _ in links(DOCS / "index.md")}


def test_every_command_is_in_the_index_with_a_page_of_its_own_words() -> None:
    text = (DOCS / "index.md").read_text()
    for command in COMMANDS:
        assert f"| `sojourn {command}` |" in text, command


def test_every_public_name_is_explained_on_a_page() -> None:
    text = "".join(page.read_text() for page in PAGES if page.name != "index.md")
    words = set(
        re.findall(r"\w+", "".join(re.findall(r"`[^`\n]+`|^```.*?^```", text, re.M | re.S)))
    )
    assert {name for name in sojourn.__all__ if not name.startswith("_")} <= words


def test_every_code_that_can_be_found_has_a_section() -> None:
    from sojourn.audit import CODES

    assert {code.lower() for code in CODES} <= anchors(DOCS / "codes.md")


def test_every_example_is_run_by_a_test() -> None:
    tests = "".join(
        path.read_text()
        for path in Path(__file__).parent.glob("*.py")
        if path.name != "test_docs.py"
    )
    for example in sorted((ROOT / "examples").glob("*.py")):
        assert example.stem in tests, f"no test runs {example.name}"


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_code_is_python(page: Path) -> None:
    for block in blocks(page):
        compile(block, page.name, "exec")


@pytest.mark.usefixtures("zygote")
@pytest.mark.parametrize(
    ("page", "which", "words"),
    [
        ("README.md", slice(1, 2), ["probabilities", "nothing left behind"]),
        ("docs/sessions.md", slice(None), ["<Session 'adder' ready", "nothing left behind"]),
        ("docs/services.md", slice(1), ["(200, [2.0, 4.0, 6.0])", "404"]),
        ("docs/libraries.md", slice(None), []),
    ],
)
def test_the_code_of_a_page_runs_as_pasted(
    page: str, which: slice, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "page.py"
    program.write_text("\n".join(blocks(ROOT / page)[which]))
    names = runpy.run_path(str(program), run_name="__main__")
    forget(names)
    told = capsys.readouterr().out
    assert all(word in told for word in words)


def forget(names: dict[str, object]) -> None:
    """What a page has made goes now: its functions would keep it until they are collected."""
    for function in filter(inspect.isfunction, list(names.values())):
        function.__globals__.clear()
    names.clear()


def test_every_file_that_the_map_names_is_there() -> None:
    text = (DOCS / "architecture.md").read_text()
    named = re.findall(r"`([a-z_]+/[a-z0-9_/]*(?:\.py)?)`", text)
    assert len(named) > 30
    places = (ROOT / "src" / "sojourn", ROOT)
    assert not [path for path in named if not any((place / path).exists() for place in places)]
