"""Build tf.Example messages from the features of a JSON request. Needs no TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sojourn.service.datatypes import from_base64
from sojourn.service.failures import invalid
from sojourn.service.grpc.messages import TENSORS

_INT64 = range(-(2**63), 2**63)
_FLOAT_MAX = 3.4028235677973366e38  # the largest value that rounds to a finite 32-bit float


def from_json(features: Any) -> bytes:
    """Serialize a tf.Example; each feature is a number, text, `{"b64": ...}`, or a list of these.

    Whole numbers and booleans become int64; other numbers, and lists that contain one, become
    float; text becomes UTF-8. An empty list is a feature without a type, which a model treats as
    missing.
    """
    if not isinstance(features, Mapping):
        raise invalid("an example must be an object of features by their names")
    example = TENSORS.Example()
    for name, value in features.items():
        if not _is_text(name):
            raise invalid(f"a feature's name must be text in Unicode, not {name!r}")
        values = list(value) if isinstance(value, list | tuple) else [value]
        _fill(example.features.feature[name], name, values)
    return bytes(example.SerializeToString(deterministic=True))


def _fill(feature: Any, name: str, values: list[Any]) -> None:
    if not values:
        feature.SetInParent()
    elif all(type(value) in (int, bool) for value in values):
        if any(value not in _INT64 for value in values):
            raise invalid(f"feature {name!r}: a whole number must fit into 64 bits")
        feature.int64_list.value.extend(map(int, values))
    elif all(type(value) in (int, float) for value in values):
        if any(math.isfinite(value) and abs(value) > _FLOAT_MAX for value in values):
            raise invalid(f"feature {name!r}: a number must fit into 32 bits")
        feature.float_list.value.extend(values)
    elif all(isinstance(value, str | Mapping) for value in values):
        feature.bytes_list.value.extend([_bytes(name, value) for value in values])
    else:
        raise invalid(f"feature {name!r}: its values must be numbers, or text, and not both")


def _is_text(name: str) -> bool:
    """Whether the name can be encoded: JSON can contain lone surrogates, which UTF-8 cannot."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _bytes(name: str, value: str | Mapping[str, Any]) -> bytes:
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    encoded = value.get("b64")
    if len(value) != 1 or not isinstance(encoded, str):
        raise invalid(f'feature {name!r}: bytes must be {{"b64": text}}')
    try:
        return from_base64(encoded)
    except ValueError as error:
        raise invalid(f"feature {name!r}: {error}") from None


def with_context(examples: Sequence[bytes], context: bytes) -> list[bytes]:
    """Return each example with the context's features added; the example's own features win.

    Concatenated protobuf messages are parsed as one merged message, so nothing is parsed here.
    """
    return [context + example for example in examples]
