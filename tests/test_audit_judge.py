"""What the judge makes of facts: plain calls, no TensorFlow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sojourn.audit.facts import Facts, Growth, SessionRecord, Use
from sojourn.audit.finding import Finding
from sojourn.audit.judge import judge
from sojourn.audit.noqa import heard, is_silenced
from sojourn.values import Place

MIB = 2**20
HERE = Place("train.py", 10, "main")
THERE = Place("other.py", 20, "helper")


def session(serial: int = 1, **changes: Any) -> SessionRecord:
    closed = SessionRecord(
        serial, "Session", HERE, (HERE,), opened_at=float(serial), closed_at=serial + 0.5
    )
    return replace(closed, **changes)


def codes(*sessions: SessionRecord, **facts: Any) -> list[str]:
    return [f.code for f in judge(Facts(sessions, ended_at=100.0, **facts))]


def growths(count: int, place: Place = HERE, graph: int = 1) -> list[Growth]:
    return [Growth(graph, float(n), n + 2, 10 + n, 11 + n, ((place, 1),)) for n in range(count)]


def test_a_closed_session_is_no_finding() -> None:
    assert codes(session()) == []


def test_an_unclosed_session_gets_exactly_one_code() -> None:
    assert codes(session(closed_at=None, lost_at=3.0)) == ["SOJ001"]
    assert codes(session(closed_at=None)) == ["SOJ006"]
    assert codes(session(closed_at=None, lost_at=3.0, replaced_by=2)) == ["SOJ008"]
    assert codes(session(closed_at=None, interactive=True)) == ["SOJ009"]
    assert codes(session(closed_at=None, interactive=True, replaced_by=2)) == ["SOJ008"]


def test_what_is_collected_after_the_end_was_open_at_the_end() -> None:
    assert codes(session(closed_at=None, lost_at=9.0), exit_at=8.0) == ["SOJ006"]
    assert codes(session(closed_at=None, lost_at=7.0), exit_at=8.0) == ["SOJ001"]


def test_a_session_that_keras_keeps_is_not_the_users_to_close() -> None:
    assert codes(session(closed_at=None, kept_by_library=True, library="keras")) == []


def test_sessions_of_one_line_are_one_finding_with_a_count() -> None:
    lost = [session(n, closed_at=None, lost_at=50.0, graph=n) for n in range(1, 4)]
    (finding,) = judge(Facts(lost))
    assert (finding.count, finding.sessions) == (3, (1, 2, 3))


def test_five_sessions_from_one_line_on_one_graph_are_a_loop() -> None:
    assert codes(*[session(n, graph=1) for n in range(1, 5)]) == []
    assert codes(*[session(n, graph=1) for n in range(1, 6)]) == ["SOJ003"]


def test_a_few_models_each_with_its_own_graph_are_no_loop() -> None:
    assert codes(*[session(n, graph=n) for n in range(1, 10)]) == []
    assert codes(*[session(n, graph=n) for n in range(1, 11)]) == ["SOJ003"]


def test_a_helper_that_serves_many_tests_is_no_loop() -> None:
    assert codes(*[session(n, graph=1, scope=f"test_{n}") for n in range(1, 30)]) == []


def test_a_few_late_ops_are_innocent() -> None:
    lines = [Place("train.py", n) for n in range(30)]
    scattered = [growths(1, place)[0] for place in lines]
    assert codes(session(), growths=growths(4)) == []
    assert codes(session(), growths=scattered) == []


def test_a_line_that_adds_ops_again_and_again_is_found() -> None:
    facts = Facts([session(graph=1)], growths=[*growths(6), *growths(5, THERE)])
    (finding,) = judge(facts)
    assert finding.code == "SOJ004"
    assert finding.place == HERE
    assert finding.lines == ((HERE, 6), (THERE, 5))


def test_the_same_lines_in_many_graphs_are_one_finding() -> None:
    both = [*growths(6), *growths(6, graph=2)]
    assert codes(session(), growths=both) == ["SOJ004"]


def test_tests_that_share_a_graph_are_no_loop() -> None:
    shared = [replace(growth, scope=f"test_{growth.step}") for growth in growths(30)]
    assert codes(session(), growths=shared) == []


def test_a_use_after_close_names_the_line_that_closed() -> None:
    late = session(late_uses=[Use(THERE, (THERE,), 5.0)], closed_place=HERE)
    (finding,) = judge(Facts([late]))
    assert (finding.code, finding.place) == ("SOJ002", THERE)
    assert "closed by train.py:10" in finding.message


def test_a_borrowed_default_is_found_where_it_is_used() -> None:
    lent = session(interactive=True, borrowed=[Use(THERE, (THERE,), 5.0)])
    (finding,) = judge(Facts([lent]))
    assert (finding.code, finding.place) == ("SOJ005", THERE)


@pytest.mark.parametrize(
    ("grown", "before", "after", "at_end", "goes_on", "found"),
    [
        (100, 300, 300, 300, True, ["SOJ007"]),
        (100, 300, 200, 300, True, []),  # all of it came back
        (100, 300, 300, 200, True, []),  # it came back later
        (100, 300, 250, 300, True, ["SOJ007"]),  # half of it
        (100, 300, 280, 280, True, ["SOJ007"]),
        (30, 300, 300, 300, True, []),  # too little to be sure
        (100, 300, 300, 300, False, []),  # the program ended with it
    ],
)
def test_only_memory_that_really_stayed_is_reported(
    grown: int, before: int, after: int, at_end: int, goes_on: bool, found: list[str]
) -> None:
    closed = session(
        grown_bytes=grown * MIB, bytes_before_close=before * MIB, bytes_after_close=after * MIB
    )
    assert codes(closed, bytes_at_end=at_end * MIB, goes_on=goes_on) == found


def test_memory_matters_when_another_session_comes_after() -> None:
    large = session(grown_bytes=100 * MIB, bytes_before_close=300 * MIB)
    large = replace(large, bytes_after_close=300 * MIB)
    assert codes(large, session(2)) == ["SOJ007"]


def test_findings_come_by_file_and_line() -> None:
    later = session(1, closed_at=None, place=Place("b.py", 1))
    earlier = session(2, closed_at=None, place=Place("a.py", 9))
    assert [str(f.place) for f in judge(Facts([later, earlier]))] == ["a.py:9", "b.py:1"]


def test_a_finding_survives_the_way_to_json_and_back() -> None:
    facts = Facts([session(closed_at=None)], growths=growths(9))
    for finding in judge(facts):
        assert Finding.from_dict(finding.to_dict()) == finding


def test_the_comment_is_looked_up_in_the_source(tmp_path: Path) -> None:
    source = tmp_path / "program.py"
    source.write_text("a = tf.Session()\nb = tf.Session()  # noqa: SOJ001\n")
    loud, quiet = (Finding("SOJ006", Place(str(source), line), "open") for line in (1, 2))
    assert heard([loud, quiet]) == [loud]


@pytest.mark.parametrize(
    ("line", "silenced"),
    [
        ("sess = tf.Session()", False),
        ("sess = tf.Session()  # noqa", True),
        ("sess = tf.Session()  # noqa: SOJ001", True),
        ("sess = tf.Session()  # NOQA:E501,SOJ006", True),
        ("sess = tf.Session()  # noqa: SOJ003", False),
        ("sess = tf.Session()  # noqa: E501", False),
    ],
)
def test_a_comment_silences_what_it_names(line: str, silenced: bool) -> None:
    assert is_silenced("SOJ006", line) is silenced
    assert not is_silenced("SOJ003", "x = 1  # noqa: SOJ001")
