"""`sojourn predict`: send a request to a model of a running server."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import numpy as np

from sojourn.cli.options import Data, data_options
from sojourn.cli.server_client import Client, ServerError, Wanted, server_options
from sojourn.cli.terminal import plain
from sojourn.service import datatypes
from sojourn.service.failures import Refused
from sojourn.service.http.json_arrays import as_anything, as_array

_LENGTH = "Inference-Header-Content-Length"
# The ends of the paths for requests, of TensorFlow Serving and of KServe.
_PREDICT, _INFER = ":predict", "/infer"


@click.command(name="predict")
@click.argument("model")
@click.argument("data_given", metavar="[DATA]...", nargs=-1)
@click.option("--version", type=click.IntRange(min=1), help="This version. Default: the latest.")
@server_options
@data_options
def command(
    model: str, data_given: tuple[str, ...], version: int | None, wanted: Wanted, data: Data
) -> None:
    """Send a request to MODEL on a running server, and print its outputs.

    \b
        sojourn predict double '[1, 2, 3]'            the only input
        sojourn predict add '{"a": [1], "b": [2]}'    inputs by name
        sojourn predict add a=a.npy b='[2]'           the same, also from .npy files
        sojourn predict resnet image.npy
        sojourn predict double '{"instances": [1]}'   a body for TensorFlow Serving, sent as it is
        sojourn predict double < request.json

    DATA is JSON, the name of a .json or .npy file, or - for standard input. Values are
    converted to the model's dtypes; an array of a .npy file is sent as it is.
    """
    given = _given(data_given)
    client = wanted.client()
    if isinstance(given, dict) and ("instances" in given or "inputs" in given):
        answer = _as_it_is(client, model, version, given)
        data.give(answer)
        if not data.is_printed:
            click.echo(json.dumps(answer, indent=2))
        return
    outputs = _asked(client, model, version, given)
    data.give({"outputs": {name: _listed(array) for name, array in outputs.items()}})
    if not data.is_printed:
        for name, array in outputs.items():
            shape = "x".join(map(str, array.shape)) or "scalar"
            click.echo(f"{plain(name)} {array.dtype.name} {shape}")
            click.echo(np.array2string(array))


def _given(items: tuple[str, ...]) -> Any:
    """Return the given data: a dict of inputs by name, or the value of the only input."""
    if not items:
        return _read("-")
    if len(items) == 1 and not _is_named(items[0]):
        return _read(items[0])
    named = {}
    for item in items:
        name, separator, value = item.partition("=")
        if not separator:
            raise click.UsageError(f"Several inputs must be given as name=value, not {item!r}.")
        if name in named:
            raise click.UsageError(f"Input {name!r} is given twice.")
        named[name] = _read(value)
    return named


def _is_named(item: str) -> bool:
    return "=" in item and not item.lstrip().startswith(("{", "[", '"')) and not Path(item).exists()


def _read(item: str) -> Any:
    try:
        if item.endswith(".npy"):
            return _saved_array(item)
        if item == "-":
            text = sys.stdin.read()
        elif item.endswith(".json"):
            text = Path(item).read_text(encoding="utf-8")
        else:
            text = item
        return json.loads(text)
    except OSError as error:
        raise click.UsageError(f"{item}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"Data must be JSON or an array in a .npy file: {error}") from None


def _saved_array(path: str) -> np.ndarray:
    with open(path, "rb") as file:
        try:
            return np.lib.format.read_array(file, allow_pickle=False)
        except Exception as error:  # of many types: numpy evaluates the file's header
            raise ValueError(error) from None


def _as_it_is(client: Client, model: str, version: int | None, body: dict[str, Any]) -> Any:
    inputs = body.get("inputs")
    is_kserve = (
        isinstance(inputs, list)
        and bool(inputs)
        and all(isinstance(one, dict) and "datatype" in one for one in inputs)
    )
    path = _path("v2" if is_kserve else "v1", model, version)
    return client.ask("POST", path + (_INFER if is_kserve else _PREDICT), body)


def _asked(client: Client, model: str, version: int | None, given: Any) -> dict[str, np.ndarray]:
    path = _path("v2", model, version)
    specs = {one["name"]: one for one in client.ask("GET", path)["inputs"]}
    if not isinstance(given, dict):
        if len(specs) != 1:
            names = ", ".join(sorted(specs))
            raise click.UsageError(f"{model} takes {len(specs)} inputs, give them by name: {names}")
        given = {next(iter(specs)): given}
    heads, pieces = [], []
    for name, value in given.items():
        array = value if isinstance(value, np.ndarray) else _array(name, value, specs.get(name))
        try:
            raw = datatypes.to_raw(array)
            datatype = datatypes.datatype_of(array, name)
        except Refused as error:
            raise click.UsageError(str(error)) from None
        pieces.append(raw)
        heads.append({"name": name, "shape": list(array.shape), "datatype": datatype,
                      "parameters": {"binary_data_size": len(raw)}})  # fmt: skip
    head = {"inputs": heads, "parameters": {"binary_data_output": True}}
    text = json.dumps(head).encode()
    body, headers = client.exchange(
        "POST", path + _INFER, b"".join((text, *pieces)), {_LENGTH: str(len(text))}
    )
    return _outputs(body, int(headers.get(_LENGTH, len(body))))


def _array(name: str, value: Any, spec: dict[str, Any] | None) -> np.ndarray:
    """Convert JSON to the model's dtypes, as the server's REST API does."""
    dtype = datatypes.DTYPES.get(spec["datatype"]) if spec else None
    try:
        return as_anything(value, name) if dtype is None else as_array(value, dtype, name)
    except Refused as error:
        raise click.UsageError(str(error)) from None


def _outputs(body: bytes, length: int) -> dict[str, np.ndarray]:
    at, outputs = length, {}
    try:
        for one in json.loads(body[:length])["outputs"]:
            size = one["parameters"]["binary_data_size"]
            shape = tuple(one["shape"])
            outputs[one["name"]] = datatypes.from_raw(
                body[at : at + size], one["datatype"], shape, one["name"]
            )
            at += size
    except (ValueError, KeyError, TypeError, Refused) as error:
        raise ServerError(f"the answer cannot be read: {error}") from None
    return outputs


def _listed(array: np.ndarray) -> Any:
    if array.dtype.kind == "O":
        decoded = [item.decode(errors="replace") for item in array.reshape(-1).tolist()]
        return np.array(decoded, object).reshape(array.shape).tolist()
    if array.dtype.kind not in "biu":
        array = array.astype(float)
        return _finite(array.tolist())
    return array.tolist()


def _finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by strings."""
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return value if math.isfinite(value) else str(value)


def _path(protocol: str, model: str, version: int | None) -> str:
    path = f"/{protocol}/models/{quote(model, safe='')}"
    return path if version is None else f"{path}/versions/{version}"
