"""The session patterns people use: each example does what its reader expects."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
EXPECTED = {
    "session_explicit_close.py": [
        "value: [2.0, 3.0, 4.0]", "nothing left behind: True", "bytes came back: True",
    ],
    "session_with_block.py": [
        "in the block: [2.0, 4.0]", "by eval: [6.0]", "closed, nothing left: True",
    ],
    "session_block_raises.py": ["raised: True", "closed, nothing left: True"],
    "session_models_in_turn.py": [
        "model of 100: sum 10000", "  all of it is back: True",
        "model of 200: sum 40000", "  all of it is back: True",
        "model of 300: sum 90000", "  all of it is back: True",
    ],
    "session_device_fallback.py": [
        "has a CPU: True", "shape: (64, 64)", "without fallback: True",
    ],
    "session_run_after_close.py": ["Attempted to use a closed Session."],
    "session_values_outlive.py": [
        "same: [1.0, 2.0, 3.0]", "squared: [1.0, 4.0, 9.0]", "and may be changed: [2.0, 3.0, 4.0]",
    ],
    "session_beside_eager.py": [
        "eager gradient: 30.0", "session gradient: 30.0", "eager again: 3.0",
    ],
    "session_two_modules.py": [
        "prices: 3.6", "weights: 7.0", "weights, still: 5.0", "both clean: True",
    ],
    "session_passed_around.py": ["plus: 5.0", "times: 40.0", "closed by its maker: True"],
    "session_keras_model.py": ["shape: (3, 2)", "equal: True", "Keras goes on: True"],
    "session_many_feeds.py": ["answered: 860", "steps: 100"],
    "session_training_loop.py": ["the loss fell: True", "found: 3.00 x + 1.00"],
    "session_two_graphs.py": ["count: 3", "name: somebody", "not of this graph: True"],
}  # fmt: skip


AT_EXIT = "session_never_closed.py"


@pytest.fixture(scope="module")
def printed() -> list[str]:
    """What all of them told, a line of JSON for each mode, and what was printed at the exit."""
    names = [*EXPECTED, AT_EXIT]  # the last one's exit is seen
    of_graphs = [n for n in names if "disable_eager" in (EXAMPLES / n).read_text()]
    others = [name for name in names if name not in of_graphs]
    runner = str(Path(__file__).parent / "run_examples.py")
    scripts = [
        name if name == "--" else str(EXAMPLES / name) for name in [*others, "--", *of_graphs]
    ]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", runner, *scripts],
        capture_output=True, text=True, timeout=240, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def told(printed: list[str]) -> Any:
    return json.loads(printed[0]) | json.loads(printed[1])


@pytest.mark.parametrize("name", EXPECTED)
def test_the_example_does_what_its_reader_expects(told: Any, name: str) -> None:
    seen = told[name]
    assert seen["failure"] is None
    # After a close TensorFlow's words are followed by the line that closed it.
    assert [line.partition(" It was closed at ")[0] for line in seen["printed"]] == EXPECTED[name]
    assert not [w for w in seen["warnings"] if "never closed" in w]


def test_a_session_that_is_never_closed_is_closed_at_exit(told: Any, printed: list[str]) -> None:
    assert told[AT_EXIT]["printed"] == ["value: 42"]
    assert printed[2:] == ["forgotten: closed, nothing left: True"]
