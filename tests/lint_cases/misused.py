"""Used too late, replaced, opened again and again, and graphs that grow."""

import pytest
import tensorflow.compat.v1 as tf
from flask import Flask

app = Flask(__name__)
x = tf.placeholder(tf.float32)
v = tf.get_variable("v", [])


def after_close():
    sess = tf.Session()
    sess.close()
    return sess.run(x)  # expect: SOJ002


def after_with():
    with tf.Session() as sess:
        sess.run(x)
    print(x.eval(session=sess))  # expect: SOJ002
    print(sess.graph)
    sess.close()


def on_purpose():
    with tf.Session() as sess:
        sess.run(x)
    with pytest.raises(RuntimeError):
        sess.run(x)
    try:
        sess.run(x)
    except RuntimeError:
        print("closed")


def perhaps_after_close(flag):
    sess = tf.Session()
    if flag:
        sess.close()
    return sess.run(x)


def replaced():
    sess = tf.Session()  # expect: SOJ008
    print(sess.run(x))
    sess = tf.Session()
    print(sess.run(x))
    sess.close()


def replaced_by_nothing():
    sess = tf.Session()  # expect: SOJ008
    print(sess.run(x))
    sess = None
    return sess


def closed_and_opened_again():
    sess = tf.Session()
    print(sess.run(x))
    sess.close()
    sess = tf.Session()
    print(sess.run(x))
    sess.close()


class Replacing:
    def __init__(self, session=None):
        self.session = tf.Session()  # expect: SOJ008
        if session is not None:
            self.session = session

    def close(self):
        self.session.close()


def every_turn(batches):
    for batch in batches:
        with tf.Session() as sess:  # expect: SOJ003
            print(sess.run(x, {x: batch}))


def every_turn_and_never_closed(batches):
    for batch in batches:
        sess = tf.Session()  # expect: SOJ001 SOJ003
        print(sess.run(x, {x: batch}))


def predict(batch):
    with tf.Session() as sess:  # expect: SOJ003
        return sess.run(x, {x: batch})


def predict_all(batches):
    for batch in batches:
        print(predict(batch))


@app.route("/predict")
def serve():
    with tf.Session() as sess:  # expect: SOJ003
        return str(sess.run(x))


def a_few_cases():
    for case in ("train", "test"):
        with tf.Session() as sess:
            print(case, sess.run(x))


def one_for_each_graph(graphs):
    for graph in graphs:
        with tf.Session(graph=graph) as sess:
            print(sess.run("x:0"))


def growing(sess, batches):
    for batch in batches:
        loss = tf.reduce_mean(x)  # expect: SOJ004
        print(sess.run(loss, {x: batch}))


def growing_by_assign(sess, values):
    for value in values:
        sess.run(v.assign(value))  # expect: SOJ004


def growing_now_and_then(sess, batches):
    for step, batch in enumerate(batches):
        sess.run(x, {x: batch})
        if step % 100 == 0:
            print(sess.run(tf.square(x), {x: batch}))  # expect: SOJ004


def accuracy(sess, batch):
    right = tf.equal(x, 1.0)  # expect: SOJ004
    return sess.run(tf.reduce_mean(tf.cast(right, tf.float32)), {x: batch})


def growing_by_a_call(sess, batches):
    for batch in batches:
        print(accuracy(sess, batch))


def built_once(sess, batches):
    loss = None
    for batch in batches:
        if loss is None:
            loss = tf.reduce_mean(x)
        print(sess.run(loss, {x: batch}))


def built_in_a_loop(sess, layers):
    out = x
    for size in layers:
        out = tf.layers.dense(out, size)
    return sess.run(out)


def a_graph_each(batches):
    for batch in batches:
        with tf.Graph().as_default(), tf.Session() as sess:
            y = tf.constant(batch)
            print(sess.run(tf.square(y)))


def in_a_block_that_closes_it_whatever_it_is_called_then(make):
    with tf.Session() as sess:
        sess.run(x)
        sess = make()
        sess.run(x)
