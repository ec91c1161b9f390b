"""`sojourn.open`: from the user's model to a session that is ready."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from sojourn.engines.hooks import DEFAULT
from sojourn.errors import DeviceError, ModelError
from sojourn.kinds import KINDS, Load, framework_of
from sojourn.kinds.names import by_short_name
from sojourn.kinds.paths import Found, readable, recognise
from sojourn.probes import gpu
from sojourn.probes.platform import require_process_isolation
from sojourn.session.backend import Backend, InlineBackend
from sojourn.session.beginning import IsUnderWay
from sojourn.session.conversion.attempt import Attempt
from sojourn.session.describing import Arrays, base_name, described, listed_tags
from sojourn.session.devices import Choice, choose
from sojourn.session.engine_options import checked
from sojourn.session.session import Session
from sojourn.session.stay import Stay
from sojourn.session.trust import confinement, memory_limit
from sojourn.values import Place, TensorSpec, arguments, caller

if TYPE_CHECKING:
    from sojourn.process.spares import TakeSpare
    from sojourn.session.conversion.candidates import Examined
    from sojourn.session.conversion.converting import Conversion, Open

_counter = itertools.count(1)
_warned: set[str] = set()
Names = str | Sequence[str] | Mapping[str, str | TensorSpec] | None

FROM_CHECKPOINT = "from-checkpoint"


def open(
    model: Any,
    *,
    name: str | None = None,
    isolation: str = "process",
    device: str = "auto",
    memory: int | str | None = None,
    signature: str | None = None,
    tags: str | Sequence[str] | None = None,
    inputs: Names = None,
    outputs: Names = None,
    initializer: str | None = None,
    seed: int | None = None,
    deterministic: bool = False,
    restart: str | None = None,
    untrusted: bool | str = False,
    timeout: float | None = None,
    engine: str | None = None,
    engine_options: Mapping[str, Any] | None = None,
    samples: Sequence[Mapping[str, Any]] | None = None,
    tolerance: float | None = None,
    shadow: float | None = None,
) -> Session:
    """Open a session on a model. It lives until it is closed; use it in a `with` block.

    `model` is a path (a SavedModel folder, a `.keras` or `.h5` file, a frozen `.pb`, a checkpoint
    with its meta graph, an `.onnx` or `.tflite` file), a live Keras model, `tf.function` or
    `tf.Graph`, or a function without arguments that builds any of these inside the worker (or
    returns a plain function to run there).

    `signature` and `tags` choose from a SavedModel; `inputs` and `outputs` name tensors of a graph
    (a list, or a mapping from short names), or describe the inputs of a function by `TensorSpec`s;
    `initializer` names the op that initialises a graph's variables, where it is not the usual one.

    `isolation` is `"process"` (a worker of its own, whose end gives everything back) or `"inline"`
    (in this process; TensorFlow keeps the memory). `device` is `"auto"`, `"cpu"`, `"gpu"`,
    `"gpu:1"` or `"gpu:<uuid>"`. `memory`, such as `"2GiB"`, is the most the worker may allocate,
    on the host and on a GPU. `seed` makes the same work give the same bits, and `deterministic`
    asks for ops that do not depend on the order of threads. With `restart="from-checkpoint"` a
    worker that died is replaced at the next step, with the state that was last saved or restored.

    With `untrusted=True` a model in a file is loaded and run in a worker that can read nothing but
    the model and the interpreter's libraries, writes nothing, and has no network and no programs
    to start. `timeout` is the most the opening may take, in seconds.

    `engine` is `"tensorflow"`, `"onnxruntime"`, `"litert"` or `"fastest"`: a model of TensorFlow
    is then converted once and compared with TensorFlow, on `samples` (a list of feeds) or inputs
    that are made from its signature, within a `tolerance` that is measured unless it is given.
    `session.engine` says what computes. `engine_options` are `threads`, the most that one step may
    use, and, for TensorFlow, `jit_compile`. With `shadow=0.01` one of a hundred steps is run by
    TensorFlow too; if the answers disagree, TensorFlow runs all that follow.
    """
    # All arguments except those that belong to one session.
    options = {key: value for key, value in locals().items() if key not in ("name", "device")}
    return Blueprint(**options).open(caller(), name, device)


class Blueprint:
    """A model and its options, checked and packed once, to open any number of sessions from."""

    def __init__(
        self,
        model: Any,
        *,
        isolation: str = "process",
        memory: int | str | None = None,
        signature: str | None = None,
        tags: str | Sequence[str] | None = None,
        inputs: Names = None,
        outputs: Names = None,
        initializer: str | None = None,
        seed: int | None = None,
        deterministic: bool = False,
        restart: str | None = None,
        untrusted: bool | str = False,
        timeout: float | None = None,
        engine: str | None = None,
        engine_options: Mapping[str, Any] | None = None,
        samples: Sequence[Mapping[str, Any]] | None = None,
        tolerance: float | None = None,
        shadow: float | None = None,
    ) -> None:
        _check(isolation, restart)
        if shadow is not None and restart is not None:
            raise ValueError("shadow= is not for a session with restart=")
        seed = arguments.seed(seed, deterministic)
        self._isolation = isolation
        self._inline = isolation == "inline"
        found: Found | None = None
        if isinstance(model, str | os.PathLike):
            found = recognise(readable(model)).model()
        self._confined = confinement(untrusted, found, isolation)
        self._limit = memory_limit(memory, self._confined)
        if self._inline and self._limit is not None:
            raise ValueError("memory= limits a worker, and an inline session has none")
        self._timeout = arguments.timeout(timeout)
        self._restart = restart
        self.model_name = base_name(model)
        chosen = Load(
            kind="",
            signature=None if signature is None else arguments.text("signature", signature),
            tags=listed_tags(tags),
            inputs=by_short_name("inputs", inputs),
            outputs=by_short_name("outputs", outputs),
            initializer=None
            if initializer is None
            else [arguments.text("initializer", initializer)],
            seed=seed,
            deterministic=deterministic,
        )
        self._load, self._arrays = described(found or model, self._inline, chosen)
        kind = KINDS[self._load.kind]
        kind.refuse_what_is_ignored(chosen)
        options = checked(engine_options, engine or kind.engine, self._inline)
        self._load = replace(self._load, **options)
        self._conversion: Conversion | None = None
        if any(given is not None for given in (engine, samples, tolerance, shadow)):
            # Conversion is optional: it is imported only when it is asked for.
            from sojourn.session.conversion.converting import conversion_for

            is_confined = self._confined.is_on
            self._conversion = conversion_for(
                engine, self._load, self._arrays, samples, tolerance, shadow, isolation, is_confined
            )

    def takes_spares(self, device: str) -> bool:
        """Whether its sessions can be opened in a spare worker, which was started ahead for the
        CPU."""
        is_limited = self._limit is not None or self._confined.is_on
        is_of_default = KINDS[self._load.kind].framework == DEFAULT
        if self._inline or is_limited or not is_of_default or not _takes_spares(self._load):
            return False
        return device == "cpu" or (device == "auto" and not gpu.found())

    def keep_zygote(self) -> None:
        """Keep the zygote of its sessions running once it exists: more sessions will be opened, at
        any time."""
        if not self._inline and self._conversion is None:
            from sojourn.process.zygote import zygote_for

            zygote_for(KINDS[self._load.kind].framework).remain()

    def open(
        self,
        owner: Place,
        name: str | None = None,
        device: str = "auto",
        is_under_way: IsUnderWay | None = None,
        take_spare: TakeSpare | None = None,
    ) -> Session:
        """Open a session for the owner. `is_under_way` is called with a function that cancels the
        opening, and `take_spare` returns a spare worker if one is ready."""
        if name not in (None, ""):
            arguments.text("name", name)
        name = name or f"{self.model_name}-{next(_counter)}"
        attempt = Attempt(name, self._timeout)
        if is_under_way is not None:
            is_under_way(attempt.call_off)
        load, arrays, engine = self._load, self._arrays, ""
        may_repeat = self._conversion is not None
        while True:
            if self._conversion is not None:
                trial = self._trial(attempt, owner, name, device)
                load, arrays, engine = self._conversion.chosen(attempt, trial, name)
            try:
                return self._open_as(load, arrays, owner, name, device, attempt, engine, take_spare)
            except ModelError:
                # Another process may have cleared the cache meanwhile, or evicted the entry.
                if not may_repeat or self._conversion is None:
                    raise
                # `is_intact` is called first, because it also forgets an entry that is gone.
                if self._conversion.is_intact() and not _is_gone(load):
                    raise
                may_repeat = False

    def examine(self, owner: Place) -> Examined:
        """Return the facts about the engines that were asked for; leaves no session open."""
        if self._conversion is None:
            kind = KINDS[self._load.kind]
            raise ModelError(f"{kind.what} is run by {kind.engine} as it is: nothing is converted")
        attempt = Attempt(self.model_name, self._timeout)
        trial = self._trial(attempt, owner, self.model_name, "auto")
        return self._conversion.examined(attempt, trial)

    def _trial(self, attempt: Attempt, owner: Place, name: str, device: str) -> Open:
        def open_trial(load: Load, arrays: Arrays) -> Session:
            attempt.check()
            try:
                return self._open_as(load, arrays, owner, f"{name}-trial", device, attempt)
            except Exception:
                attempt.check()  # raises instead if the attempt was cancelled or timed out
                raise

        return open_trial

    def _open_as(
        self,
        load: Load,
        arrays: Arrays,
        owner: Place,
        name: str,
        device: str,
        attempt: Attempt,
        engine: str = "",
        take_spare: TakeSpare | None = None,
    ) -> Session:
        """Open a session on this model or on a converted form of it, described by `load`."""
        arguments.device("device", device)
        if self._confined.is_on:
            device = _without_gpu(device)
        kind = KINDS[load.kind]
        if not kind.uses_gpu:
            if device not in ("auto", "cpu"):
                raise DeviceError(f"{kind.what} runs on the CPU, not on {device!r}")
            device = "cpu"
        choice = _chosen(device, self._limit, self._inline)
        limit = self._limit if choice.gpu is not None else None
        load = replace(load, device=device, gpu_bytes=limit)
        stay = Stay(name, self._isolation, choice.label, owner, model=self.model_name)
        stay.engine = engine or kind.engine

        def new_backend(deadline: float | None) -> Backend:
            if self._inline:
                return InlineBackend(os.getpid(), load.kind)
            require_process_isolation()
            from sojourn.process.spares import standing
            from sojourn.session.isolation import WorkerBackend

            return WorkerBackend(
                stay.name,
                take_spare=(take_spare or standing.take) if _takes_spares(load) else None,
                framework=framework_of(load),
                memory_bytes=self._limit,
                environment=dict(choice.environment),
                on_gpu=choice.gpu is not None,
                readable_paths=self._confined.readable,
                best_effort_sandbox=self._confined.best_effort,
                deadline=deadline,
            )

        def what_to_load() -> tuple[Load, Arrays]:
            nonlocal load, arrays
            if _is_gone(load):  # a step waits for this: converting it again would take too long
                load = replace(self._load, device=device, gpu_bytes=limit)
                arrays = self._arrays
                stay.engine = "tensorflow: the converted model is no longer in the cache"
            return load, arrays

        try:
            # Trying engines has used up some of the timeout.
            timeout = self._timeout if self._conversion is None else attempt.seconds_left
            stay.beginning.open(new_backend, load, arrays, timeout, attempt.is_under_way)
            if self._confined.is_on:
                stay.keeping.forbid("save", "an untrusted worker writes nothing")
            if choice.gpu is not None and device == "auto":
                _tell_if_on_cpu(stay)
            if self._restart is not None:
                stay.comeback = stay.keeping.comeback_with(new_backend, what_to_load)
            if load.kind == "shadowed":
                from sojourn.session.conversion.shadowing import tell_of_disagreement

                tell_of_disagreement(stay)
            return Session(stay)
        except BaseException as error:
            stay.beginning.abandon(error)
            raise


def _is_gone(load: Load) -> bool:
    """Whether the file of a converted model that it names no longer exists."""
    parts = [load, *(load.parts or ())]
    return any(part.is_converted and not os.path.exists(part.path) for part in parts)


def _takes_spares(load: Load) -> bool:
    """Whether it may be loaded in a spare worker, whose framework and threads already run."""
    is_plain = load.threads is None and not load.jit_compile
    return is_plain and KINDS[load.kind].takes_spares


def _without_gpu(device: str) -> str:
    if device not in ("auto", "cpu"):
        raise ValueError(f"an untrusted model runs on the CPU, not on {device!r}")
    return "cpu"


def _check(isolation: str, restart: str | None) -> None:
    if isolation not in ("process", "inline"):
        raise ValueError(f'isolation must be "process" or "inline", not {isolation!r}')
    if restart not in (None, FROM_CHECKPOINT):
        raise ValueError(f'restart must be "{FROM_CHECKPOINT}" or None, not {restart!r}')
    if restart is not None and isolation == "inline":
        raise ValueError("an inline session has no worker that could be restarted")


def _chosen(device: str, limit: int | None, inline: bool) -> Choice:
    if inline:
        # The devices that this process sees cannot be changed: TensorFlow may use them already.
        choose("cpu" if device == "auto" else device, gpu.found())
        return Choice("cpu" if device in ("auto", "cpu") else device)
    gpus = () if device == "cpu" else gpu.found()
    choice = choose(device, gpus, os.environ.get("CUDA_VISIBLE_DEVICES"), limit)
    _warn_once(choice.warning)
    return choice


def _tell_if_on_cpu(stay: Stay) -> None:
    """Warn if the session runs on the CPU although a GPU was chosen: the worker's TensorFlow may
    lack GPU support."""
    devices = stay.keeping.placement()
    if devices and not any(name.startswith("GPU") for name in devices):
        stay.beginning.describe("cpu")
        _warn_once(
            "a GPU was found, but TensorFlow does not use it (is it tensorflow-cpu, or is a CUDA "
            "library missing?), so sessions run on the CPU"
        )


def _warn_once(text: str) -> None:
    if text and text not in _warned:
        _warned.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=4)
