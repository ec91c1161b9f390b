"""A worker runs the caller's code, as it was imported there, whatever is on the disk by now."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import sojourn
from clients import run_program
from sojourn import imported
from sojourn.functions.sending import pack_call

pytestmark = pytest.mark.usefixtures("zygote")

Write = Callable[[str, str], Path]
BELOW = """
def f(depth=1):
    return RATE, depth

class Net:
    layers = [1]

    def m(self):
        '''It has some
        words.'''
        return self.layers
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """A folder of modules that can be imported; gives a function that writes one."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def write(name: str, text: str) -> Path:
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        importlib.invalidate_caches()
        return file

    yield write
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def seen(name: str) -> ModuleType:
    """Imported, and noticed by sojourn, as it is by the next decorator."""
    module = importlib.import_module(name)
    sojourn.isolated(len)
    return module


def test_editing_a_module_during_a_sweep_changes_no_call(project: Write) -> None:
    file = project("helped.py", "def f(x):\n    return ('old', x)\n")
    helped = seen("helped")
    isolated = sojourn.isolated(helped.f)
    assert isolated(1) == ("old", 1)
    file.write_text("def f(x):\n    return ('new', x)\n")
    assert isolated(1) == helped.f(1) == ("old", 1)
    assert sojourn.isolated(helped.f).map([1, 2]) == [("old", 1), ("old", 2)]
    file.write_text("def f(x:\n    retu")  # half saved
    assert isolated(1) == ("old", 1)
    file.unlink()
    assert isolated(1) == ("old", 1)


@pytest.mark.parametrize(
    "folder", [b"\xff\xfe", b"a:b", b"new\nline"], ids=["bytes", "colon", "line"]
)
def test_a_module_may_lie_in_a_folder_of_any_name(
    project: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: bytes
) -> None:
    name = os.fsdecode(folder)
    monkeypatch.syspath_prepend(str(tmp_path / name))
    project(f"{name}/odd.py", "def f(x):\n    return x + 1\n")
    odd = seen("odd")
    assert sojourn.isolated(odd.f)(1) == 2
    with sojourn.open(lambda: odd.f) as session:
        assert session.run("output", {"x": 1}) == 2


def test_a_decorated_function_and_its_helpers_are_of_one_version(project: Write) -> None:
    constants = project("constants.py", "RATE = 1\n")
    helpers = project("helpers.py", "import constants\ndef rate(): return constants.RATE\n")
    project(
        "trial.py",
        "import sojourn, helpers\n"
        "def inner(): return helpers.rate()\n"
        "@sojourn.isolated\n"
        "def outer(): return inner(), helpers.rate()\n",
    )
    trial = importlib.import_module("trial")
    constants.write_text("RATE = 2\n")
    helpers.write_text("import constants\ndef rate(): return -constants.RATE\n")
    assert trial.outer() == (1, 1)


def test_instances_of_the_callers_classes_come_back_as_such(project: Write) -> None:
    file = project(
        "shapes.py",
        "import dataclasses, enum\n"
        "class Kind(enum.Enum):\n    ROUND = 1\n"
        "@dataclasses.dataclass\nclass Shape:\n    size: int\n    kind: Kind = Kind.ROUND\n"
        "def double(shape): return Shape(shape.size * 2)\n",
    )
    shapes = seen("shapes")
    file.write_text("class Shape: pass\n")
    doubled = sojourn.isolated(shapes.double)(shapes.Shape(2))
    assert isinstance(doubled, shapes.Shape)
    assert doubled == shapes.Shape(4)
    assert doubled.kind is shapes.Kind.ROUND


def test_after_a_reload_the_new_code_runs(project: Write) -> None:
    file = project("changing.py", "def f(): return 'old'\n")
    changing = seen("changing")
    isolated = sojourn.isolated(lambda: changing.f())
    file.write_text("def f(): return 'new, and longer'\n")
    assert isolated() == "old"
    importlib.reload(changing)
    assert isolated() == changing.f() == "new, and longer"


def test_after_a_reload_in_place_the_new_code_runs(project: Write) -> None:
    file = project("patched.py", "def f(): return 'old'\ndef g(): return 1\n")
    patched = seen("patched")
    text = "def f(): return 'new'\ndef g(): return 2\n"
    file.write_text(text)
    new: dict[str, Any] = {}
    exec(compile(text, str(file), "exec", dont_inherit=True), new)
    patched.f.__code__ = new["f"].__code__
    isolated = sojourn.isolated(patched.f)
    with pytest.raises(sojourn.CodeChanged, match=r"'patched' .*patched\.py"):
        isolated()  # a mixture: neither version is what runs here
    patched.g.__code__ = new["g"].__code__
    assert isolated() == patched.f() == "new"


@pytest.mark.parametrize(
    "edited",
    [
        "RATE = 2\n" + BELOW,
        "RATE = 1\n\n\n" + BELOW.replace("RATE,", "RATE, 'more',"),
        "RATE = 1\n" + BELOW.replace("depth=1", "depth=5"),
        "RATE = 1\n" + BELOW.replace("layers = [1]", "layers = [1, 2 * 3]"),
    ],
    ids=["a constant", "a function, and the others move", "a default", "a constant of a class"],
)
def test_with_autoreload_the_new_code_runs(project: Write, edited: str) -> None:
    package = pytest.importorskip("IPython.extensions.deduperreload.deduperreload")
    reloader = package.DeduperReloader()
    file = project("reloaded.py", "RATE = 1\n" + BELOW)
    reloaded = seen("reloaded")
    reloader.update_sources()
    isolated = sojourn.isolated(lambda: (reloaded.f(), reloaded.Net().m()))
    file.write_text(edited)
    assert isolated() == (reloaded.f(), reloaded.Net().m()) == ((1, 1), [1])
    assert reloader.maybe_reload_module(reloaded)
    assert isolated() == (reloaded.f(), reloaded.Net().m()) != ((1, 1), [1])


EDITS = pytest.mark.parametrize(
    ("edited", "has_bytecode"),
    [("def f(): return 2\nRATE = 1\n", False), ("def f(): return RATE\nRATE = 2.0\n", True)],
    ids=["functions show it", "bytecode shows it"],
)


@EDITS
def test_what_was_edited_before_the_first_call_runs_as_it_was_imported(
    project: Write, edited: str, has_bytecode: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", not has_bytecode)
    file = project("early.py", "def f(): return RATE\nRATE = 1\n")
    early = importlib.import_module("early")
    file.write_text(edited)
    assert sojourn.isolated(early.f)() == early.f() == 1


def test_constants_that_nothing_else_shows_are_the_callers_too(
    project: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = project("rates.py", "RATE = 1\ndef f(): return RATE\n")
    rates = importlib.import_module("rates")
    file.write_text("RATE = 2\ndef f(): return RATE\n")
    assert sojourn.isolated(rates.f)() == 1
    importlib.reload(rates)
    assert sojourn.isolated(rates.f)() == 2


@EDITS
def test_what_was_imported_before_sojourn_and_edited_is_refused_where_it_is_used(
    project: Write, edited: str, has_bytecode: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", not has_bytecode)
    monkeypatch.setattr(imported, "_note", lambda *_: None)  # as if it were not there yet
    file = project("early.py", "def f(): return RATE\nRATE = 1\n")
    early = importlib.import_module("early")
    file.write_text(edited)
    assert sojourn.isolated(lambda: 5)() == 5  # it does not need it
    with pytest.raises(sojourn.CodeChanged, match=r"early\.py contains: the file has changed"):
        sojourn.isolated(early.f)()


def test_modules_in_an_archive_outlive_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "some.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("zipped_module.py", "def f(): return 'zipped'\n")
    monkeypatch.syspath_prepend(archive)
    zipped = importlib.import_module("zipped_module")
    try:
        assert sojourn.isolated(zipped.f)() == "zipped"
        archive.unlink()
        assert sojourn.isolated(zipped.f)() == "zipped"
    finally:
        del sys.modules["zipped_module"]


def test_packages_without_a_file_of_their_own_outlive_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spaced_out" / "inner").mkdir(parents=True)
    (tmp_path / "spaced_out" / "inner" / "leaf.py").write_text("def f(): return 'leaf'\n")
    monkeypatch.syspath_prepend(tmp_path)
    leaf = importlib.import_module("spaced_out.inner.leaf")
    try:
        shutil.rmtree(tmp_path / "spaced_out")
        assert sojourn.isolated(leaf.f)() == "leaf"
    finally:
        for name in ("spaced_out", "spaced_out.inner", "spaced_out.inner.leaf"):
            del sys.modules[name]


def test_what_was_imported_before_sojourn_is_kept_from_its_import_on(tmp_path: Path) -> None:
    (tmp_path / "before.py").write_text("def f(): return 'as imported'\n")
    program = (
        "import before, sojourn\n"
        "open(before.__file__, 'w').write('half a f(')\n"
        "print(sojourn.isolated(before.f)())\n"
    )
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    done = run_program("-c", program, PYTHONPATH=path)
    assert done.stdout == "as imported\n", done.stderr


def test_a_file_that_was_only_touched_is_what_it_was(
    project: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = project("touched.py", "RATE = 1\ndef f(): return RATE\n")
    touched = importlib.import_module("touched")
    os.utime(file, (2e9, 2e9))
    assert sojourn.isolated(touched.f)() == 1


def test_a_traceback_shows_the_lines_that_ran(project: Write) -> None:
    file = project("failing.py", "def f():\n    raise KeyError('the old line')\n")
    failing = seen("failing")
    file.write_text("# something else\n" * 5)
    with pytest.raises(KeyError) as caught:
        sojourn.isolated(failing.f)()
    assert "raise KeyError('the old line')" in str(caught.value.__cause__)


def test_packages_keep_their_relative_imports_and_their_data(project: Write) -> None:
    project("kit/words.txt", "data")
    project("kit/__init__.py", "from . import inner\nVERSION = 'old'\n")
    inner = project(
        "kit/inner.py",
        "import importlib.resources\n"
        "def read():\n"
        "    from . import VERSION\n"
        "    return VERSION, importlib.resources.files('kit').joinpath('words.txt').read_text()\n",
    )
    kit = seen("kit")
    project("kit/__init__.py", "raise RuntimeError('half done')\n")
    inner.write_text("")
    assert sojourn.isolated(kit.inner.read)() == ("old", "data")


def test_a_builder_is_the_callers_too(project: Write) -> None:
    file = project("models_here.py", "def build(): return helper\ndef helper(x): return x + 1\n")
    built = seen("models_here")
    file.write_text("def build(): return helper\ndef helper(x): return x - 1\n")
    with sojourn.open(built.build) as session:
        assert session.run("output", {"x": 1}) == 2
    built.helper.__code__ = (lambda x: x).__code__.replace(co_filename=str(file))
    with pytest.raises(sojourn.CodeChanged, match=r"models_here\.py"):
        sojourn.open(built.build)


def test_a_call_within_a_call_runs_the_outermost_callers_code(project: Write) -> None:
    file = project("deep.py", "def f(): return 'old'\n")
    deep = seen("deep")
    file.write_text("def f(): return 'new'\n")

    def outer() -> Any:
        os.environ["SOJOURN_PRELOAD"] = "none"
        return sojourn.isolated(_imported_there)()

    assert sojourn.isolated(outer)() == deep.f() == "old"


def _imported_there() -> Any:
    return importlib.import_module("deep").f()


def test_a_program_that_is_edited_while_it_runs_shows_its_own_source(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import inspect, sojourn\n"
        "def f():\n"
        "    return 'old'\n"
        "isolated = sojourn.isolated(lambda: (f(), inspect.getsource(f)))\n"
        "open(__file__, 'w').write('# new\\n' * 10)\n"
        "print(isolated())\n"
    )
    done = run_program(program)
    assert done.stdout == repr(("old", "def f():\n    return 'old'\n")) + "\n", done.stderr


def test_a_class_made_on_the_spot_keeps_its_own_methods() -> None:
    count = 0

    class Counter:
        def bump(self) -> int:
            nonlocal count
            count += 1
            return count

    method = Counter.bump
    back = sojourn.isolated(lambda c: c)(Counter())
    assert isinstance(back, Counter)
    assert Counter.bump is method
    assert (back.bump(), count) == (1, 1)


def test_a_class_that_comes_back_is_not_made_again() -> None:
    made: list[type] = []

    class Registered:
        def __init_subclass__(cls) -> None:
            made.append(cls)

    class Plugin(Registered):
        pass

    assert isinstance(sojourn.isolated(lambda p: p)(Plugin()), Plugin)
    assert made == [Plugin]


def test_the_lines_of_what_is_called_are_shown_though_it_is_no_plain_function(
    tmp_path: Path,
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import functools, linecache, sojourn\n"
        "cell = '\\n'.join([\n"
        "    'class Called:',\n"
        "    '    def __call__(self):',\n"
        "    '        raise KeyError(1)',\n"
        "    '@functools.cache',\n"
        "    'def cached():',\n"
        "    '    raise KeyError(2)'])\n"
        "linecache.cache['<cell>'] = len(cell), None, cell.splitlines(True), '<cell>'\n"
        "exec(compile(cell, '<cell>', 'exec'))\n"
        "for function in (Called(), cached):\n"
        "    try:\n"
        "        sojourn.isolated(function)()\n"
        "    except KeyError as error:\n"
        "        print(error.__cause__)\n"
    )
    done = run_program(program)
    assert "    raise KeyError(1)" in done.stdout.splitlines(), done.stderr
    assert "    raise KeyError(2)" in done.stdout.splitlines(), done.stderr


def test_functions_and_properties_with_a_cache_travel_like_others(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import functools, sojourn\n"
        "@functools.lru_cache(maxsize=7)\n"
        "def fib(n):\n"
        "    return n if n < 2 else fib(n - 1) + fib(n - 2)\n"
        "class Data:\n"
        "    @functools.cached_property\n"
        "    def size(self):\n"
        "        return fib(10)\n"
        "    @functools.cache\n"
        "    def part(self, n):\n"
        "        return fib(n)\n"
        "    def model(self):\n"
        "        return lambda a: a + self.part(3)\n"
        "@sojourn.isolated\n"
        "@functools.cache\n"
        "def run(n):\n"
        "    data = Data()\n"
        "    return data.size, data.size, data.part(n), fib.cache_parameters()['maxsize']\n"
        "print(run(5), fib.cache_info().currsize)\n"
        "print(sojourn.isolated(fib)(6))\n"
        "with sojourn.open(Data().model) as session:\n"
        "    print(session.run('output', {'a': 1}))\n"
    )
    done = run_program(program)
    assert done.stdout.splitlines() == ["(55, 55, 5, 7) 0", "8", "3"], done.stderr


def test_a_cached_function_of_a_module_stays_the_modules_own(project: Write) -> None:
    project("cached.py", "import functools\n@functools.cache\ndef f(x):\n    return [x]\n")
    module = importlib.import_module("cached")
    assert sojourn.isolated(lambda: module.f)() is module.f


class Slow:
    """Takes its time to be pickled, and says when it has begun."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()

    def __reduce__(self) -> tuple[Any, ...]:
        self.has_begun.set()
        time.sleep(0.5)
        return int, ()


def test_a_fork_in_the_middle_of_a_call_can_call_too(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("made_here")  # in no file: its functions travel by value
    exec("def same(x): return x", vars(module))
    monkeypatch.setitem(sys.modules, "made_here", module)
    slow = Slow()
    caller = threading.Thread(target=pack_call, args=(module.same, (slow,), {}, "same"))
    caller.start()
    assert slow.has_begun.wait(10)
    child = os.fork()
    if child == 0:
        signal.alarm(10)  # what waits for ever ends
        pack_call(module.same, (1,), {}, "same")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    caller.join()
