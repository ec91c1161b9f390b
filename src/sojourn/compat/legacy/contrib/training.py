"""`tf.contrib.training`: hyperparameters, slim's training op, and loops driven by hooks."""

from __future__ import annotations

import json
import numbers
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.training import checkpoint_utils
from tensorflow.python.training import evaluation as _evaluation

from sojourn.compat.legacy import removed
from sojourn.compat.legacy.contrib import slim_learning
from sojourn.compat.legacy.namespaces import names_of


class HParams:
    """Named settings with types, set from code, ``a=1,b=2`` or JSON."""

    _names: list[str]

    def __init__(self, hparam_def: Any = None, model_structure: Any = None, **kwargs: Any) -> None:
        self.__dict__["_names"] = []
        for name, value in kwargs.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: Any) -> None:
        """Add a setting that does not exist yet."""
        if getattr(self, name, None) is not None:
            raise ValueError(f"Hyperparameter name is reserved: {name}")
        self._names.append(name)
        setattr(self, name, list(value) if isinstance(value, (list, tuple)) else value)

    def set_hparam(self, name: str, value: Any) -> None:
        """Set an existing setting, converting the value to its type."""
        if name not in self._names:
            raise KeyError(name)
        before = getattr(self, name)
        if isinstance(before, list) and isinstance(value, list):
            kind = type(before[0]) if before else None
            value = [_as(kind, item) for item in value] if kind else value
        elif before is not None and not isinstance(before, (list, dict)):
            value = _as(type(before), value)
        setattr(self, name, value)

    def del_hparam(self, name: str) -> None:
        """Remove a setting if it exists."""
        if name in self._names:
            self._names.remove(name)
            delattr(self, name)

    def parse(self, values: str) -> HParams:
        """Set from a string ``name=value,name=[value,value]``."""
        for name, value in _assignments(values):
            if name not in self._names:
                raise ValueError(f"Unknown hyperparameter: {name}")
            self.set_hparam(name, value)
        return self

    def override_from_dict(self, values: dict[str, Any]) -> HParams:
        """Set several settings from a dict."""
        for name, value in values.items():
            self.set_hparam(name, value)
        return self

    def parse_json(self, text: str) -> HParams:
        """Set settings from a JSON object."""
        return self.override_from_dict(json.loads(text))

    def values(self) -> dict[str, Any]:
        """Return the settings by name."""
        return {name: getattr(self, name) for name in self._names}

    def to_json(self, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
        """Return the settings as a JSON object."""
        return json.dumps(self.values(), indent=indent, separators=separators, sort_keys=sort_keys)

    def get(self, key: str, default: Any = None) -> Any:
        """Return one setting, or `default`."""
        return getattr(self, key) if key in self._names else default

    def __contains__(self, key: object) -> bool:
        return key in self._names

    def __str__(self) -> str:
        return str(sorted(self.values().items()))

    def __repr__(self) -> str:
        return f"HParams({self.values()!r})"


def _as(kind: Any, value: Any) -> Any:
    if kind is bool and isinstance(value, str):
        known = {"true": True, "1": True, "false": False, "0": False}
        if value.lower() not in known:
            raise ValueError(f"not a boolean: {value!r}")
        return known[value.lower()]
    if kind is type(None):
        return value
    if not isinstance(value, str) and (
        kind is str
        or isinstance(value, bool) != (kind is bool)
        or (kind is int and not isinstance(value, numbers.Integral))
    ):
        raise ValueError(f"Could not cast {value!r} to {kind.__name__}")
    return kind(value)


def _assignments(text: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    rest = text.strip().strip(",")
    while rest:
        name, _, rest = rest.partition("=")
        rest = rest.lstrip()
        if rest.startswith("["):
            inside, _, rest = rest[1:].partition("]")
            found.append((name.strip(), [item.strip() for item in inside.split(",")]))
            rest = rest.lstrip(" ,")
        else:
            value, _, rest = rest.partition(",")
            found.append((name.strip(), value.strip()))
    return found


StopAfterNEvalsHook = _evaluation._StopAfterNEvalsHook
evaluate_once = _evaluation._evaluate_once
get_or_create_eval_step = _evaluation._get_or_create_eval_step


def train(
    train_op: Any,
    logdir: str | None,
    master: str = "",
    is_chief: bool = True,
    scaffold: Any = None,
    hooks: Any = None,
    chief_only_hooks: Any = None,
    save_checkpoint_secs: Any = 600,
    save_summaries_steps: Any = 100,
    config: Any = None,
    max_wait_secs: int = 7200,
) -> Any:
    """Run `train_op` until a hook requests a stop; return the loss of the last step."""
    loss = None
    with tf.train.MonitoredTrainingSession(
        master=master,
        is_chief=is_chief,
        checkpoint_dir=logdir,
        scaffold=scaffold,
        hooks=hooks,
        chief_only_hooks=chief_only_hooks,
        save_checkpoint_secs=save_checkpoint_secs,
        save_summaries_steps=save_summaries_steps,
        config=config,
        max_wait_secs=max_wait_secs,
    ) as session:
        while not session.should_stop():
            loss = session.run(train_op)
    return loss


globals().update(
    names_of(
        slim_learning,
        "SummaryAtEndHook add_gradients_summaries clip_gradient_norms create_train_op "
        "multiply_gradients",
    ),
    **names_of(checkpoint_utils, "checkpoints_iterator wait_for_new_checkpoint"),
)
__getattr__ = removed.missing_name("tf.contrib.training")
