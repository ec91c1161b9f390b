"""`tf.app.flags` as in TensorFlow 1, implemented with absl."""

from __future__ import annotations

import functools
from typing import Any

from sojourn.compat.legacy.namespaces import Namespace


class _Flags:
    """The FLAGS object with its names from before absl: `_parse_flags` and plain `__flags`."""

    def __init__(self, flags: Any) -> None:
        object.__setattr__(self, "_absl", flags)

    def __getattr__(self, name: str) -> Any:
        flags = object.__getattribute__(self, "_absl")
        if name == "_parse_flags":
            return functools.partial(_parse, flags)
        if name == "__flags":
            return dict(flags.flag_values_dict())
        if name == "__parsed":
            return flags.is_parsed()
        return getattr(flags, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "_absl"), name, value)

    def __getitem__(self, name: str) -> Any:
        return object.__getattribute__(self, "_absl")[name]

    def __contains__(self, name: str) -> bool:
        return name in object.__getattribute__(self, "_absl")

    def __iter__(self) -> Any:
        return iter(object.__getattribute__(self, "_absl"))

    def __len__(self) -> int:
        return len(object.__getattribute__(self, "_absl"))

    def __dir__(self) -> list[str]:
        return dir(object.__getattribute__(self, "_absl"))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return object.__getattribute__(self, "_absl")(*args, **kwargs)


def _parse(flags: Any, args: Any = None) -> dict[str, Any]:
    import sys

    flags(sys.argv if args is None else [sys.argv[0], *args], known_only=True)
    return dict(flags.flag_values_dict())


def namespace(original: Any) -> Namespace:
    """Return the module `tf.flags`, also `tf.app.flags`; `original` is TensorFlow's own."""
    # absl lists a flag under the module that defines it: the program must count, not this file.
    original.disclaim_key_flags()

    def define(function: Any) -> Any:
        @functools.wraps(function)
        def call(
            name: Any = None, default: Any = None, help: Any = "", *args: Any, **kwargs: Any
        ) -> Any:
            # Before absl the arguments were called flag_name, default_value and docstring.
            name = kwargs.pop("flag_name", name)
            default = kwargs.pop("default_value", default)
            help = kwargs.pop("docstring", help)
            if _belongs_to_library(original.FLAGS, name):
                kwargs.setdefault("allow_override", True)
            return function(name, default, help, *args, **kwargs)

        return call

    names: dict[str, Any] = {
        name: define(getattr(original, name))
        for name in (
            "DEFINE_string",
            "DEFINE_integer",
            "DEFINE_float",
            "DEFINE_bool",
            "DEFINE_boolean",
        )
    }
    names["FLAGS"] = _Flags(original.FLAGS)
    return Namespace("tensorflow.flags", (original,), names, shown_as="tf.flags")


def _belongs_to_library(flags: Any, name: str) -> bool:
    """Whether absl or TensorFlow defined `name` first, as with `log_dir` in many programs."""
    owner = flags.find_module_defining_flag(name)
    return bool(owner) and str(owner).split(".")[0] in ("absl", "tensorflow")
