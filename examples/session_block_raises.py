"""A block that raises: the error leaves the block, and the session is closed all the same."""

import tensorflow.compat.v1 as tf

from sojourn.compat.v1 import Session

tf.disable_eager_execution()

x = tf.placeholder(tf.float32, [None], name="x")
checked = tf.check_numerics(x, "not a number")

try:
    with Session() as session:
        session.run(checked, {x: [float("nan")]})
except tf.errors.InvalidArgumentError as error:
    print("raised:", "not a number" in str(error))

print("closed, nothing left:", session.receipt.clean)
