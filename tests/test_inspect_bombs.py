"""Small files that would fill the memory of `sojourn inspect`, or keep it busy for ever."""

from __future__ import annotations

import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sojourn.errors import ModelError
from sojourn.probes.model_files import graphs, inspect_model, meta_graphs
from sojourn.probes.model_files.checkpoints import parse_index
from sojourn.probes.model_files.graphs import parse_graph
from sojourn.probes.model_files.meta_graphs import parse_saved_model
from sojourn.probes.model_files.onnx_files import parse_onnx
from sojourn.probes.model_files.ops import judge
from test_inspect_attacks import FILL, TABLE, dangers, told
from wire_writer import asset, collection, field, index_of, node, saved_model, signature


def test_what_is_counted_is_counted_before_it_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "_MOST_NODES", 100)
    monkeypatch.setattr(graphs, "_MOST_INPUTS", 100)
    monkeypatch.setattr(meta_graphs, "_MOST_NAMES", 100)
    for content, reason in (
        (field(2, field(1) * 200), "100 nodes"),  # empty functions
        (field(1, field(3) * 200), "100 inputs"),
    ):
        with pytest.raises(ModelError, match=reason):
            parse_graph(memoryview(content))
    sparse = field(5, field(2, field(2, field(2, field(4, field(1) * 200)))))
    composite = field(5, field(2, field(2, field(2, field(5, field(2) * 200)))))
    for content in (
        *(field(1, field(4) * 200), field(3, field(3) * 200), field(5) * 200, field(6) * 200),
        *(sparse, composite, collection("legacy_init_op", *[""] * 200)),
    ):
        with pytest.raises(ModelError, match="100 names"):
            parse_saved_model(memoryview(saved_model(content)))


_OF_A_PRINT = [
    field(5) * 20_000,  # attributes
    field(5, field(1, "a"), field(2) * 20_000),  # parts of one
    field(5, field(2, field(1, field(9) * 20_000))),  # functions in one
    field(5, field(2, field(10, field(2) * 20_000))),  # attributes of a function in one
]


@pytest.mark.parametrize(
    "content",
    [
        *(saved_model(field(2, field(1, field(2, "PrintV2"), more))) for more in _OF_A_PRINT),
        saved_model(
            field(
                4, field(1, "saved_model_assets"), field(2, field(5, field(1, field(2) * 20_000)))
            )
        ),
    ],
)
def test_what_is_empty_takes_no_more_memory_than_it_has_bytes(
    content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "_MOST_ATTRIBUTES", 100)
    assert _peak(_judged, content) < 5 * len(content) + 100_000


@pytest.mark.parametrize("content", [field(7, field(11, field(2) * 20_000)), field(7) * 20_000])
def test_parts_of_an_onnx_model_take_no_more_memory_than_they_have_bytes(content: bytes) -> None:
    assert _peak(parse_onnx, content) < 5 * len(content)


def _judged(content: memoryview) -> None:
    for meta in parse_saved_model(content):
        judge(meta)


def _peak(read: Callable[[memoryview], object], content: bytes) -> int:
    """What it takes at most to read this, or to refuse it."""
    tracemalloc.start()
    try:
        read(memoryview(content))
    except ModelError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak


def test_many_signatures_of_a_large_graph_are_walked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sojourn.probes.model_files.ops._MOST_STEPS", 5)
    graph = field(2, node("s", "SaveV2"), node("c", "Const"))
    signatures = [signature(f"s{i}", "s", "c") for i in range(3)]
    summary = told(tmp_path / "m", saved_model(graph, *signatures))
    assert dangers(summary) == {("SaveV2", "signature (any)")}


def test_findings_and_their_moments_have_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sojourn.probes.model_files.ops._MOST_DETAILS", 10)
    prints = [node(f"p{i}", "PrintV2", output_stream=f"file:///{i}") for i in range(30)]
    signatures = [signature(f"s{i}", "p0", "p29") for i in range(30)]
    content = saved_model(field(2, *prints), *signatures, collection("legacy_init_op", "p0"))
    summary = told(tmp_path / "m", content)
    assert sum(f.count for f in summary.findings) == 30
    assert len(summary.findings) == 11
    [first] = [f for f in summary.findings if f.detail.endswith("///0")]
    assert "when loading" in first.where
    assert len(first.where.split(", ")) <= 20


def test_tables_that_lead_everywhere_are_followed_only_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sojourn.probes.model_files.named_files._MOST_STEPS", 50)
    chain = [node(f"i{i}", "Identity", f"i{i + 1}") for i in range(100)]
    graph = field(2, node("t", TABLE, "h", "i0"), *chain, node("i100", "Identity", "i0"))
    summary = told(tmp_path / "m", saved_model(graph, asset("w", "a:0"), FILL))
    assert [f.detail for f in summary.findings] == ["a table, from an unknown file"]


def test_long_names_made_of_few_bytes_do_not_fill_the_memory() -> None:
    assert [w.name for w in parse_index(memoryview(index_of((0, b"ab"), (1, b"c"))))] == [
        "ab",
        "ac",
    ]
    [weight] = parse_index(memoryview(index_of((0, b"a" * 60_000))))
    assert len(weight.name) < 5000
    bomb = index_of((0, b"a" * 60_000), *[(60_000, b"")] * 5000)
    assert len(bomb) < 100_000
    with pytest.raises(ModelError, match="longer than any model's"):
        parse_index(memoryview(bomb))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_compressed_in_ways_without_bound_is_refused(
    tmp_path: Path, method: int
) -> None:
    path = tmp_path / "bomb.keras"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("config.json", b" " * 100)
    with pytest.raises(ModelError, match="compressed in a way that no Keras file is"):
        inspect_model(path)


def test_an_archive_with_an_endless_table_of_contents_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "many.keras"
    directory = b"PK\1\2" + bytes(42)
    count = (17 << 20) // len(directory)
    size = (count * len(directory)).to_bytes(4, "little")
    end = b"PK\5\6" + bytes(4) + b"\xff\xff" * 2 + size + bytes(6)
    path.write_bytes(b"PK\3\4" + bytes(26) + directory * count + end)
    with pytest.raises(ModelError, match="table of contents"):
        inspect_model(path)
