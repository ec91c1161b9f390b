"""The default graph is reset while sessions are about: a `with` block would not allow it."""

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def fresh(value):
    tf.reset_default_graph()
    x = tf.constant(value)
    sess = tf.Session()
    result = sess.run(x)
    tf.reset_default_graph()
    result += sess.run(x)
    return result


print(fresh(1.0), fresh(2.0))
