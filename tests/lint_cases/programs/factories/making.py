"""Functions that open sessions for others."""

import tensorflow.compat.v1 as tf


def lost_by_all(config):
    return tf.Session(config=config)  # expect: SOJ001


def lost_by_some():
    return tf.Session()


def closed_by_all():
    return tf.Session()


def silenced():
    return tf.Session()


def among_others():
    graph = tf.Graph()
    sess = tf.Session(graph=graph)  # expect: SOJ001
    return graph, sess


def one_of_two(has_gpu):
    if has_gpu:
        return tf.Session(config=tf.ConfigProto())  # expect: SOJ001
    return tf.Session()  # expect: SOJ001


def through_another():
    return one_more()


def one_more():
    return tf.Session()


def never_called():
    return tf.Session()


class Agent:
    def __init__(self):
        self.sess = self._new_session()

    def _new_session(self):
        return tf.InteractiveSession()  # expect: SOJ009

    def act(self, x):
        return self.sess.run("out:0", {"in:0": x})


def interactive_if_asked(is_default=False):
    if is_default:
        return tf.InteractiveSession()
    return tf.Session()  # expect: SOJ001


def interactive_or_not(is_default=False):
    if is_default:
        return tf.InteractiveSession()  # expect: SOJ009
    return tf.Session()  # expect: SOJ001
