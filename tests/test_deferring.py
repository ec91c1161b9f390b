"""What a framework imports and hardly ever uses is loaded when it is used, and not before."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import sojourn
from sojourn.engines.deferring import deferred


def test_workers_have_no_drawing_library_until_they_draw(zygote: None, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "pictures.png"

    def draw() -> list[bool]:
        import keras
        import numpy as np

        before = "matplotlib" in sys.modules
        keras.visualization.plot_image_gallery(
            np.zeros((4, 8, 8, 3)), value_range=(0, 1), rows=2, cols=2, path=str(picture)
        )
        return [before, "matplotlib" in sys.modules]

    assert sojourn.isolated(draw)() == [False, True]
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that can be imported, with a module."""
    (tmp_path / "drawing").mkdir()
    (tmp_path / "drawing" / "__init__.py").write_text("")
    (tmp_path / "drawing" / "pens.py").write_text("red = 'a red pen'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("drawing", "drawing.pens"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_a_stand_in_becomes_the_library_when_it_is_used(library: None) -> None:
    with deferred(["drawing"]):
        import drawing.pens as one  # type: ignore[import-not-found]
        from drawing import pens as other

    assert not [name for name in sys.modules if name.startswith("drawing")]
    assert other.red == one.red == "a red pen"
    assert sys.modules["drawing.pens"] is not one
    with pytest.raises(AttributeError, match="blue"):
        _ = one.blue


def test_what_is_not_installed_is_not_there(library: None) -> None:
    with deferred(["sculpting"]), pytest.raises(ModuleNotFoundError):
        import sculpting  # type: ignore[import-not-found]  # noqa: F401


def test_a_library_that_is_loaded_stays_as_it_is(library: None) -> None:
    import drawing

    with deferred(["drawing"]):
        import drawing.pens

        assert drawing.pens.red == "a red pen"
