"""The examples and the pages about isolated functions do what they say."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("zygote")
ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("page", ["isolated.md", "notebooks.md"])
def test_the_code_of_the_page_runs_from_top_to_bottom(
    page: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs" / page).read_text()
    program = tmp_path / "page.py"
    program.write_text("\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)))
    names = runpy.run_path(str(program), run_name="__main__")
    assert names["train"].receipt.clean
    if page == "isolated.md":
        assert len(names["losses_by_rate"]) == 3
        assert 'raise KeyError(f"no {x}")' in capsys.readouterr().out


def test_the_sweep_finds_the_best_rate(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "isolated_sweep.py"), run_name="__main__")
    shown = capsys.readouterr().out
    assert shown.count("loss") == 3
    assert "best: 0.1" in shown
    assert "nothing left behind" in shown


def test_the_training_reports_every_epoch_and_stops_early(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runpy.run_path(str(ROOT / "examples" / "isolated_progress.py"), run_name="__main__")
    shown = capsys.readouterr().out
    assert 1 < shown.count("epoch") < 100
    assert "nothing left behind" in shown
