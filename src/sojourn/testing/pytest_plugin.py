"""What sojourn adds to pytest. Loads nothing that is not asked for."""

from __future__ import annotations

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


def pytest_configure(config: pytest.Config) -> None:
    """Audit the run if it was asked for."""
    if config.getoption("--sojourn-audit"):
        from sojourn.testing.audit_plugin import AuditPlugin

        config.pluginmanager.register(AuditPlugin(config), "sojourn-audit")
