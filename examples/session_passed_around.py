"""One session, made here and used by another module. The module that made it closes it."""

import tensorflow as tf
from session_modules import borrowing

from sojourn.compat.v1 import Session

with tf.Graph().as_default():
    x = tf.compat.v1.placeholder(tf.float32, [], name="x")
    tf.identity(x + 1, name="plus")
    tf.identity(x * 10, name="times")
    with Session() as session:
        print("plus:", borrowing.scored(session, "plus", 4))
        print("times:", borrowing.scored(session, "times", 4))

print("closed by its maker:", session.receipt.clean)
