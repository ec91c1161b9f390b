"""Graphs that grow without a `def` or `sess` in sight: lambdas, partials, objects, wrappers."""

import threading
from functools import partial
from tkinter import Button

import numpy as np
import tensorflow.compat.v1 as tf
from hyperopt import fmin

x = tf.placeholder(tf.float32, [None])
v = tf.get_variable("v", [])
graph = tf.Graph()
with graph.as_default():
    shared = tf.placeholder(tf.float32, [None])


def by_a_lambda(sess, batches):
    best = lambda batch: sess.run(tf.argmax(x), {x: batch})  # noqa: E731  # expect: SOJ004
    return [best(batch) for batch in batches]


def drawn(sess, scale, batch):
    return sess.run(tf.nn.softmax(x * scale), {x: batch})  # expect: SOJ004


def by_a_partial(sess, batches):
    draw = partial(drawn, sess, 0.5)
    for batch in batches:
        draw(batch)


def sampler(sess):
    def sample(count):
        return sess.run(tf.random_normal([count]))  # expect: SOJ004

    return sample


def sampler_of_one_op(sess):
    noise = tf.random_normal([3])

    def sample():
        return sess.run(noise)

    return sample


def by_functions_that_were_returned(sess):
    several, always = sampler(sess), sampler_of_one_op(sess)
    many = sampler(sess)
    for count in range(100):
        print(many(count), always(), several)


def by_a_session_of_a_supervisor(supervisor):
    with supervisor.managed_session() as s:
        while not supervisor.should_stop():
            s.run(tf.reduce_max(v))  # expect: SOJ004


def by_the_session_that_is_the_default(batches):
    s = tf.get_default_session()  # expect: SOJ005
    for batch in batches:
        s.run(tf.reduce_max(x), {x: batch})  # expect: SOJ004


def now_and_then(sess, steps):
    for step in range(steps):
        sess.run(v)
        if np.mod(step, 100) == 1:
            sess.run(tf.square(v))  # expect: SOJ004


def within_a_condition(sess, steps):
    for step in range(steps):
        if step % 100 == 0 and sess.run(tf.is_nan(v)):  # expect: SOJ004
            print("not a number")


def once_within_a_condition(sess, steps, cache):
    for step in range(steps):
        sess.run(v)
        first = sess.run(tf.square(v)) if step == 0 else 0.0
        print(first, cache.get("v") or sess.run(tf.square(v)))


class Net:
    def __init__(self, rate):
        loss = tf.square(v) * rate
        self.step = tf.train.GradientDescentOptimizer(rate).minimize(loss)

    def fit(self, sess, batches):
        for batch in batches:
            sess.run(self.step, {x: batch})


def one_for_each_rate(sess, rates, batches):
    for rate in rates:
        net = Net(rate)  # expect: SOJ004
        net.fit(sess, batches)


def one_for_each_rate_in_a_graph_of_its_own(rates, batches):
    for rate in rates:
        with tf.Graph().as_default(), tf.Session() as sess:
            net = Net(rate)
            net.fit(sess, batches)


def an_ensemble(sess, rates, batches):
    nets = []
    for rate in rates:
        net = Net(rate)
        net.fit(sess, batches)
        nets.append(net)
    return nets


def one_for_each_thread(sess, rates, batches):
    for rate in rates:
        net = Net(rate)
        sess.run(v)
        threading.Thread(target=net.fit, args=(sess, batches)).start()


def evaluated(sess, fetched, batch):
    return sess.run(fetched, feed_dict={x: batch})


def by_a_function_that_runs_what_it_is_given(sess, batches):
    for batch in batches:
        print(evaluated(sess, x * 2.0, batch))  # expect: SOJ004


class Wrapped:
    def __init__(self, sess):
        self.sess = sess

    def _run(self, fetched, batch):
        return self.sess.run(fetched, {x: batch})

    def mean(self, batch):
        return self._run(tf.reduce_mean(x), batch)  # expect: SOJ004


def by_an_object_that_runs_what_it_is_given(sess, batches):
    wrapped = Wrapped(sess)
    for batch in batches:
        print(wrapped.mean(batch))


def built():
    return tf.identity(x), tf.square(x)


def columns(line):
    return tf.decode_csv(line, [[0.0]] * 3)


def by_parts_of_what_was_built(sess, batches):
    first, second = built()
    parts = columns("1,2,3")
    for batch in batches:
        print(sess.run(parts[0]), sess.run(first, {x: batch}))
        print(sess.run(second[0], {x: batch}))  # expect: SOJ004


def copied():
    ops = []
    mine, others = tf.trainable_variables("a"), tf.trainable_variables("b")
    for source, target in zip(mine, others, strict=True):
        ops.append(target.assign(source))
    return ops


def by_ops_that_a_function_lists(sess, steps):
    for _ in range(steps):
        ops = copied()  # expect: SOJ004
        sess.run(ops)


def in_a_graph_that_is_shared(sess, batch):
    with graph.as_default():
        return sess.run(tf.square(shared), {shared: batch})  # expect: SOJ004


def in_a_graph_that_is_given(sess, given):
    with given.as_default():
        return sess.run(tf.square(1.0))


def of_each(sess, batches, graphs):
    shared_ones = [in_a_graph_that_is_shared(sess, batch) for batch in batches]
    return shared_ones, [in_a_graph_that_is_given(sess, given) for given in graphs]


def cost(rate):
    with tf.Session() as sess:  # expect: SOJ003
        return sess.run(v * rate - 1.0)  # expect: SOJ004


class Window:
    def __init__(self, sess):
        self.sess = sess
        self.guessing = Button(text="Guess", command=self.guess)
        self.loading = Button(text="Load", command=self.load)

    def guess(self):
        print(self.sess.run(tf.argmax(x)))  # expect: SOJ004

    def load(self):
        tf.train.Saver().restore(self.sess, "model")


def of_all_rates(space):
    return fmin(cost, space)


def in_the_condition_of_a_loop(sess, step):
    while sess.run(tf.less(v, 3.0)):  # expect: SOJ004
        sess.run(step)


def looked_up(sess, fetched):
    fetched = sess.known[fetched]
    return sess.run(fetched)


def by_a_function_that_looks_up_what_it_is_given(sess, count):
    for index in range(count):
        print(looked_up(sess, index + 1))


def read(path):
    return tf.data.TextLineDataset(path).make_one_shot_iterator().get_next()


def once_more_from_the_start(sess, path, epochs):
    for _ in range(epochs):
        line = read(path)  # expect: SOJ004
        while True:
            print(sess.run(line))


class Best:
    def __init__(self):
        self.score, self.shape = 0.0, None

    def offer(self, sess, score):
        if score > self.score:
            self.score = score
            tf.train.Saver().save(sess, "best")  # expect: SOJ004

    def resize(self, sess, shape):
        if shape != self.shape:
            self.shape = shape
            sess.run(tf.zeros(shape))


def keeping_the_best(sess, batches):
    best = Best()
    for batch in batches:
        best.offer(sess, sess.run(v, {x: batch}))
        best.resize(sess, batch.shape)


class Trainer:
    def __init__(self, sess):
        self.sess = sess

    def train(self, epochs):
        for _ in range(epochs):
            self.train_epoch()

    def train_epoch(self):
        raise NotImplementedError


class Growing(Trainer):
    def train_epoch(self):
        self.sess.run(tf.assign_add(v, 1.0))  # expect: SOJ004


class Other:
    def train_epoch(self, sess):
        sess.run(tf.assign_add(v, 1.0))


def by_a_method_that_has_a_name(sess, batches, parts):
    run = sess.run
    for batch in batches:
        print(run(tf.reduce_max(x), {x: batch}))  # expect: SOJ004
        print(parts["model"].run(batch))


def by_a_session_in_a_dict(parts, batches):
    for batch in batches:
        parts["sess"].run(tf.reduce_max(x), {x: batch})  # expect: SOJ004
