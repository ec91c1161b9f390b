"""Sessions and ops that other files of the program are given, keep, make and close."""

import helpers
import tensorflow.compat.v1 as tf
from helpers import borrow, make_session
from models.agent import Agent, Closing, Model

x = tf.placeholder(tf.float32)


def kept_by_an_agent(states):
    sess = tf.Session()  # expect: SOJ001
    agent = Agent(sess)
    return [agent.act(state) for state in states]


def kept_by_functions():
    sess = tf.Session()  # expect: SOJ001
    first, second = helpers.callables(sess)
    return first(1.0), second(1.0)


def borrowed_last():
    sess = tf.Session()  # expect: SOJ001
    borrow(sess)


def closed_by_an_agent():
    sess = tf.Session()
    agent = Closing(sess)
    agent.done()


def closed_by_a_function():
    sess = tf.Session()
    helpers.finish(sess)


def from_a_factory():
    sess = make_session()
    return sess.run(x, {x: 1.0})


def given_out():
    sess = tf.Session()  # expect: SOJ001
    return helpers.callables(sess)


def asks_each_time(batches):
    for batch in batches:
        print(helpers.predict(batch))


def grows_by_a_method(sess, batches):
    model = Model()
    for batch in batches:
        sess.run(model.step_op(), {x: batch})  # expect: SOJ004


def grows_by_a_function(sess, batches):
    for batch in batches:
        loss = helpers.loss_of(x)  # expect: SOJ004
        print(sess.run(loss, {x: batch}))


def grows_there(sess, batches):
    for batch in batches:
        print(helpers.accuracy(sess, batch))


def grows_beside_steps_elsewhere(batches):
    model = Model()
    for batch in batches:
        model.train(batch)
        print(tf.reduce_mean(x))  # expect: SOJ004


def built_once_by_a_method(sess, batches):
    model = Model()
    for batch in batches:
        sess.run(model.cached_op(), {x: batch})


def a_graph_each(batches):
    for batch in batches:
        helpers.start_again()
        with tf.Session() as sess:
            print(sess.run(helpers.loss_of(tf.constant(batch))))
