"""A library whose functions have nothing to do with the session that one of them opens."""

import tensorflow as tf

y = tf.constant(1.0)


def in_a_session_of_its_own():
    with tf.Session() as sess:
        return sess.run(y)


def in_any_session():
    return tf.get_default_session().run(y)  # expect: SOJ005
