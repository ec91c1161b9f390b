"""sojourn in a real Jupyter kernel: functions from cells, interrupts, restarts, rich output."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from jupyter_core.utils import ensure_event_loop
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

# jupyter_client and its friends ask for settings of their own and leave loops to the collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

ADD = """
import os
import numpy as np
import sojourn

OFFSET = 100

def helper(x):
    return x + OFFSET

@sojourn.isolated
def add(x):
    print("adding in", "another" if os.getpid() != HERE else "this", "process")
    return helper(x)

HERE = os.getpid()
add(np.arange(3))
"""

STREAM = """
@sojourn.isolated
def losses(epochs):
    import tensorflow as tf
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.ones((32, 4))
    for epoch in range(epochs):
        yield model.fit(x, x[:, 0], verbose=0).history["loss"][0]

for epoch, loss in enumerate(losses(3)):
    print("epoch", epoch, loss >= 0)
"""

AUTOGRAPH = """
@sojourn.isolated
def collatz(n):
    import tensorflow as tf

    @tf.function
    def steps(n):
        count = tf.constant(0)
        while n > 1:  # needs the source of this cell, or it stays a Python loop
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            count += 1
        return count

    return int(steps(tf.constant(n)))

collatz(6)
"""

FAIL = """
class Unlucky(Exception):
    pass

@sojourn.isolated
def fail(x):
    raise Unlucky(f"with {x}")

try:
    fail(13)
except Unlucky as error:
    print("caught", error)
    print("from the cell's own line:", 'raise Unlucky(f"with {x}")' in str(error.__cause__))
"""

PLACES = """# a comment
session = sojourn.open(build, name="placed")
print(session)
session.close()
try:
    fail(13)
except Unlucky as error:
    print([line.strip() for line in str(error.__cause__).splitlines() if "line" in line])
"""

SWEEP = """
def double(x):
    return x * 2

print(sojourn.isolated(double).map([1, 2, 3], workers=2))
"""

SHOW = """
def build():
    import tensorflow as tf
    x = tf.compat.v1.placeholder(tf.float32, [None, 2], name="x")
    return {"x": x}, {"y": x * 2}

session = sojourn.open(build, name="doubling")
display(session, session.signature)
session.close()
"""

HANG = """
@sojourn.isolated
def hang(marker):
    open(marker, "w").write(str(os.getpid()))
    while True:
        pass

hang(MARKER)
"""


class Notebook:
    """A kernel and the cells that are run in it."""

    def __init__(self, client: NotebookClient) -> None:
        self.client = client

    def run(self, source: str) -> Any:
        """The cell, with its outputs."""
        cells = self.client.nb.cells
        cells.append(nbformat.v4.new_code_cell(source))
        return self.client.execute_cell(cells[-1], len(cells) - 1)

    def interrupt_when(self, marker: Path) -> threading.Thread:
        """Interrupt the kernel, from another thread, once the marker has something in it."""

        def press() -> None:
            wait_for(marker)
            kernel.send_signal(2)

        kernel = psutil.Process(self.pid)
        thread = threading.Thread(target=press)
        thread.start()
        return thread

    @property
    def pid(self) -> int:
        """The process of the kernel."""
        return int(self.client.km.provisioner.pid)  # type: ignore[union-attr]


def wait_for(marker: Path) -> str:
    while not (marker.exists() and marker.read_text()):
        time.sleep(0.01)
    return marker.read_text()


def text_of(cell: Any) -> str:
    return "".join(
        o.get("text", "") or o.get("data", {}).get("text/plain", "") for o in cell.outputs
    )


@pytest.fixture
def notebook() -> Iterator[Notebook]:
    client = NotebookClient(nbformat.v4.new_notebook(), timeout=120, kernel_name="python3")
    with client.setup_kernel(cleanup_kc=True):
        yield Notebook(client)
    ensure_event_loop().close()  # the one that nbclient has used


def test_a_notebook_from_its_first_cell_to_the_restart(notebook: Notebook, tmp_path: Path) -> None:
    added = notebook.run(ADD)
    assert "adding in another process" in text_of(added)
    assert "array([100, 101, 102])" in text_of(added)

    assert text_of(notebook.run(STREAM)).count("True") == 3
    assert text_of(notebook.run(AUTOGRAPH)) == "8"
    told = text_of(notebook.run(FAIL))
    assert told == "caught with 13\nfrom the cell's own line: True\n"
    assert text_of(notebook.run("import sys; 'tensorflow' in sys.modules")) == "False"

    shown = [o["data"]["text/html"] for o in notebook.run(SHOW).outputs]
    assert len(shown) == 3
    for page, words in zip(shown, ("ready", "float32", "nothing left behind"), strict=True):
        assert words in page
    assert "doubling" in shown[0]

    placed = notebook.run(PLACES)
    number = placed.execution_count
    assert f"opened at cell {number}, line 2" in text_of(placed)
    assert f"['Cell {number - 3}, line 6, in fail']" in text_of(placed)  # FAIL ran three cells ago
    assert "ipykernel" not in text_of(placed)

    swept = notebook.run(SWEEP)
    assert "[2, 4, 6]" in text_of(swept)
    assert re.search(r"double ━+ 3/3 \d:\d\d", text_of(swept))

    marker = tmp_path / "interrupted"
    notebook.run(f"MARKER = {str(marker)!r}")
    thread = notebook.interrupt_when(marker)
    with pytest.raises(CellExecutionError, match="KeyboardInterrupt"):
        notebook.run(HANG)
    thread.join()
    assert not psutil.pid_exists(int(marker.read_text()))
    assert "array([101])" in text_of(notebook.run("add(np.array([1]))"))

    # Restart while a call is under way: the kernel goes, and so does everything it started.
    marker = tmp_path / "restarted"
    notebook.run(f"MARKER = {str(marker)!r}")
    family = psutil.Process(notebook.pid).children(recursive=True)
    assert family
    kernel = psutil.Process(notebook.pid)

    def restart() -> None:
        family.append(psutil.Process(int(wait_for(marker))))
        kernel.kill()

    thread = threading.Thread(target=restart)
    thread.start()
    with pytest.raises(Exception, match="Kernel died"):
        notebook.run(HANG)
    thread.join()
    _, alive = psutil.wait_procs(family, timeout=60)
    assert alive == []
