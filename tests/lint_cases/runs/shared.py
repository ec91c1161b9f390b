"""A module's session used by its functions, and one that is replaced."""

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
x = tf.constant(4.0)
sess = tf.Session()


def doubled():
    return sess.run(x * 2)


class Model:
    def predict(self):
        return sess.run(x + 1)


print(doubled(), Model().predict())

other = tf.Session()
print(other.run(x - 1))
other = tf.Session()
print(other.run(x - 2))

with tf.Session().as_default() as default:
    print(x.eval(), default.run(x * 3))
