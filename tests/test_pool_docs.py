"""The page and the example about pools do what they say."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("zygote")
ROOT = Path(__file__).parent.parent


def test_the_code_of_the_page_runs_from_top_to_bottom(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs" / "pool.md").read_text()
    program = tmp_path / "page.py"
    program.write_text("\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)))
    runpy.run_path(str(program), run_name="__main__")
    assert "[2. 2. 2.]" in capsys.readouterr().out


def test_the_web_service_answers_from_several_threads(capsys: pytest.CaptureFixture[str]) -> None:
    service = runpy.run_path(str(ROOT / "examples" / "pool_web_service.py"))
    service["main"]()
    shown = capsys.readouterr().out
    assert "double [2.0, 4.0, 6.0]" in shown
    assert "triple [3.0, 6.0, 9.0]" in shown
    with service["make_pool"]() as pool:
        assert service["predict"](pool, "none", [1.0])[0] == 404
