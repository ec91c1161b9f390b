"""What the other files call."""

import tensorflow.compat.v1 as tf

x = tf.placeholder(tf.float32)


def make_session():
    return tf.Session(config=tf.ConfigProto(allow_soft_placement=True))  # expect: SOJ001


def borrow(session):
    return session.run(x, {x: 1.0})


def finish(session):
    session.close()


def callables(session):
    def first(value):
        return session.run(x, {x: value})

    return first, lambda value: session.run(x, {x: value})


def predict(batch):
    with tf.Session() as sess:  # expect: SOJ003
        return sess.run(x, {x: batch})


def loss_of(logits):
    return tf.reduce_mean(logits)


def accuracy(sess, batch):
    right = tf.equal(x, 1.0)  # expect: SOJ004
    return sess.run(right, {x: batch})


def start_again():
    tf.reset_default_graph()
