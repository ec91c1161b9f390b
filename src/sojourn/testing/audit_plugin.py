"""`pytest --sojourn-audit`: watch the raw TensorFlow sessions of a whole test suite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sojourn.audit.block import Audit, Found
from sojourn.audit.finding import Finding
from sojourn.audit.text import render

_KEY = "sojourn_audit"


class AuditPlugin:
    """Audits from the first test to the last. Findings fail the run, not a single test."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._audit = Audit(goes_on=False)
        self._found = Found()
        self._from_workers: list[Finding] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Start the audit before tests are collected: modules may open sessions when imported."""
        self._audit.start()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Finish the audit, and fail a run that passed if there are findings."""
        self._audit.mark_exit()
        self._found = self._audit.finish()
        ignored = {code.strip() for code in self._config.getoption(f"{_KEY}_ignore").split(",")}
        self._found.findings = tuple(
            finding
            for finding in (*self._found, *self._from_workers)
            if finding.code not in ignored
        )
        worker_output = getattr(self._config, "workeroutput", None)
        if worker_output is not None:
            worker_output[_KEY] = [finding.to_dict() for finding in self._found]
        elif self._found and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Collect the findings of a pytest-xdist worker in its part of the suite."""
        found = getattr(node, "workeroutput", {}).get(_KEY, ())
        self._from_workers += [Finding.from_dict(plain) for plain in found]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Show the findings after the tests."""
        terminalreporter.section("sojourn audit")
        colour = terminalreporter.hasmarkup
        terminalreporter.write_line(render(self._found.findings, self._found.facts, colour))
        page = self._config.getoption(f"{_KEY}_html")
        if page:
            self._found.write_html(Path(page), "pytest")
            terminalreporter.write_line(f"report: {page}")
