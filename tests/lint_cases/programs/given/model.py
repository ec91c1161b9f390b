import tensorflow as tf


class Model:
    def __init__(self):
        self.x = tf.placeholder(tf.float32)
        self.logits = tf.square(self.x)

    def evaluate(self, sess, batch):
        hits = tf.reduce_sum(self.logits)  # expect: SOJ004
        return sess.run(hits, {self.x: batch})


class Other:
    def evaluate(self, sess, batch):
        return sess.run("y:0", {"x:0": batch})
