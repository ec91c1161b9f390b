"""A session is run after its block has closed it."""

import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
answer = tf.constant(42)
with tf.Session() as session:
    session.run(answer)
try:
    session.run(answer)  # expect: SOJ002
except RuntimeError as error:
    print(error)
