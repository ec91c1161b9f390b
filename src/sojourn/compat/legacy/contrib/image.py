"""`tf.contrib.image`: rotating, translating and transforming images."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy import removed


def transform(
    images: Any,
    transforms: Any,
    interpolation: str = "NEAREST",
    output_shape: Any = None,
    name: Any = None,
) -> Any:
    """Apply a projective transform to each image: eight numbers that map output to input points."""
    images = tf.convert_to_tensor(images)
    ranks = {2: (None, ..., None), 3: (None, ...), 4: (...,)}
    if images.shape.ndims not in ranks:
        raise TypeError(f"Images should have rank between 2 and 4, not {images.shape.ndims}.")
    four = images[ranks[images.shape.ndims]]
    transforms = tf.cast(transforms, tf.float32)
    moved = tf.raw_ops.ImageProjectiveTransformV2(
        images=four,
        transforms=transforms[None] if transforms.shape.ndims == 1 else transforms,
        output_shape=tf.shape(four)[1:3] if output_shape is None else output_shape,
        interpolation=interpolation.upper(),
    )
    back = {2: moved[0, :, :, 0], 3: moved[0]}.get(images.shape.ndims, moved)
    if output_shape is None:
        back.set_shape(images.shape)
    return back


def rotate(images: Any, angles: Any, interpolation: str = "NEAREST", name: Any = None) -> Any:
    """Rotate each image counterclockwise by its angle, in radians."""
    images = tf.convert_to_tensor(images)
    sides = tf.shape(images)[1:3] if images.shape.ndims == 4 else tf.shape(images)[:2]
    sides = tf.cast(sides, tf.float32)
    turns = angles_to_projective_transforms(angles, sides[0], sides[1])
    return transform(images, turns, interpolation)


def translate(
    images: Any, translations: Any, interpolation: str = "NEAREST", name: Any = None
) -> Any:
    """Translate each image by its ``[dx, dy]``."""
    return transform(images, translations_to_projective_transforms(translations), interpolation)


def angles_to_projective_transforms(
    angles: Any, image_height: Any, image_width: Any, name: Any = None
) -> Any:
    """Return the transforms that rotate images of that size about their center."""
    angles = tf.reshape(tf.cast(angles, tf.float32), [-1])
    cos, sin = tf.cos(angles), tf.sin(angles)
    width, height = image_width - 1.0, image_height - 1.0
    x = (width - (cos * width - sin * height)) / 2
    y = (height - (sin * width + cos * height)) / 2
    zero = tf.zeros_like(cos)
    return tf.stack([cos, -sin, x, sin, cos, y, zero, zero], 1)


def translations_to_projective_transforms(translations: Any, name: Any = None) -> Any:
    """Return the transforms that translate images."""
    moves = tf.reshape(tf.cast(translations, tf.float32), [-1, 2])
    one, zero = tf.ones_like(moves[:, 0]), tf.zeros_like(moves[:, 0])
    return tf.stack([one, zero, -moves[:, 0], zero, one, -moves[:, 1], zero, zero], 1)


__getattr__ = removed.missing_name("tf.contrib.image")
