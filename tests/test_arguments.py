"""An argument that makes no sense is refused in words, before anything is started."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click import Context
from click.testing import CliRunner, Result

import sojourn
from sojourn.cli.main import COMMANDS, main
from sojourn.session.opening import Blueprint


def adder() -> Any:
    return lambda a, b: a + b


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_a_name_that_is_no_text_never_reaches_the_zygote() -> None:
    with pytest.raises(TypeError, match="name must be a string, not 3"):
        sojourn.open(adder, name=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="name must be a string, not 3"):
        sojourn.isolated(name=3)(adder)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("seed", "error"), [("seven", TypeError), (1.5, TypeError), (True, TypeError), (-1, ValueError)]
)
def test_a_seed_is_a_whole_number(seed: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="a seed must be a whole number of at least 0, not"):
        sojourn.open(adder, seed=seed)
    with pytest.raises(error, match="a seed must be a whole number of at least 0, not"):
        sojourn.isolated(seed=seed)(adder)


def test_an_amount_of_memory_may_be_a_number_of_numpys() -> None:
    amount: Any = np.int64(2**30)
    assert repr(sojourn.isolated(memory=amount)(adder)) == "<isolated 'adder' | memory 1.0 GiB>"


def test_deterministic_ops_need_a_seed() -> None:
    with pytest.raises(ValueError, match="deterministic=True needs a seed"):
        sojourn.open(adder, deterministic=True)
    with pytest.raises(ValueError, match="deterministic=True needs a seed"):
        sojourn.isolated(deterministic=True)(adder)


@pytest.mark.parametrize("timeout", ["x", True, [1], float("nan")])
def test_a_timeout_is_a_number_of_seconds(timeout: Any) -> None:
    with pytest.raises(TypeError, match="timeout must be a number of seconds or None, not"):
        sojourn.open(adder, timeout=timeout)


@pytest.mark.parametrize(
    ("option", "value", "error", "said"),
    [
        ("name", "\ud800", ValueError, "name must be text, and '.ud800' has half a character"),
        ("signature", 5, TypeError, "signature must be a string, not 5"),
        ("tags", 5, TypeError, "a tag must be a string, not 5"),
        ("tags", ["serve", 5], TypeError, "a tag must be a string, not 5"),
        ("initializer", ["init"], TypeError, r"initializer must be a string, not \['init'\]"),
        ("inputs", {"a": 5}, TypeError, "inputs must be names of tensors .*, not 5 by 'a'"),
        ("outputs", {5: "y:0"}, TypeError, "outputs must be names of tensors .* by 5"),
        ("deterministic", "yes", TypeError, "deterministic must be True or False, not 'yes'"),
        ("seed", 2**64, ValueError, r"a seed must be below 2\*\*64, not"),
        ("memory", 2**63, ValueError, "memory must be an amount that a machine can have, not"),
        ("memory", f"{'9' * 400}GiB", ValueError, "memory: not an amount that a machine can have"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(
    option: str, value: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        sojourn.open(adder, **{option: value})


@pytest.mark.parametrize("isolation", ["process", "inline"])
def test_a_function_that_takes_arguments_builds_no_model(isolation: str) -> None:
    def double(x: Any) -> Any:
        return 2 * x

    with pytest.raises(sojourn.ModelError, match=r"argument: 'x'; to run double itself, open"):
        sojourn.open(double, isolation=isolation)
    with pytest.raises(ValueError, match="it takes its time"):  # what does not tell is called
        sojourn.open(Unspoken(), isolation="inline")


class Unspoken:
    __signature__ = "none"

    def __call__(self) -> Any:
        raise ValueError("it takes its time")


def test_open_takes_what_a_blueprint_takes() -> None:
    of_blueprint = inspect.signature(Blueprint).parameters
    of_open = dict(inspect.signature(sojourn.open).parameters)
    assert of_open.pop("name").default is None
    assert of_open.pop("device").default == "auto"
    assert list(of_open.values()) == list(of_blueprint.values())


@pytest.mark.usefixtures("zygote")
@pytest.mark.parametrize(
    ("option", "value"),
    [("inputs", ["x"]), ("initializer", "init"), ("signature", "s"), ("tags", "serve")],
)
def test_what_the_kind_of_model_has_no_use_for_is_refused(option: str, value: Any) -> None:
    with pytest.raises(sojourn.ModelError, match=f"{option}= is not for a plain function"):
        sojourn.open(adder, **{option: value})
    with sojourn.open(adder, outputs=["sum"]) as session:
        assert session.run("sum", {"a": 1, "b": 2}) == 3


@pytest.mark.parametrize("option", ["inputs", "outputs", "initializer"])
def test_a_savedmodel_has_its_own_inputs_and_outputs(option: str, tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(sojourn.ModelError, match=f"{option}= is not for a SavedModel, which"):
        sojourn.open(tmp_path, **{option: "x"})  # type: ignore[arg-type]


@pytest.mark.usefixtures("zygote")
def test_a_seed_may_come_out_of_an_array_and_feeds_must_have_names() -> None:
    drawn = sojourn.isolated(lambda: np.random.rand(), seed=np.int64(7))  # type: ignore[call-overload]
    assert drawn() == drawn()
    with sojourn.open(adder, seed=np.int64(7)) as session:  # type: ignore[arg-type]
        for feeds in (np.ones(3), np.ones((2, 2)), np.float32(1), "ab", [1, 2], 5):
            with pytest.raises(
                sojourn.InputError, match="feeds must be a mapping from input names"
            ):
                session.run(None, feeds)  # type: ignore[arg-type]
        assert session.run("output", {"a": 1, "b": 2}) == 3
        for names in ("ab", ["a", "b"], {"a", "b"}, np.array(["a", "b"])):  # of a known step
            with pytest.raises(
                sojourn.InputError, match="feeds must be a mapping from input names"
            ):
                session.run("output", names)  # type: ignore[arg-type]
        with pytest.raises(sojourn.InputError, match="b'output' is of type bytes"):
            session.run(b"output", {"a": 1, "b": 2})  # type: ignore[call-overload]


def public_methods() -> Iterator[tuple[str, Any]]:
    """Of everything that `sojourn` and `sojourn.cluster` offer."""
    for module in (sojourn, sojourn.cluster):
        for name in module.__all__:
            offered = getattr(module, name)
            if not inspect.isclass(offered):
                yield name, offered
            else:
                yield from (
                    (f"{name}.{method}", getattr(offered, method))
                    for method in dir(offered)
                    if not method.startswith("_")
                )


def test_a_timeout_is_given_by_name_everywhere() -> None:
    found = {
        name: parameter.kind
        for name, offered in public_methods()
        if inspect.isfunction(offered)
        for parameter in inspect.signature(offered).parameters.values()
        if parameter.name == "timeout"
    }
    assert {"open", "Session.run", "Session.close", "Pool.lease", "Pool.close"} <= set(found)
    assert {n: k for n, k in found.items() if k is not inspect.Parameter.KEYWORD_ONLY} == {}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_calls_what_it_does_not_know_a_usage_error(command: str) -> None:
    for flag in ("-h", "--help"):
        told = call(command, flag)
        assert told.exit_code == 0
        assert told.output.startswith(f"Usage: main {command}")
    assert call(command, "--no-such-option").exit_code == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_prints_and_writes_data_by_the_same_two_options(command: str) -> None:
    found = main.get_command(Context(main), command)
    assert found is not None
    options = {option.opts[0]: option for option in found.params}
    assert getattr(options["--json"], "is_flag", None) is True
    assert options["--output"].metavar == "FILE"


def test_the_commands_are_listed_in_order_each_with_one_sentence() -> None:
    assert list(COMMANDS) == sorted(COMMANDS)
    assert all(text[0].isupper() and text.endswith(".") for text in COMMANDS.values())
    assert all(f"\n  {command} " in call("--help").output for command in COMMANDS)


def test_what_cannot_work_is_said_before_the_work(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("")
    both = call("run", "--tf1", "--tf2", str(program))
    assert (both.exit_code, "exclude each other" in both.output) == (2, True)
    unknown = call("audit", "--ignore", "SOJ999", str(program))
    assert (unknown.exit_code, "There are SOJ001" in unknown.output) == (2, True)
    unchecked = call("serve", "--json", str(tmp_path))
    assert (unchecked.exit_code, "need --check" in unchecked.output) == (2, True)
    nowhere = call("bench", "--plot", str(tmp_path / "none" / "plot.png"))
    assert (nowhere.exit_code, "No such folder" in nowhere.output) == (2, True)
    device = call("inspect", os.devnull)
    assert (device.exit_code, "neither a file nor a folder" in device.output) == (1, True)


def test_a_plot_that_cannot_be_drawn_costs_no_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    from sojourn.bench import endings, namespace

    monkeypatch.setattr(namespace, "enter", lambda: None)
    monkeypatch.setattr(endings, "rows", lambda *_, **__: [])
    file = tmp_path / "rows.json"
    plot = str(tmp_path / "plot.png")
    done = call("bench", "--only", "endings", "--output", str(file), "--plot", plot)
    assert (done.exit_code, "No plot: " in done.output) == (1, True)
    assert json.loads(file.read_text())["rows"] == []


def test_what_tensorflow_notes_about_the_machine_stays_off_the_terminal_of_a_benchmark(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sojourn.cli import notes

    def write() -> None:
        subprocess.run([sys.executable, "-c", "import os; os.write(2, b'I0000 port.cc')"])

    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    with notes.kept_aside() as errors:
        write()
        print("... calls", file=errors)
    assert capfd.readouterr().err == "... calls\n"
    with pytest.raises(ValueError, match="failed"), notes.kept_aside():
        write()
        raise ValueError("failed")
    assert capfd.readouterr().err == "I0000 port.cc"
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    with notes.kept_aside():
        write()
    assert capfd.readouterr().err == "I0000 port.cc"


def test_python_m_sojourn_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sojourn", "no-such-command"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("Usage: sojourn ")


def test_the_drop_in_class_refuses_such_a_name_as_well() -> None:
    import tensorflow as tf

    with pytest.raises(TypeError, match="name must be a string, not 3"):
        sojourn.compat.v1.Session(graph=tf.Graph(), name=3)
