"""Parse the `.proto` files in this folder into descriptors.

They have one declaration on each line; this parser understands nothing else. No code is generated,
and nothing enters protobuf's default pool, where TensorFlow has messages of the same names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2

_Field = descriptor_pb2.FieldDescriptorProto
_MESSAGE, _ENUM = _Field.TYPE_MESSAGE, _Field.TYPE_ENUM
_LABELS = {True: _Field.LABEL_REPEATED, False: _Field.LABEL_OPTIONAL}
_SCALARS = {
    name: getattr(_Field, f"TYPE_{name.upper()}")
    for name in "double float int32 int64 uint32 uint64 bool string bytes".split()
}
_METHOD = re.compile(r"rpc (\w+)\((stream )?(\w+)\) returns \((stream )?(\w+)\);")

Kinds = Mapping[str, int]  # message or enum, by the full name of each known type


def read(name: str, text: str, known: Kinds) -> tuple[Any, dict[str, int]]:
    """The descriptor of one file, and the kinds of its own types and of those `known` before."""
    reader = _Reader(name, known)
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if words and not words[0].startswith("//"):
            try:
                reader.take(line.strip(), words)
            except (LookupError, ValueError, AttributeError) as error:
                raise ValueError(f"{name}, line {number}: {line!r} is not understood") from error
    reader.set_types()
    return reader.file, reader.kinds


class _Reader:
    def __init__(self, name: str, known: Kinds) -> None:
        self.file = descriptor_pb2.FileDescriptorProto(name=name, syntax="proto3")
        self.kinds = dict(known)
        self._open: list[tuple[Any, str]] = [(self.file, "")]  # enclosing declarations, full names
        self._types: list[tuple[Any, str, str]] = []  # fields, their types as written, and where
        self._in_oneof = False

    def take(self, line: str, words: list[str]) -> None:
        first = words[0]
        owner, scope = self._open[-1]
        if first == "}":
            if self._in_oneof:
                self._in_oneof = False
            else:
                self._open.pop()
        elif first == "syntax":
            pass
        elif first == "package":
            self.file.package = words[1].rstrip(";")
            self._open = [(self.file, self.file.package)]
        elif first == "import":
            self.file.dependency.append(words[1].strip('";'))
        elif first == "oneof":
            owner.oneof_decl.add(name=words[1])
            self._in_oneof = True
        elif first in ("message", "enum", "service"):
            self._begin(first, words[1], is_empty=words[2] == "{}")
        elif first == "rpc":
            self._add_method(owner, line)
        elif first.startswith("map<"):
            self._add_map(owner, scope, first[4:-1], words[1][:-1], words[2], words[4])
        elif len(words) == 3:
            owner.value.add(name=first, number=int(words[2].rstrip(";")))
        else:
            *repeated, written, name, _, number = words
            field = owner.field.add(
                name=name, number=int(number.rstrip(";")), label=_LABELS[repeated == ["repeated"]]
            )
            if self._in_oneof:
                field.oneof_index = len(owner.oneof_decl) - 1
            self._types.append((field, written, scope))

    def _begin(self, what: str, name: str, is_empty: bool) -> None:
        owner, scope = self._open[-1]
        full = f"{scope}.{name}"
        if what == "service":
            added = owner.service.add(name=name)
        elif what == "enum":
            self.kinds[full] = _ENUM
            added = owner.enum_type.add(name=name)
        else:
            self.kinds[full] = _MESSAGE
            added = (owner.message_type if owner is self.file else owner.nested_type).add(name=name)
        if not is_empty:
            self._open.append((added, full))

    def _add_method(self, service: Any, line: str) -> None:
        match = _METHOD.fullmatch(line)
        if match is None:
            raise ValueError(line)
        name, asks, request, answers, response = match.groups()
        package = self.file.package
        service.method.add(
            name=name,
            input_type=f".{package}.{request}",
            output_type=f".{package}.{response}",
            client_streaming=bool(asks),
            server_streaming=bool(answers),
        )

    def _add_map(
        self, owner: Any, scope: str, key: str, value: str, name: str, number: str
    ) -> None:
        """Add a map: a repeated message of a key and a value, with the name protobuf prescribes."""
        entry_name = "".join(part.capitalize() for part in name.split("_")) + "Entry"
        entry = owner.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=_LABELS[False], type=_SCALARS[key])
        self._types.append(
            (entry.field.add(name="value", number=2, label=_LABELS[False]), value, scope)
        )
        owner.field.add(
            name=name,
            number=int(number.rstrip(";")),
            label=_LABELS[True],
            type=_MESSAGE,
            type_name=f".{scope}.{entry_name}",
        )

    def set_types(self) -> None:
        """Resolve each field's type as protobuf does, from the innermost scope outwards."""
        for field, written, scope in self._types:
            if written in _SCALARS:
                field.type = _SCALARS[written]
                continue
            full = f"{scope}.{written}"
            while full not in self.kinds:
                if not scope:
                    raise ValueError(f"{self.file.name}: there is no message or enum {written}")
                scope = scope.rpartition(".")[0]
                full = f"{scope}.{written}" if scope else written
            field.type, field.type_name = self.kinds[full], f".{full}"
