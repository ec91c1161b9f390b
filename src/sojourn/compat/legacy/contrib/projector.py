"""`tf.contrib.tensorboard.plugins.projector`, which writes a config file that TensorBoard reads."""

from __future__ import annotations

import os
from typing import Any

import tensorflow.compat.v1 as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

PROJECTOR_FILENAME = "projector_config.pbtxt"

_STRING, _UINT32, _MESSAGE = 9, 13, 11
# Message -> field -> (number, type, whether it is repeated).
_FIELDS: dict[str, dict[str, tuple[int, int | str, bool]]] = {
    "SpriteMetadata": {"image_path": (1, _STRING, False), "single_image_dim": (2, _UINT32, True)},
    "EmbeddingInfo": {
        "tensor_name": (1, _STRING, False),
        "metadata_path": (2, _STRING, False),
        "bookmarks_path": (3, _STRING, False),
        "tensor_shape": (4, _UINT32, True),
        "sprite": (5, "SpriteMetadata", False),
        "tensor_path": (6, _STRING, False),
    },
    "ProjectorConfig": {
        "model_checkpoint_path": (1, _STRING, False),
        "embeddings": (2, "EmbeddingInfo", True),
        "model_checkpoint_dir": (3, _STRING, False),
    },
}


def _messages() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="projector.proto", package="sojourn.projector")
    file.syntax = "proto3"
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, (number, kind, is_many) in fields.items():
            added = message.field.add(name=field, number=number, label=3 if is_many else 1)
            added.type = _MESSAGE if isinstance(kind, str) else kind
            if isinstance(kind, str):
                added.type_name = f".{file.package}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{name}"))
        for name in _FIELDS
    }


globals().update(_messages())


def visualize_embeddings(summary_writer: Any, config: Any) -> None:
    """Write `config` where TensorBoard reads it: the writer's log folder, or the given folder."""
    folder = summary_writer if isinstance(summary_writer, str) else summary_writer.get_logdir()
    path = os.path.join(tf.compat.as_str_any(folder), PROJECTOR_FILENAME)
    with tf.gfile.GFile(path, "w") as file:
        file.write(text_format.MessageToString(config))
