"""Methods that build and run on each call, on a session that their object had before."""

import random

import numpy as np
import tensorflow as tf
from keras import backend as K


class Network:
    def __init__(self, sess, size):
        self.sess = sess
        self.x = tf.placeholder(tf.float32, [None, size])
        self.wanted = tf.placeholder(tf.float32, [None, size])
        self.rate = tf.Variable(0.1, trainable=False)
        self.weights = tf.Variable(tf.zeros([size, size]))
        self.target = tf.Variable(tf.zeros([size, size]))
        self.output = tf.matmul(self.x, self.weights)
        self.loss = tf.losses.mean_squared_error(self.wanted, self.output)
        self.set_target_first(np.zeros([size, size]))
        self.best = None

    def set_rate(self, rate):
        self.sess.run(tf.assign(self.rate, rate))  # expect: SOJ004

    def set_some(self, rate=None, weights=()):
        if rate is not None:
            self.sess.run(tf.assign(self.rate, rate))  # expect: SOJ004
        if len(weights) > 0:
            self.sess.run(tf.assign(self.weights, weights))

    def set_target_first(self, weights):
        self.sess.run(tf.assign(self.target, weights))

    def set_all(self, values):
        ops = []
        for variable, value in zip(self.variables, values, strict=True):
            op = variable.assign(value)  # expect: SOJ004
            ops.append(op)
        self.sess.run(ops)

    def set_all_at_once(self, values):
        ops = [v.assign(x) for v, x in zip(self.variables, values, strict=True)]  # expect: SOJ004
        self.sess.run(ops)

    def sync_target(self):
        self.sess.run(self.target.assign(self.weights))  # expect: SOJ004

    def accuracy(self, x, wanted):
        right = tf.equal(tf.argmax(self.output, 1), tf.argmax(self.wanted, 1))  # expect: SOJ004
        mean = tf.reduce_mean(tf.cast(right, tf.float32))
        return self.sess.run(mean, {self.x: x, self.wanted: wanted})

    def evaluate(self, x):
        if len(x) == 0:
            return 0.0
        print(self.sess.run(tf.reduce_max(self.output), {self.x: x}))  # expect: SOJ004
        return 1.0

    def explore(self, x):
        if random.random() < 0.1:
            return 0
        return self.sess.run(tf.argmax(self.output), {self.x: x})  # expect: SOJ004

    def get_norm(self):
        return tf.norm(self.weights).eval(session=self.sess)  # expect: SOJ004

    @property
    def norm(self):
        return self.sess.run(tf.norm(self.weights))  # expect: SOJ004

    def end_run(self, reward):
        count = self.rate.assign_add(1.0)  # expect: SOJ004
        self.sess.run(count)

    def replay(self, size):
        if len(self.memory) < size:
            return 0.0
        batch = random.sample(self.memory, size)
        return self.sess.run(tf.reduce_max(self.output), {self.x: batch})  # expect: SOJ004

    def scores(self, x):
        if self.is_linear:
            found = self.sess.run(2.0 * self.output, {self.x: x})  # expect: SOJ004
        else:
            found = self.sess.run(tf.sigmoid(self.output), {self.x: x})
        return found

    def scores_if_linear(self, x):
        if self.is_linear:
            return self.sess.run(2.0 * self.output, {self.x: x})
        return self.sess.run(self.output, {self.x: x})

    def log_prob(self, x):
        return self.sess.run(self.noise.log_prob(x))  # expect: SOJ004

    def best_of(self, x):
        if self.best is None:
            self.best = tf.argmax(self.output)
        return self.sess.run(self.best, {self.x: x})

    def halved(self, x):
        if self.best is not None:
            return 0
        self.best = tf.argmax(self.output)
        return self.sess.run(self.best, {self.x: x})

    def train(self, batches):
        step = tf.train.AdamOptimizer().minimize(self.loss)
        self.sess.run(tf.global_variables_initializer())
        for batch in batches:
            self.sess.run(step, {self.x: batch})

    def learn(self, batches):
        step = tf.train.AdamOptimizer().minimize(self.loss)
        for batch in batches:
            self.sess.run(step, {self.x: batch})

    def shake(self):
        ops = []
        for variable in self.variables:
            value = self.sess.run(variable)
            op = variable.assign(value + np.random.randn(*value.shape))  # expect: SOJ004
            ops.append(op)
        self.sess.run(ops)

    def restart(self):
        self.sess.run(tf.global_variables_initializer())

    def assign_embeddings(self, values):
        self.sess.run(tf.assign(self.weights, values))

    def count_weights(self):
        return self.sess.run(tf.size(self.weights))

    def load_weights(self, weights):
        self.sess.run(tf.assign(self.weights, weights))

    def widest(self, x):
        return self.sess.run(tf.reduce_max(self.output), {self.x: x})

    def narrowest(self, x):
        return self.sess.run(tf.reduce_min(self.output), {self.x: x})  # expect: SOJ004


class Slower(tf.train.SessionRunHook):
    def begin(self):
        self.rate = tf.get_default_graph().get_tensor_by_name("rate:0")

    def after_create_session(self, session, coordinator):
        session.run(tf.assign(self.rate, 0.1))

    def after_run(self, context, values):
        context.session.run(tf.assign(self.rate, 0.1))  # expect: SOJ004


def copy_weights(sess, source, target):
    ops = []
    for one, other in zip(source.variables, target.variables, strict=True):
        ops.append(other.assign(one))  # expect: SOJ004
    sess.run(ops)


def shaken(network):
    network.shake()
    return network


def shake_again(network, turns):
    for _ in range(turns):
        other = shaken(network)
        other.shake()


def assign_weights(sess, weights, network):
    ops = [v.assign(w) for v, w in zip(network.variables, weights, strict=True)]
    sess.run(ops)


class Agent:
    def __init__(self, sess, source, target):
        self.sess = sess
        self.source, self.target = source, target
        self.turn = 0

    def train(self, batch):
        self.turn += self.sess.run(self.source.loss, {self.source.x: batch})
        if self.turn % 100 == 0:
            copy_weights(self.sess, self.source, self.target)


def report(network, seen, unseen):
    print(network.widest(seen))
    print(network.narrowest(seen), network.narrowest(unseen))


def report_on(network, batches):
    for batch in batches:
        set_rate(network, rate=None)
        print(batch)


def set_rate(network, rate=None):
    if rate is not None:
        network.sess.run(tf.assign(network.rate, rate))


def overlap(wanted, given):
    scores = []
    for least in np.arange(0.5, 1.0, 0.05):
        score, update = tf.metrics.mean_iou(wanted, tf.to_int32(given > least), 2)
        K.get_session().run(tf.local_variables_initializer())
        with tf.control_dependencies([update]):
            scores.append(tf.identity(score))
    return K.mean(K.stack(scores), axis=0)


def get_session():
    return K.get_session()


class Asker:
    def best(self, x, count):
        best = tf.nn.top_k(self.scores, count)  # expect: SOJ004
        return get_session().run(best, {self.x: x})


def build_style(sess, content, layers):
    loss = 0.0
    for layer in layers:
        wanted = sess.run(tf.square(content))
        loss += tf.nn.l2_loss(layer - wanted)
    return loss


class Mixture:
    def __init__(self, distribution, data):
        self.distribution = distribution
        self.data = tf.Variable(data)
        self.loss = -tf.reduce_mean(self.distribution.prob(self.data))
        self.sess = get_session()

    def prob(self, x):
        return self.sess.run(self.distribution.prob(x))  # expect: SOJ004

    def put(self, row, value):
        self.sess.run(tf.scatter_nd_update(self.data, [[row]], [value]))  # expect: SOJ004


class Shared:
    session = get_session()

    def accuracy(self, labels):
        correct = tf.equal(self.answer, labels)  # expect: SOJ004
        return correct.eval(session=Shared.session)


def decodes_the_first(sess, batches, codes):
    for number, batch in enumerate(batches):
        found = sess.run(codes, {"x:0": batch})
        if number == 0:
            print(sess.run(tf.sparse_tensor_to_dense(found)))  # expect: SOJ004


def for_each_epoch(sess, epochs, batches, codes):
    for _ in range(epochs):
        decodes_the_first(sess, batches, codes)


def an_ensemble(sess, count):
    models = []
    for number in range(count):
        models.append(Mixture(number, 1.0))
        sess.run(tf.global_variables_initializer())
        sess.run(models[number].loss)
    return models
