"""What the zygote's malloc is told before it starts."""

from __future__ import annotations

import pytest

from sojourn.process import huge_pages


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, "glibc.malloc.hugetlb=1"),
        (
            {"GLIBC_TUNABLES": "glibc.malloc.check=3"},
            "glibc.malloc.check=3:glibc.malloc.hugetlb=1",
        ),
        ({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}, "glibc.malloc.hugetlb=0"),
    ],
)
def test_malloc_is_asked_for_huge_pages_unless_the_user_has_said_otherwise(
    before: dict[str, str], after: str
) -> None:
    huge_pages.ask_malloc(before)
    assert before["GLIBC_TUNABLES"] == after
