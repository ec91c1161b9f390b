"""What a program was written for is read from its source; nothing of it is run."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from sojourn.compat.legacy import imports, judge, removed
from sojourn.compat.legacy.account import Ledger
from sojourn.compat.legacy.detect import ProgramSyntaxError, Verdict, examine
from sojourn.compat.legacy.namespaces import Namespace
from sojourn.values import Place, Receipt


def verdict_on(folder: Path, source: str, **others: str) -> Verdict:
    for name, text in others.items():
        path = folder / (name.replace("__", "/") + ".py")  # package__module
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
    program = folder / "program.py"
    program.write_text(textwrap.dedent(source))
    return examine(str(program))


@pytest.mark.parametrize(
    "source",
    [
        "import tensorflow as tf\nx = tf.placeholder(tf.float32)",
        "import tensorflow\ntensorflow.Session()",
        "import tensorflow as tf\ntf.train.AdamOptimizer()",
        "from tensorflow.examples.tutorials.mnist import input_data",
        "from tensorflow.python.estimator import run_config",
        "from tensorflow_estimator.python.estimator import model_fn",
        "import tensorflow.contrib.slim as slim",
        "from tensorflow.python.ops import rnn_cell",
        "from tensorflow import placeholder",
        "import tensorflow as tf\nFLAGS = tf.app.flags.FLAGS",
        "import tensorflow as tf\nnn = tf.nn\nnn.dynamic_rnn",
    ],
)
def test_names_that_only_tensorflow_1_had_make_it_tensorflow_1(tmp_path: Path, source: str) -> None:
    verdict = verdict_on(tmp_path, source)
    assert (verdict.era, verdict.graph) == ("tf1", True)


@pytest.mark.parametrize(
    "source",
    [
        "import tensorflow as tf\nprint(tf.constant(1))",
        "import tensorflow as tf\ntf.keras.layers.Dense(3)\ntf.random.normal([2])",
        "import numpy as np",
        "class tf:\n    Session = 1\ntf.Session",
    ],
)
def test_everything_else_stays_as_it_is(tmp_path: Path, source: str) -> None:
    assert verdict_on(tmp_path, source).era == "tf2"


def test_one_own_module_of_tensorflow_1_makes_the_program_so(tmp_path: Path) -> None:
    verdict = verdict_on(
        tmp_path,
        "from models import net",
        models__net="from . import parts",
        models__parts="import tensorflow as tf\ntf.get_variable('w', [1])",
    )
    assert verdict.era == "tf1"
    assert verdict.signs[0][1] == Place(str(tmp_path / "models/parts.py"), 2)
    assert str(verdict) == f"tf1: tensorflow.get_variable at {tmp_path}/models/parts.py:2"


def test_a_test_case_of_the_time_is_known_by_its_session(tmp_path: Path) -> None:
    source = "import {} as tf\nclass T(tf.test.TestCase):\n    def test(self):\n"
    source += "        with self.test_session(): tf.constant(1).eval()\n"
    assert verdict_on(tmp_path, source.format("tensorflow")).era == "tf1"
    assert verdict_on(tmp_path, source.format("tensorflow.compat.v1")).era == "compat"


@pytest.mark.parametrize(
    ("source", "graph"),
    [
        ("import tensorflow as tf\ntf.compat.v1.Session().run(tf.constant(1))", True),
        ("import tensorflow.compat.v1 as tf\ntf.disable_v2_behavior()", True),
        ("import tensorflow as tf\ntf = tf.compat.v1\ntf.Session().run(tf.placeholder)", True),
        ("import tensorflow\ntf = tensorflow.compat.v1\ntf.Session().run(1)", True),
        # Opened for its configuration only, as many Keras programs do.
        ("import tensorflow as tf\ns = tf.compat.v1.Session(config=1)", False),
        ("import tensorflow as tf\nwith tf.GradientTape(): tf.compat.v1.Session().run(1)", False),
        ("import tensorflow as tf\ntf.compat.v1.Session().run(1)\nx.numpy()", False),
    ],
)
def test_a_session_through_compat_means_a_graph_unless_the_program_is_eager(
    tmp_path: Path, source: str, graph: bool
) -> None:
    verdict = verdict_on(tmp_path, source)
    assert (verdict.era, verdict.graph) == ("compat", graph)


def test_with_a_fallback_import_the_one_that_will_be_found_counts(tmp_path: Path) -> None:
    source = """
        try:
            import tensorflow.compat.v1 as tf
        except ImportError:
            import tensorflow as tf
        tf.Session().run(tf.placeholder(tf.float32))
    """
    assert verdict_on(tmp_path, source).era == "compat"


@pytest.mark.parametrize(
    "line", ['print "hello"', "except IOError, e:", "x = 0777", 'raise ValueError, "no"']
)
def test_python_2_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    source = f"import os\n{line}\n"
    if line.startswith("except"):
        source = f"try:\n    pass\n{line}\n    pass\n"
    number = 1 + source.split("\n").index(line)
    with pytest.raises(ProgramSyntaxError, match=rf"program.py:{number}: .*Python 2") as refusal:
        verdict_on(tmp_path, source)
    assert line in str(refusal.value)


def test_a_broken_module_beside_it_does_not_stop_the_program(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, "try:\n    import old\nexcept SyntaxError: pass", old="print 1")
    assert verdict.era == "tf2"


def test_modules_where_pythonpath_says_are_read_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack/loop.py").write_text("import tensorflow as tf\ntf.estimator.RunConfig()")
    verdict = verdict_on(
        tmp_path / "pack", "import tensorflow as tf\nfrom pack import loop\ntf.compat.v1.logging"
    )
    assert verdict.era == "tf1"


@pytest.mark.parametrize(
    ("size", "is_of_the_time"),
    [("x.shape[-1].value", True), ("x.get_shape()[1].value", True), ("config[0].value", False)],
)
def test_sizes_read_by_value_are_noticed(tmp_path: Path, size: str, is_of_the_time: bool) -> None:
    verdict = verdict_on(tmp_path, f"import tensorflow.compat.v1 as tf\nx = tf.ones([2])\n{size}")
    assert (verdict.era, verdict.dimensions) == ("compat", is_of_the_time)


def test_what_the_user_says_overrules_what_was_found(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import tensorflow as tf\ntf.Session()")
    assert judge(str(program)).era == "tf1"
    assert judge(str(program), era="tf2") == Verdict(
        "tf2", False, judge(str(program)).signs, (str(program),)
    )
    program.write_text("print(1)")
    assert judge(str(program), era="tf1").graph


def test_a_module_is_judged_without_being_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack/__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "pack/__main__.py").write_text("import tensorflow as tf\ntf.Session()")
    monkeypatch.chdir(tmp_path)
    assert judge("pack", is_module=True).era == "tf1"
    assert judge("nowhere.to.be.found", is_module=True).era == "tf2"


def test_the_replacement_of_a_removed_name_is_the_most_exact_one() -> None:
    assert removed.advice("tf.contrib.tpu.TPUEstimator") == "tf.distribute.TPUStrategy"
    assert "migration guide" in str(removed.advice("tf.contrib.unheard_of"))
    assert removed.advice("tf.no_such_thing") is None
    with pytest.raises(AttributeError, match=r"tf.contrib.rnn.Foo was removed .* tf.nn.rnn_cell"):
        removed.missing_name("tf.contrib.rnn")("Foo")


def test_a_namespace_covers_modules_without_changing_them() -> None:
    import math

    space = Namespace("over", (math,), {"pi": 3}, lazy={"late": lambda: ["made once"]})
    assert (space.pi, space.e, math.pi > 3) == (3, math.e, True)
    assert space.late is space.late
    assert {"pi", "late", "sqrt"} <= set(dir(space))
    with pytest.raises(AttributeError, match="'over' has no attribute 'nothing'"):
        space.nothing  # noqa: B018


def test_who_imports_decides_which_tensorflow_it_gets(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import tensorflow as tf\ntf.Session()")
    first = Namespace("tensorflow", (), {"era": "tf1"})
    importer = imports.Importer(examine(str(program)), {"tf1": first}, {}, None)

    def seen_by(file: Path | str, name: str = "__main__") -> object:
        root = importer._root("tensorflow", {"__file__": str(file), "__name__": name})
        return None if root is None else root.era

    installed = Path(pytest.__file__).parent.parent
    assert seen_by(program) == "tf1"
    assert seen_by(tmp_path / "made_later.py", "made_later") == "tf1"
    assert seen_by(installed / "keras/src/backend.py", "keras.src.backend") is None
    assert seen_by(pytest.__file__, "pytest") is None


def test_the_account_names_what_was_left_open_and_counts_what_repeats() -> None:
    class Session:
        def close(self) -> None:
            stay.has_closed(Receipt("s", 2**20, 2**20, 2**20, 0.1, 3))

    ledger = Ledger()
    assert ledger.text() == "sojourn: the program opened no session"
    session = Session()
    stay = ledger.opened(session, "Session", Place("a.py", 3))
    stay.calls = 3
    ledger.program_ended()
    ledger.close_what_is_open()
    assert ledger.text() == (
        "sojourn: 1 session, 1 left open\n"
        "  a.py:3  Session: 3 runs, 1.0 MiB held, 1.0 MiB returned, left open by the program"
    )
    assert ledger.to_dict()["sessions"][0] == {
        "session": 1,
        "kind": "Session",
        "file": "a.py",
        "line": 3,
        "runs": 3,
        "held_bytes": 2**20,
        "returned_bytes": 2**20,
        "left_open": True,
    }
    many = Ledger()
    others = [Session() for _ in range(5)]
    for each in others:
        many.opened(each, "Session", Place("a.py", 9)).has_closed(None)
    many.program_ended()
    assert many.text() == (
        "sojourn: 5 sessions, all closed\n"
        "  a.py:9  5 times Session: 0 runs, memory not measured, closed"
    )
