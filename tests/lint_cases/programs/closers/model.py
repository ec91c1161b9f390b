"""Sessions of a module: some are closed by the program that imports it, some by nobody."""

import settings
import tensorflow.compat.v1 as tf

imported = tf.Session()
by_the_module = tf.Session()
left = tf.Session()  # expect: SOJ001
made_later = None
listed = [tf.Session() for _ in range(3)]
left_in_a_list = [tf.Session() for _ in range(3)]  # expect: SOJ001


def start():
    global made_later
    made_later = tf.Session()
    settings.SESSION = tf.Session()


def predict(x):
    settings.SESSION.run(x)
    made_later.run(x)
    left_in_a_list[0].run(x)
    listed[0].run(x)
    return left.run(x)
