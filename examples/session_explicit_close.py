"""A session that is closed by hand. Its receipt says how much memory came back."""

import tensorflow.compat.v1 as tf

from sojourn.compat.v1 import Session

tf.disable_eager_execution()

total = tf.constant([1.0, 2.0, 3.0]) + 1.0

session = Session()
print("value:", session.run(total).tolist())
session.close()

assert session.receipt is not None
print("nothing left behind:", session.receipt.clean)
print("bytes came back:", session.receipt.returned_bytes > 0)
