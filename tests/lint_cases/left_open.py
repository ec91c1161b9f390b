"""Sessions that nothing closes."""

import elsewhere
import six
import tensorflow as tf
import tensorflow.compat.v1 as tf1
from keras import backend as K
from sklearn.base import BaseEstimator
from tensorflow.compat import v1 as tfv1
from tensorflow.compat.v1 import InteractiveSession
from tensorflow.compat.v1 import Session as S
from tensorflow.python import debug as tf_debug
from tensorflow.python.client import session as session_lib

x = tf1.constant(1.0)


def plain():
    sess = tf.compat.v1.Session()  # expect: SOJ001
    return sess.run(x)


def by_module_alias(saver, path):
    sess = tfv1.Session(config=tfv1.ConfigProto())  # expect: SOJ001
    saver.restore(sess, path)
    return sess.run(x)


def by_class_alias():
    sess = S()  # expect: SOJ001
    print(sess.run(x))


def by_home_module():
    sess = session_lib.Session()  # expect: SOJ001
    print(sess.run(x))


def monitored():
    sess = tf1.train.MonitoredTrainingSession()  # expect: SOJ001
    while not sess.should_stop():
        sess.run(x)


def without_a_name():
    print(tf1.Session().run(x))  # expect: SOJ001
    return x.eval(session=tf1.Session())  # expect: SOJ001


def as_default_does_not_close():
    with tf1.Session().as_default():  # expect: SOJ001
        print(x.eval())


def on_one_way_out(flag):
    sess = tf1.Session()  # expect: SOJ001
    if flag:
        return None
    result = sess.run(x)
    sess.close()
    return result


def only_when_none_was_given(sess=None):
    if sess is None:
        sess = tf1.Session()  # expect: SOJ001
    return sess.run(x)


def passed_to_a_borrower():
    sess = tf1.Session()  # expect: SOJ001
    borrow(sess)


def borrow(session):
    return session.run(x)


def lent_and_used_again():
    sess = tf1.Session()  # expect: SOJ001
    elsewhere.build(sess)
    return sess.run(x)


def lent_and_restored_later(saver, path):
    sess = tf1.Session()  # expect: SOJ001
    elsewhere.build(sess)
    saver.restore(sess, path)


def used_by_a_callback():
    sess = tf1.Session()  # expect: SOJ001

    def evaluate():
        return sess.run(x)

    elsewhere.train(sess.graph, evaluate=evaluate)


def used_by_a_lambda(values):
    sess = tf1.Session()  # expect: SOJ001
    step = lambda value: sess.run(x, {x: value})  # noqa: E731
    print([step(value) for value in values])


def debugged(debug):
    sess = tf1.Session()  # expect: SOJ001
    sess = tf_debug.LocalCLIDebugWrapperSession(sess)
    print(sess.run(x))


def used_by_an_inner_function():
    sess = tf1.Session()  # expect: SOJ001

    def step(value):
        return sess.run(x, {x: value})

    return [step(1.0), step(2.0)]


def make_session():
    return tf1.Session(config=tf1.ConfigProto())  # expect: SOJ001


def from_a_factory():
    sess = make_session()
    return sess.run(x)


def only_lent_to_code_out_of_sight():
    sess = tf1.Session()  # expect: SOJ001
    elsewhere.work_with(sess, 3)


def entered_by_hand():
    sess = tf1.Session()  # expect: SOJ001
    sess.__enter__()
    return x.eval()


def for_ever(queue):
    sess = tf1.Session()  # expect: SOJ001
    while True:
        queue.put(sess.run(x, queue.get()))


def installed():
    sess = tf1.InteractiveSession()  # expect: SOJ009
    return sess.run(x)


def installed_without_a_name():
    InteractiveSession()  # expect: SOJ009
    return x.eval()


_cached = None


def cached():
    global _cached
    if _cached is None:
        _cached = tf1.Session()  # expect: SOJ001
    return _cached.run(x)


class Agent:
    def __init__(self):
        self.sess = tf1.Session()  # expect: SOJ001

    def act(self, state):
        return self.sess.run(x, {x: state})


class GivenOne:
    def __init__(self, session):
        self.given = session

    def act(self):
        return self.given.run(x)


def given_to_a_class_that_never_closes():
    sess = tf1.Session()  # expect: SOJ001
    GivenOne(sess).act()


class Registering(type):
    pass


class Registered(metaclass=Registering):
    def __init__(self):
        self.sess = tf1.Session()  # expect: SOJ001

    def act(self, state):
        return self.sess.run(x, {x: state})


class WithMetaclass(six.with_metaclass(Registering, Agent)):
    def __init__(self):
        self.second = tf1.Session()  # expect: SOJ001
        self.second.run(x)


class Keeps:
    def __init__(self, model, session=None):
        self.kept = session
        self.model = model

    def act(self):
        return self.kept.run(x)


class KeepsToo(Keeps):
    def __init__(self, model, session=None):
        super().__init__(model, session)


def given_to_a_class_whose_base_keeps_it(model):
    sess = tf1.Session()  # expect: SOJ001
    KeepsToo(model, session=sess).act()


def last_seen_by_an_evaluation_elsewhere(modules):
    sess = tf1.Session()  # expect: SOJ001
    sess.run(x)
    return modules["eval"].evaluate(sess, x)


class Estimator(BaseEstimator):
    def fit(self, rows):
        self.session = tf1.Session()  # expect: SOJ001
        self.session.run(x, {x: rows})


def made_with_what_it_runs():
    sess = tf1.Session()
    sess.run(x)
    return sess, x


def unpacked():
    sess, fetched = made_with_what_it_runs()  # expect: SOJ001
    return sess.run(fetched)


class Extractor:
    def __init__(self):
        made, self.fetched = made_with_what_it_runs()  # expect: SOJ001
        self.made = made

    def extract(self):
        return self.made.run(self.fetched)


def unpacked_and_closed():
    sess, fetched = made_with_what_it_runs()
    with sess:
        return sess.run(fetched)


def in_a_closure():
    sess = tf1.Session()  # expect: SOJ001

    def predict(value):
        return sess.run(x, {x: value})

    return predict


def in_a_lambda():
    sess = tf1.Session()  # expect: SOJ001
    return lambda value: sess.run(x, {x: value})


def in_a_callable():
    sess = tf1.Session()  # expect: SOJ001
    return sess.make_callable(x)


def in_its_method():
    sess = tf1.Session()  # expect: SOJ001
    run = sess.run
    return run


def kept_by_keras():
    tf1.keras.backend.set_session(tf1.Session(config=tf1.ConfigProto()))  # expect: SOJ001


class OnceClosed:
    def train(self):
        self.session = tf.Session()
        with self.session as sess:
            sess.run(tf.no_op())

    def load(self, saver, path):
        self.session = tf.Session()  # expect: SOJ001
        saver.restore(self.session, path)

    def sample(self):
        return self.session.run("y:0")


class PerhapsDebugged:
    def __init__(self, debug):
        self.sess = tf.Session()  # expect: SOJ001
        if debug:
            self.sess = tf_debug.LocalCLIDebugWrapperSession(self.sess)

    def step(self):
        return self.sess.run("y:0")


class DebuggedAndClosed:
    def __init__(self, debug):
        self.debugged = tf.Session()
        if debug:
            self.debugged = tf_debug.LocalCLIDebugWrapperSession(self.debugged)

    def close(self):
        self.debugged.close()


def give_to_keras():
    session = K.tf.Session()  # expect: SOJ001
    K.set_session(session)


class ShowsWhatItRuns:
    def __init__(self):
        self.shown = tf.Session()  # expect: SOJ001

    def session(self):
        return self.shown

    def predict(self, value):
        return self.shown.run(x, {x: value})


several = []


def fill(graphs):
    global several
    for index, graph in enumerate(graphs):
        several.append(tf.Session(graph=graph))  # expect: SOJ001
        print(index)


def mean_of(values, x):
    return [s.run(value, {x: 1.0}) for s, value in zip(several, values, strict=True)]


def one_for_each(networks):
    sessions = []
    for index, network in enumerate(networks):
        sessions.append(tf.Session(graph=network.graph))  # expect: SOJ001
        networks[index].first(sessions[index])
    for index, sess in enumerate(sessions):
        networks[index].learn(sess)


def one_for_each_and_closed(networks):
    sessions = [tf.Session(graph=network.graph) for network in networks]
    for sess, network in zip(sessions, networks, strict=True):
        network.learn(sess)
        sess.close()


class Beside:
    def __init__(self, sess, size):
        self.sess, self.size = sess, size

    def act(self, x):
        return self.sess.run("y:0", {"x:0": x})


def given_beside_other_things():
    sess = tf.Session()  # expect: SOJ001
    return Beside(sess, 3).act(1.0)


usual = tf.Session()  # expect: SOJ001


class Layer:
    def __init__(self, size, sess=usual):
        self.sess = sess

    def __call__(self, x):
        return self.sess.run("y:0", {"x:0": x})


ended = tf.Session()


def end(sess=ended):
    sess.close()
