"""Writes models field by field, including models that no honest program would write."""

from __future__ import annotations

import random

from sojourn.probes.model_files.meta_graphs import parse_saved_model


def number(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(0x80 | value & 0x7F)
        value >>= 7
    return bytes([*parts, value])


def field(index: int, *content: bytes | str) -> bytes:
    """Return one field of bytes: a string, or a message given by its fields."""
    joined = b"".join(c.encode() if isinstance(c, str) else c for c in content)
    return number(index << 3 | 2) + number(len(joined)) + joined


def node(name: str, op: str, *inputs: str, **texts: str) -> bytes:
    """A NodeDef in a GraphDef."""
    attributes = [field(5, field(1, k), field(2, field(2, v))) for k, v in texts.items()]
    return field(1, field(1, name), field(2, op), *(field(3, i) for i in inputs), *attributes)


def constant(name: str, content: str) -> bytes:
    """Return a Const node that holds a string."""
    value = field(5, field(1, "value"), field(2, field(8, field(8, content))))
    return field(1, field(1, name), field(2, "Const"), value)


def asset(filename: str, tensor: str) -> bytes:
    """An asset of a MetaGraphDef."""
    return field(6, field(1, field(1, tensor)), field(2, filename))


def collection(name: str, *nodes: str) -> bytes:
    """A collection of a MetaGraphDef."""
    return field(4, field(1, name), field(2, field(1, *(field(1, n) for n in nodes))))


def signature(name: str, *outputs: str) -> bytes:
    """A signature of a MetaGraphDef."""
    tensors = (field(2, field(1, o), field(2, field(1, o))) for o in outputs)
    return field(5, field(1, name), field(2, *tensors))


def saved_model(*meta_graph: bytes) -> bytes:
    """Return a SavedModel with one MetaGraphDef, given by its fields."""
    return field(2, *meta_graph)


def index_of(*entries: tuple[int, bytes]) -> bytes:
    """Return a `.index` file: each key is the length shared with the one before, and the rest."""

    def block(content: bytes) -> bytes:
        return content + bytes(4) + b"\1\0\0\0"  # the restart points of the block, and their number

    def entry(shared: int, fresh: bytes, value: bytes) -> bytes:
        return number(shared) + number(len(fresh)) + number(len(value)) + fresh + value

    data = block(b"".join(entry(shared, fresh, b"") for shared, fresh in entries))
    listed = block(entry(0, b"z", number(0) + number(len(data))))
    handles = number(0) + number(0) + number(len(data) + 5) + number(len(listed))
    magic = (0xDB4775248B80FB57).to_bytes(8, "little")
    return data + bytes(5) + listed + bytes(5) + handles.ljust(40, b"\0") + magic


def random_saved_model(draw: random.Random) -> bytes:
    """Return a random model: names repeat, singular messages are split into parts, in any order."""
    names = ["", "a", "b", "save/c", "x" * 5000 + "1", "x" * 5000 + "2"]
    ops = ["Const", "WriteFile", "SaveV2", "f", "g", "x" * 5000 + "1", "x" * 5000 + "2"]

    def some(make: object, most: int = 4) -> list[bytes]:
        assert callable(make)
        return [make() for _ in range(draw.randint(0, most))]

    def parts(index: int, content: list[bytes]) -> list[bytes]:
        cut = draw.randint(0, len(content))
        halves = [content] if draw.random() < 0.5 else [content[:cut], content[cut:]]
        return [field(index, *half) for half in halves]

    def function_name() -> bytes:
        return b"".join(parts(10, some(lambda: field(1, draw.choice(ops)), 2)))

    def attribute() -> bytes:
        value = parts(2, some(function_name, 2) + some(lambda: field(2, draw.choice(names)), 1))
        return field(5, field(1, draw.choice(names)), *value)

    def any_node(index: int) -> bytes:
        content = some(lambda: field(1, draw.choice(names)), 2)
        content += some(lambda: field(2, draw.choice(ops)), 2)
        content += some(lambda: field(3, draw.choice(names))) + some(attribute, 2)
        draw.shuffle(content)
        return field(index, *content)

    def function() -> bytes:
        signed = parts(1, some(lambda: field(1, draw.choice(ops)), 2))
        content = signed + some(lambda: any_node(3))
        draw.shuffle(content)
        return field(1, *content)

    def graph() -> list[bytes]:
        content = some(lambda: any_node(1)) + parts(2, some(function)) + parts(2, some(function))
        draw.shuffle(content)
        return parts(2, content)

    def any_collection() -> bytes:
        name = draw.choice(["saved_model_main_op", "table_initializer", *names])
        return collection(name, *draw.choices(names, k=2))

    def any_signature() -> bytes:
        name = draw.choice(["__saved_model_init_op", *names])
        return signature(name, *draw.choices(names, k=2))

    def meta_graph() -> bytes:
        content = graph() + graph() + some(any_collection) + some(any_signature)
        content += parts(3, some(lambda: field(3, draw.choice(names)), 2))
        draw.shuffle(content)
        return field(2, *content)

    return b"".join(some(meta_graph, 2))


def differences(seed: int, count: int) -> list[str]:
    """Return what protobuf sees in random models and our reader does not. Needs TensorFlow."""
    from tensorflow.core.protobuf import saved_model_pb2

    found = []
    for i in range(count):
        content = random_saved_model(random.Random(f"{seed} {i}"))
        theirs = saved_model_pb2.SavedModel.FromString(content)
        ours = parse_saved_model(memoryview(content))
        for meta, own in zip(theirs.meta_graphs, ours, strict=True):
            nodes = [*meta.graph_def.node]
            nodes += [n for f in meta.graph_def.library.function for n in f.node_def]
            seen = [(n.name, n.op, list(n.input)) for n in nodes]
            called = {(n.op, a.func.name) for n in nodes for a in n.attr.values() if a.func.name}
            init = [
                n
                for key in ("saved_model_main_op", "table_initializer")
                for n in meta.collection_def[key].node_list.value
            ]
            init += [o.name for o in meta.signature_def["__saved_model_init_op"].outputs.values()]
            signed = {
                (name, o.name)
                for name, s in meta.signature_def.items()
                for o in s.outputs.values()
                if name != "__saved_model_init_op"
            }
            own_nodes = list(own.graph.every_node())
            own_seen = [
                (n.name.decode(), n.op.decode(), [x.decode() for x in n.inputs]) for n in own_nodes
            ]
            own_called = {(n.op.decode(), f.decode()) for n in own_nodes for f in n.calls()}
            own_signed = {
                (k.decode(), t.decode()) for k, v in own.signature_tensors.items() for t in v
            }
            checks = {
                "nodes": sorted(seen) == sorted(own_seen),
                "calls": called <= own_called,
                "functions": {f.signature.name for f in meta.graph_def.library.function}
                == {name.decode() for name in own.graph.functions},
                "init": set(init) <= {n.decode() for n in own.init_ops},
                "restore": not meta.saver_def.restore_op_name
                or meta.saver_def.restore_op_name.encode() in own.restore_ops,
                "signatures": signed <= own_signed,
            }
            found += [f"{what} of model {seed} {i}" for what, same in checks.items() if not same]
    return found
