"""The recommended way: the session is closed at the end of the `with` block."""

import tensorflow.compat.v1 as tf

from sojourn.compat.v1 import Session

tf.disable_eager_execution()

x = tf.placeholder(tf.float32, [None])
doubled = x * 2

with Session() as session:
    print("in the block:", session.run(doubled, {x: [1, 2]}).tolist())
    print("by eval:", doubled.eval({x: [3]}).tolist())

print("closed, nothing left:", session.receipt.clean)
