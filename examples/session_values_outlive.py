"""What `run` returns is yours: it outlives its inputs, its graph and its session."""

import numpy as np
import tensorflow.compat.v1 as tf

from sojourn.compat.v1 import Session

tf.disable_eager_execution()


def compute() -> list[np.ndarray]:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [3])
        same, squared = tf.identity(x), tf.square(x)
        given = np.array([1, 2, 3], np.float32)
        with Session() as session:
            results = session.run([same, squared], {x: given})
        given[:] = -1
        del given
    return results


same, squared = compute()
print("same:", same.tolist())
print("squared:", squared.tolist())
same += 1
print("and may be changed:", same.tolist())
