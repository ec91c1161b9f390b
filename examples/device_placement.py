"""Ask for a device, and see where the ops really ran."""

import sojourn


def build():
    import tensorflow as tf

    with tf.device("/GPU:0"):  # falls back softly where there is none
        x = tf.compat.v1.placeholder(tf.float32, [], name="x")
        return {"x": x}, {"y": x * 2}


with sojourn.open(build, device="auto", memory="1GiB") as session:
    print(session(x=21))
    print({device: count > 0 for device, count in session.placement.items()})

try:
    with sojourn.open(build, device="gpu:99") as session:
        print(session(x=21))
except sojourn.DeviceError as error:
    print(error)
