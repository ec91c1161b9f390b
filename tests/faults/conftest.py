"""What holds after every fault: what `tests/invariants.py` checks, a bystander included."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import invariants
import sojourn


@pytest.fixture(scope="package")
def bystander(zygote: None) -> Iterator[sojourn.Session]:
    """Another session, open through all of these tests."""
    with invariants.open_bystander() as session:
        yield session


@pytest.fixture(scope="module", autouse=True)
def loaded(bystander: sojourn.Session) -> None:
    """Whatever is loaded or allocated once, is from now on."""
    invariants.open_and_close()


@pytest.fixture(autouse=True)
def nothing_left_behind(
    request: pytest.FixtureRequest, bystander: sojourn.Session
) -> Iterator[None]:
    """What a test leaves behind, or breaks for others, fails it."""
    yield from invariants.hold(request, bystander)
