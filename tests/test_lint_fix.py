"""`sojourn lint --fix`: the same program, closed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from sojourn.audit.lint import check_source
from sojourn.audit.lint.fix import FIXABLE, fix_source

RUNS = sorted((Path(__file__).parent / "lint_cases" / "runs").glob("*.py"))
CASES = sorted((Path(__file__).parent / "lint_cases").glob("*.py"))
HEAD = "import tensorflow.compat.v1 as tf\n"


def fixed(source: str) -> str:
    return fix_source((HEAD + textwrap.dedent(source)).encode()).after.decode()[len(HEAD) :]


def expect(before: str, after: str) -> None:
    assert fixed(before) == textwrap.dedent(after)
    assert fixed(after) == textwrap.dedent(after)


def unchanged(source: str) -> None:
    expect(source, source)


# Runs each program in a process of its own, forked after one import of TensorFlow.
RUNNER = """
import json, os, runpy, sys, tempfile
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow
results = {}
for path in sys.argv[1:]:
    with tempfile.TemporaryFile("w+") as out:
        pid = os.fork()
        if pid == 0:
            os.dup2(out.fileno(), 1)
            code = 1
            try:
                runpy.run_path(path, run_name="__main__")
                import atexit
                atexit._run_exitfuncs()
                code = 0
            finally:
                sys.stdout.flush()
                os._exit(code)
        status = os.waitpid(pid, 0)[1]
        out.seek(0)
        results[path] = [status, out.read()]
print(json.dumps(results))
"""


def test_fixed_programs_print_what_they_printed_before(tmp_path: Path) -> None:
    after = [tmp_path / path.name for path in RUNS]
    for path, copy in zip(RUNS, after, strict=True):
        change = fix_source(path.read_bytes())
        assert change.changed
        assert not [p for p in check_source(change.after) if p.code in FIXABLE]
        copy.write_bytes(change.after)
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, *map(str, RUNS), *map(str, after)],
        capture_output=True,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])
    for path, copy in zip(RUNS, after, strict=True):
        status, output = results[str(path)]
        assert status == 0, done.stderr
        assert output
        assert results[str(copy)] == [status, output], path.name


@pytest.mark.parametrize("file", [*RUNS, *CASES], ids=lambda file: file.stem)
def test_fixing_adds_no_finding_and_fixing_twice_changes_nothing_more(file: Path) -> None:
    once = fix_source(file.read_bytes()).after
    compile(once, str(file), "exec")
    before = [p.code for p in check_source(file.read_bytes())]
    after = [p.code for p in check_source(once)]
    assert all(after.count(code) <= before.count(code) for code in after)
    assert fix_source(once).after == once


def test_the_part_that_uses_the_session_goes_into_a_with_block() -> None:
    expect(
        """
        # before
        sess = tf.Session(
            config=None,  # the default
        )  # after

        # run it
        y = sess.run("x:0")

        print(y)  # needs no session
        """,
        """
        # before
        with tf.Session(
            config=None,  # the default
        ) as sess:  # after
            # run it
            y = sess.run("x:0")

        print(y)  # needs no session
        """,
    )


def test_texts_over_several_lines_are_not_indented() -> None:
    expect(
        '''
        sess = tf.Session()
        sess.run("""
        a
          b
        """)
        ''',
        '''
        with tf.Session() as sess:
            sess.run("""
        a
          b
        """)
        ''',
    )


def test_the_files_own_indentation_and_line_ends_are_kept() -> None:
    source = HEAD + "def f():\n\tsess = tf.Session()\n\treturn sess.run('é')\n"
    wanted = HEAD + "def f():\n\twith tf.Session() as sess:\n\t\treturn sess.run('é')\n"
    assert fix_source(source.encode()).after == wanted.encode()
    dos = source.replace("\n", "\r\n").encode("utf-8-sig")
    assert fix_source(dos).after == wanted.replace("\n", "\r\n").encode("utf-8-sig")
    latin = f"# -*- coding: latin-1 -*-\n{source}".encode("latin-1")
    assert fix_source(latin).after.decode("latin-1").endswith(wanted)


def test_statements_on_one_line_are_taken_apart() -> None:
    expect(
        """
        a = 1; sess = tf.Session(); b = sess.run("x:0")  # both
        print(b)
        """,
        """
        a = 1
        with tf.Session() as sess:
            b = sess.run("x:0")  # both
        print(b)
        """,
    )


def test_a_session_without_a_name_gets_one_that_is_free() -> None:
    expect(
        """
        def f(sess, session):
            return tf.Session().run("x:0")
        """,
        """
        def f(sess, session):
            with tf.Session() as sess_1:
                return sess_1.run("x:0")
        """,
    )


def test_a_graph_of_its_own_is_not_made_the_default() -> None:
    expect(
        """
        def f(g):
            sess = tf.Session(graph=g)
            return sess.run("x:0"), tf.constant(1)
        """,
        """
        def f(g):
            sess = tf.Session(graph=g)
            try:
                return sess.run("x:0"), tf.constant(1)
            finally:
                sess.close()
        """,
    )


def test_keras_does_not_get_the_session_as_its_default() -> None:
    expect(
        """
        from tensorflow.compat.v1 import keras
        sess = tf.Session()
        sess.run("x:0")
        """,
        """
        from tensorflow.compat.v1 import keras
        sess = tf.Session()
        try:
            sess.run("x:0")
        finally:
            sess.close()
        """,
    )


def test_code_of_other_files_does_not_see_another_default() -> None:
    expect(
        """
        import numpy as np
        from models import build
        sess = tf.Session()
        print(np.mean(sess.run(build())))
        """,
        """
        import numpy as np
        from models import build
        sess = tf.Session()
        try:
            print(np.mean(sess.run(build())))
        finally:
            sess.close()
        """,
    )


def test_an_interactive_session_becomes_a_with_block_to_the_end() -> None:
    expect(
        """
        tf.InteractiveSession()
        x = tf.constant(1)
        print(x.eval())
        """,
        """
        with tf.Session():
            x = tf.constant(1)
            print(x.eval())
        """,
    )


def test_a_session_that_functions_use_is_closed_at_exit() -> None:
    before = '"""Doc."""\nfrom __future__ import annotations\n\n' + HEAD
    before += "sess = tf.Session()\ndef f():\n    return sess.run('x:0')\n"
    after = fix_source(before.encode()).after.decode()
    assert after == (
        '"""Doc."""\nfrom __future__ import annotations\n\nimport atexit\n'
        + HEAD
        + "sess = tf.Session()\natexit.register(sess.close)\n"
        + "def f():\n    return sess.run('x:0')\n"
    )


OWNER = (
    HEAD
    + """
class Agent:
    def __init__(self):
        self.sess = tf.Session()  # the agent's own
        self.sess.run(init)

    def act(self, state):
        return self.sess.run(action, {x: state})

agent = Agent()
print(agent.act(1), agent.sess.run(loss))
"""
)


def test_a_session_that_an_object_keeps_is_closed_when_its_owner_is_gone() -> None:
    after = fix_source(OWNER.encode()).after
    opening = "        self.sess = tf.Session()  # the agent's own\n"
    closing = "        weakref.finalize(self, self.sess.close)\n"
    assert after.decode() == "import weakref\n" + OWNER.replace(opening, opening + closing)
    assert not check_source(after)
    assert fix_source(after).after == after


@pytest.mark.parametrize(
    "use",
    ["Agent().sess.run(x)", "keep(agent.sess)", "step = agent.sess.run", "agent.sess = None"],
)
def test_a_session_that_may_outlive_its_owner_is_left_alone(use: str) -> None:
    unchanged(
        f"""\
        class Agent:
            def __init__(self):
                self.sess = tf.Session()

        agent = Agent()
        {use}
        """
    )


def test_a_replaced_session_is_closed_before_its_name_is_given_away() -> None:
    expect(
        """
        s = tf.Session()
        print(s.run("x:0"))
        s = tf.Session()
        print(s.run("x:0"))
        """,
        """
        with tf.Session() as s:
            print(s.run("x:0"))
        with tf.Session() as s:
            print(s.run("x:0"))
        """,
    )


def test_work_that_is_done_later_stays_inside() -> None:
    expect(
        """
        def f():
            sess = tf.Session()
            values = (sess.run(n) for n in "ab")
            names = list("ab")
            return list(zip(names, values))
        """,
        """
        def f():
            with tf.Session() as sess:
                values = (sess.run(n) for n in "ab")
                names = list("ab")
                return list(zip(names, values))
        """,
    )


def test_queue_runners_are_joined_before_their_session_is_closed() -> None:
    expect(
        """
        def f():
            sess = tf.Session()
            coordinator = tf.train.Coordinator()
            threads = tf.train.start_queue_runners(sess, coordinator)
            sess.run("x:0")
            coordinator.join(threads)
            print("done")
        """,
        """
        def f():
            with tf.Session() as sess:
                coordinator = tf.train.Coordinator()
                threads = tf.train.start_queue_runners(sess, coordinator)
                sess.run("x:0")
                coordinator.join(threads)
                print("done")
        """,
    )


@pytest.mark.parametrize(
    "source",
    [
        # Used after the block that opens it.
        "def f(flag):\n    if flag:\n        s = tf.Session()\n    return s.run('x:0')\n",
        # Another object may keep it.
        "def f(build):\n    s = tf.Session()\n    m = build(s)\n    s.run('x:0')\n    m.train()\n",
        # The default session of other functions.
        "def init():\n    tf.InteractiveSession()\ndef f(x):\n    return x.eval()\n",
        # Queue runners that nobody joins.
        "def f():\n    s = tf.Session()\n    tf.train.start_queue_runners(s)\n    s.run('x:0')\n",
        "def f(os):\n    s = tf.Session()\n    tf.train.start_queue_runners(s)\n"
        "    s.run(os.path.join('x', ':0'))\n",
        # Put away.
        "def f(d):\n    s = tf.Session()\n    d['s'] = s\nf({})\n",
        # Kept on an object, or under another name.
        "class A:\n  def f(self):\n    s = tf.Session()\n    s.run('a')\n    self.s = s\n",
        "def f():\n    s = tf.Session()\n    t = s\n    s.run('a')\n    return t.run('x:0')\n",
        # Entered by hand: its callers rely on the default session.
        "def f():\n    s = tf.Session()\n    s.__enter__()\n    return s.run('x:0')\n",
        # On self.
        "class A:\n    def __init__(self):\n        self.s = tf.Session()\n",
        # In an expression that is evaluated later, and again.
        "run = lambda y: tf.Session().run(y)\nprint(run('x:0'), run('y:0'))\n",
        # All on one line.
        "def f(): s = tf.Session(); return s.run('x:0')\n",
        # The line asks to be left alone.
        "def f():\n    s = tf.Session()  # noqa: SOJ001\n    return s.run('x:0')\n",
    ],
)
def test_what_is_not_surely_safe_is_left_alone(source: str) -> None:
    unchanged(source)
