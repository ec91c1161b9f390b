"""The networks that slim carried, with the names that their checkpoints have."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib import slim
from tensorflow.contrib.slim.nets import resnet_v1, resnet_v2, vgg
from tensorflow.contrib.slim.python.slim.nets import resnet_utils

pictures = tf.constant(np.random.RandomState(0).rand(1, 65, 65, 3).astype(np.float32))
found = {}
for version, module in ((1, resnet_v1), (2, resnet_v2)):
    block = getattr(module, f"resnet_v{version}_block")
    network = getattr(module, f"resnet_v{version}")
    blocks = [block("block1", 2, 2, 2), block("block2", 4, 2, 2), block("block3", 8, 2, 1)]
    with slim.arg_scope(resnet_utils.resnet_arg_scope()):
        made = [
            network(pictures, blocks, 5, False, False, stride, reuse=reuse, scope=f"net{version}")[
                0
            ]
            for stride, reuse in ((None, None), (8, True))
        ]
        _, points = getattr(module, f"resnet_v{version}_50")(pictures, 7, is_training=False)
    # Holes instead of strides: the same numbers, at more places.
    found[version] = (made[0], resnet_utils.subsample(made[1], 2))
    assert points["predictions"].shape.as_list() == [1, 1, 1, 7]
    assert f"resnet_v{version}_50/block4" in points
names = {variable.op.name: variable.shape.as_list() for variable in slim.get_model_variables()}
unit = "resnet_v1_50/block1/unit_1/bottleneck_v1"
assert names[f"{unit}/conv2/weights"] == [3, 3, 64, 64]
assert names[f"{unit}/shortcut/BatchNorm/moving_mean"] == [256]
assert names["resnet_v2_50/postnorm/gamma"] == [2048]
assert f"{unit.replace('v1', 'v2')}/shortcut/biases" in names

with slim.arg_scope(vgg.vgg_arg_scope()):
    logits, points = vgg.vgg_16(tf.placeholder(tf.float32, [2, 224, 224, 3]), 10, is_training=True)
assert logits.shape.as_list() == [2, 10]
assert points["vgg_16/conv5/conv5_3"].shape.as_list() == [2, 14, 14, 512]
assert len(slim.losses.get_regularization_losses()) > 16

wanted = [v for v in tf.global_variables() if v.op.name.startswith("net")]
with tf.Session() as sess:
    sess.run(tf.variables_initializer(wanted))
    for one, other in sess.run(found).values():
        assert one.shape == (1, 5, 5, 5), one.shape
        assert np.allclose(one, other, atol=1e-4)
print("fine")
