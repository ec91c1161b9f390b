"""sojourn's plugin for pytest. Imports other modules only when they are needed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the audit."""
    group = parser.getgroup("sojourn")
    group.addoption(
        "--sojourn-audit",
        action="store_true",
        help="report what the suite's raw TensorFlow sessions leak; fail if there is something",
    )
    group.addoption(
        "--sojourn-audit-html",
        metavar="FILE",
        default="",
        help="write the report of --sojourn-audit with its timeline to FILE",
    )
    group.addoption(
        "--sojourn-audit-ignore",
        metavar="CODES",
        default="",
        help="codes that --sojourn-audit leaves out: SOJ003,SOJ007",
    )


@pytest.fixture
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test if it leaves a session, process, descriptor, thread or segment behind."""
    yield from look_after(request)


def look_after(
    request: pytest.FixtureRequest, *, seconds: float = 2.0, temporary_folder: bool = False
) -> Iterator[None]:
    """Take a snapshot before a test and fail the test if, `seconds` after it, something is left.

    With `temporary_folder`, files left there count too.
    """
    from sojourn.testing import leftovers, take_snapshot

    # pytest makes its base folder once per run: make it now, so that it is no leftover.
    if {"tmp_path", "tmp_path_factory", "tmpdir"} & set(request.fixturenames):
        request.getfixturevalue("tmp_path_factory").getbasetemp()
    before = take_snapshot()
    yield
    left = leftovers(before, seconds=seconds, temporary_folder=temporary_folder)
    if left:
        pytest.fail("left behind: " + "; ".join(left), pytrace=False)


def pytest_configure(config: pytest.Config) -> None:
    """Register the audit if it was requested."""
    if config.getoption("--sojourn-audit"):
        from sojourn.testing.audit_plugin import AuditPlugin

        config.pluginmanager.register(AuditPlugin(config), "sojourn-audit")
