"""Some ops on the CPU, some on a GPU; on a machine without a GPU, all run on the CPU."""

import tensorflow.compat.v1 as tf

from sojourn.compat.v1 import Session

tf.disable_eager_execution()

with tf.device("/CPU:0"):
    prepared = tf.random.uniform([64, 64], seed=1) + 1.0
with tf.device("/GPU:0"):
    product = tf.matmul(prepared, prepared)

config = tf.ConfigProto(allow_soft_placement=True)
config.gpu_options.allow_growth = True
with Session(config=config) as session:
    kinds = [device.device_type for device in session.list_devices()]
    print("has a CPU:", "CPU" in kinds)
    print("shape:", session.run(product).shape)

strict = tf.ConfigProto(allow_soft_placement=False)
with Session(config=strict) as session:
    try:
        session.run(product)
        print("without fallback: ran on the GPU" if "GPU" in kinds else "never printed")
    except tf.errors.InvalidArgumentError as error:
        print("without fallback:", "device" in str(error).lower())
