"""The smaller networks of `tf.contrib.slim.nets`: VGG and ResNet."""

from __future__ import annotations

import collections
import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy.contrib import layer_utils, regularizers
from sojourn.compat.legacy.contrib import layers as _layers
from sojourn.compat.legacy.contrib.framework import add_arg_scope, arg_scope
from sojourn.compat.legacy.namespaces import Namespace

layers: Any = _layers
Block = collections.namedtuple("Block", ("scope", "unit_fn", "args"))


@contextlib.contextmanager
def _collecting(scope: Any, default: str, inputs: Any, reuse: Any, also: Any = ()) -> Iterator[Any]:
    """Open the network's scope; it collects the outputs of the layers built inside."""
    with tf.variable_scope(scope, default, [inputs], reuse=reuse) as here:
        points = here.original_name_scope + "_end_points"
        kinds = [layers.conv2d, layers.fully_connected, layers.max_pool2d, *also]
        with arg_scope(kinds, outputs_collections=points):
            yield here, points


def vgg_arg_scope(weight_decay: float = 0.0005) -> Any:
    """Return an arg scope with the layer arguments that VGG was trained with."""
    with (
        arg_scope(
            [layers.conv2d, layers.fully_connected],
            activation_fn=tf.nn.relu,
            weights_regularizer=regularizers.l2_regularizer(weight_decay),
            biases_initializer=tf.zeros_initializer(),
        ),
        arg_scope([layers.conv2d], padding="SAME") as scope,
    ):
        return scope


def _vgg(name: str, depths: tuple[int, ...]) -> Callable[..., Any]:
    def build(
        inputs: Any,
        num_classes: int = 1000,
        is_training: Any = True,
        dropout_keep_prob: float = 0.5,
        spatial_squeeze: bool = True,
        scope: Any = name,
    ) -> Any:
        with _collecting(scope, name, inputs, None) as (here, points):
            net = inputs
            for index, depth in enumerate(depths, 1):
                width = min(64 * 2 ** (index - 1), 512)
                net = layers.repeat(net, depth, layers.conv2d, width, [3, 3], scope=f"conv{index}")
                net = layers.max_pool2d(net, [2, 2], scope=f"pool{index}")
            net = layers.conv2d(net, 4096, [7, 7], padding="VALID", scope="fc6")
            drop = functools.partial(layers.dropout, is_training=is_training)
            net = drop(net, dropout_keep_prob, scope="dropout6")
            net = layers.conv2d(net, 4096, [1, 1], scope="fc7")
            net = drop(net, dropout_keep_prob, scope="dropout7")
            plain = {"activation_fn": None, "normalizer_fn": None}
            net = layers.conv2d(net, num_classes, [1, 1], scope="fc8", **plain)
            found = layer_utils.convert_collection_to_dict(points)
            if spatial_squeeze:
                net = tf.squeeze(net, [1, 2], name="fc8/squeezed")
                found[here.name + "/fc8"] = net
            return net, found

    build.__name__, build.__doc__ = name, "Its logits, and what every layer gave."
    build.default_image_size = 224  # type: ignore[attr-defined]
    return build


vgg_a = _vgg("vgg_a", (1, 1, 2, 2, 2))
vgg_16 = _vgg("vgg_16", (2, 2, 3, 3, 3))
vgg_19 = _vgg("vgg_19", (2, 2, 4, 4, 4))


def resnet_arg_scope(
    weight_decay: float = 0.0001,
    batch_norm_decay: float = 0.997,
    batch_norm_epsilon: float = 1e-5,
    batch_norm_scale: bool = True,
) -> Any:
    """Return an arg scope with the layer arguments that ResNet was trained with."""
    settings = {
        "decay": batch_norm_decay,
        "epsilon": batch_norm_epsilon,
        "scale": batch_norm_scale,
        "updates_collections": tf.GraphKeys.UPDATE_OPS,
    }
    with (
        arg_scope(
            [layers.conv2d],
            weights_regularizer=regularizers.l2_regularizer(weight_decay),
            weights_initializer=layers.variance_scaling_initializer(),
            activation_fn=tf.nn.relu,
            normalizer_fn=layers.batch_norm,
            normalizer_params=settings,
        ),
        arg_scope([layers.batch_norm], **settings),
        arg_scope([layers.max_pool2d], padding="SAME") as scope,
    ):
        return scope


def subsample(inputs: Any, factor: int, scope: Any = None) -> Any:
    """Keep every `factor`-th pixel of an image in each dimension."""
    return inputs if factor == 1 else layers.max_pool2d(inputs, [1, 1], stride=factor, scope=scope)


def conv2d_same(
    inputs: Any, num_outputs: int, kernel_size: int, stride: int, rate: int = 1, scope: Any = None
) -> Any:
    """Apply a convolution whose padding does not depend on the image size."""
    if stride == 1:
        return layers.conv2d(
            inputs, num_outputs, kernel_size, stride=1, rate=rate, padding="SAME", scope=scope
        )
    total = kernel_size + (kernel_size - 1) * (rate - 1) - 1
    sides = [total // 2, total - total // 2]
    padded = tf.pad(inputs, [[0, 0], sides, sides, [0, 0]])
    return layers.conv2d(
        padded, num_outputs, kernel_size, stride=stride, rate=rate, padding="VALID", scope=scope
    )


@add_arg_scope
def stack_blocks_dense(
    net: Any, blocks: Any, output_stride: int | None = None, outputs_collections: Any = None
) -> Any:
    """Build all units of all blocks; once `output_stride` is reached, dilation replaces strides."""
    reached = rate = 1
    for block in blocks:
        with tf.variable_scope(block.scope, "block", [net]) as here:
            for index, unit in enumerate(block.args, 1):
                if output_stride is not None and reached > output_stride:
                    raise ValueError("The target output_stride cannot be reached.")
                if not isinstance(unit, dict):
                    unit = dict(zip(("depth", "depth_bottleneck", "stride"), unit, strict=True))
                stride = unit.get("stride", 1)
                with tf.variable_scope(f"unit_{index}", values=[net]):
                    if output_stride is not None and reached == output_stride:
                        net = block.unit_fn(net, rate=rate, **{**unit, "stride": 1})
                        rate *= stride
                    else:
                        net = block.unit_fn(net, rate=1, **unit)
                        reached *= stride
            net = layer_utils.collect_named_outputs(outputs_collections, here.name, net)
    if output_stride is not None and reached != output_stride:
        raise ValueError("The target output_stride cannot be reached.")
    return net


_PLAIN = {"activation_fn": None, "normalizer_fn": None}


def _bottleneck(version: int) -> Any:
    @add_arg_scope
    def bottleneck(
        inputs: Any,
        depth: int,
        depth_bottleneck: int,
        stride: int,
        rate: int = 1,
        outputs_collections: Any = None,
        scope: Any = None,
    ) -> Any:
        with tf.variable_scope(scope, f"bottleneck_v{version}", [inputs]) as here:
            width = layer_utils.last_dimension(inputs.shape, min_rank=4)
            net, ends = inputs, {"activation_fn": None}
            if version == 2:
                net = layers.batch_norm(inputs, activation_fn=tf.nn.relu, scope="preact")
                ends = _PLAIN
            if depth == width:
                shortcut = subsample(inputs, stride, "shortcut")
            else:
                shortcut = layers.conv2d(net, depth, [1, 1], stride, scope="shortcut", **ends)
            net = layers.conv2d(net, depth_bottleneck, [1, 1], stride=1, scope="conv1")
            net = conv2d_same(net, depth_bottleneck, 3, stride, rate=rate, scope="conv2")
            net = layers.conv2d(net, depth, [1, 1], stride=1, scope="conv3", **ends)
            net = tf.nn.relu(shortcut + net) if version == 1 else shortcut + net
            return layer_utils.collect_named_outputs(outputs_collections, here.name, net)

    return bottleneck


def _resnet_module(version: int) -> Namespace:
    bottleneck = _bottleneck(version)

    def resnet(
        inputs: Any,
        blocks: Any,
        num_classes: int | None = None,
        is_training: Any = True,
        global_pool: bool = True,
        output_stride: int | None = None,
        include_root_block: bool = True,
        reuse: Any = None,
        scope: Any = None,
    ) -> Any:
        also = [bottleneck, stack_blocks_dense]
        with (
            _collecting(scope, f"resnet_v{version}", inputs, reuse, also) as (_, points),
            arg_scope([layers.batch_norm], is_training=is_training),
        ):
            net = inputs
            if include_root_block:
                if output_stride is not None:
                    if output_stride % 4:
                        raise ValueError("The output_stride needs to be a multiple of 4.")
                    output_stride //= 4
                bare = _PLAIN if version == 2 else {}
                with arg_scope([layers.conv2d], **bare):
                    net = conv2d_same(net, 64, 7, stride=2, scope="conv1")
                net = layers.max_pool2d(net, [3, 3], stride=2, scope="pool1")
            net = stack_blocks_dense(net, blocks, output_stride)
            if version == 2:
                net = layers.batch_norm(net, activation_fn=tf.nn.relu, scope="postnorm")
            if global_pool:
                net = tf.reduce_mean(net, [1, 2], name="pool5", keep_dims=True)
            if num_classes is not None:
                net = layers.conv2d(net, num_classes, [1, 1], scope="logits", **_PLAIN)
            found = layer_utils.convert_collection_to_dict(points)
            if num_classes is not None:
                found["predictions"] = layers.softmax(net, scope="predictions")
            return net, found

    def block(scope: str, base_depth: int, num_units: int, stride: int) -> Block:
        """Return a block in which only the last unit has the stride."""
        unit = {"depth": base_depth * 4, "depth_bottleneck": base_depth, "stride": 1}
        return Block(scope, bottleneck, [unit] * (num_units - 1) + [{**unit, "stride": stride}])

    def sized(name: str, units: tuple[int, ...]) -> Callable[..., Any]:
        def build(
            inputs: Any,
            num_classes: int | None = None,
            is_training: Any = True,
            global_pool: bool = True,
            output_stride: int | None = None,
            reuse: Any = None,
            scope: Any = name,
        ) -> Any:
            blocks = [
                block(f"block{index + 1}", 64 * 2**index, count, 1 if index == 3 else 2)
                for index, count in enumerate(units)
            ]
            return resnet(
                inputs,
                blocks,
                num_classes,
                is_training,
                global_pool,
                output_stride,
                include_root_block=True,
                reuse=reuse,
                scope=scope,
            )

        build.default_image_size = 224  # type: ignore[attr-defined]
        return build

    names = {
        f"resnet_v{version}_{layer_count}": sized(f"resnet_v{version}_{layer_count}", units)
        for layer_count, units in (
            (50, (3, 4, 6, 3)),
            (101, (3, 4, 23, 3)),
            (152, (3, 8, 36, 3)),
            (200, (3, 24, 36, 3)),
        )
    }
    return _module(
        f"resnet_v{version}",
        bottleneck=bottleneck,
        resnet_arg_scope=resnet_arg_scope,
        **{f"resnet_v{version}": resnet, f"resnet_v{version}_block": block, **names},
    )


def _module(name: str, **names: Any) -> Namespace:
    return Namespace(
        f"tensorflow.contrib.slim.nets.{name}", (), names, shown_as=f"tf.contrib.slim.nets.{name}"
    )


resnet_utils = _module(
    "resnet_utils",
    Block=Block,
    subsample=subsample,
    conv2d_same=conv2d_same,
    stack_blocks_dense=stack_blocks_dense,
    resnet_arg_scope=resnet_arg_scope,
)
resnet_v1, resnet_v2 = _resnet_module(1), _resnet_module(2)
vgg = _module("vgg", vgg_a=vgg_a, vgg_16=vgg_16, vgg_19=vgg_19, vgg_arg_scope=vgg_arg_scope)
nets = _module("nets", resnet_utils=resnet_utils, resnet_v1=resnet_v1, resnet_v2=resnet_v2, vgg=vgg)
nets.__dict__["_shown_as"] = "tf.contrib.slim.nets"
