"""A library: it opens no session, and runs on whatever session is the default."""

import tensorflow.compat.v1 as tf
from tensorflow.python.framework.ops import get_default_session

x = tf.placeholder(tf.float32)
y = tf.square(x)


class Policy:
    def __init__(self):
        self.session = tf.get_default_session()  # expect: SOJ005
        self.scores = tf.square(x)

    def act(self, state):
        return tf.get_default_session().run(self.scores, {x: state})  # expect: SOJ005

    def again(self, state):
        return self.session.run(self.scores, {x: state})


def restore(saver, path):
    saver.restore(tf.get_default_session(), path)  # expect: SOJ005


def by_name(value):
    sess = get_default_session()  # expect: SOJ005
    return sess.run(y, {x: value})


def by_eval(value):
    return y.eval(feed_dict={x: value})  # expect: SOJ005


def current_session():
    return tf.get_default_session()


def by_a_getter(value):
    return current_session().run(y, {x: value})  # expect: SOJ005


def session_or_error():
    session = tf.get_default_session()
    if session is None:
        raise RuntimeError("no session")
    return session


def by_a_careful_getter(value):
    session = session_or_error()  # expect: SOJ005
    return session.run(y, {x: value})


def from_where_it_starts(sess, model, batches):
    state = model.start.eval()  # expect: SOJ005
    for batch in batches:
        state = sess.run(model.end, {model.start: state, model.batch: batch})
    return model.report({"state": model.other.eval()})


def by_place(sess):
    return tf.Variable(1.0).eval(sess)


def only_looks():
    if tf.get_default_session() is None:
        raise RuntimeError("no session")
    return tf.get_default_session().graph


def unless_one_is_given(value, sess=None):
    if sess is None:
        sess = tf.get_default_session()
    return sess.run(y, {x: value})


def given(value, sess):
    return y.eval(feed_dict={x: value}, session=sess)


def make_session(make_default=False):
    if make_default:
        return tf.InteractiveSession()
    return tf.Session()


class Critic:
    def __init__(self, tensors):
        self.tensors = tensors

    def constraint(self):
        return float(self.tensors["constraint"].eval())  # expect: SOJ005

    def inference(self, net):
        return net.eval()


def feeds_by_place(value):
    return y.eval({x: value})  # expect: SOJ005


def only_asks_what_it_can():
    return hasattr(tf.get_default_session(), "as_default")


def eagerly_as_a_rule():
    return y.numpy() if tf.executing_eagerly() else tf.get_default_session().run(y)


def if_there_is_one(value):
    if tf.get_default_session() is not None:
        return tf.get_default_session().run(y, {x: value})
    return value * value
