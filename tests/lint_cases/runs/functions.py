"""Sessions in functions: early returns, loops, inline ones, a closed one left alone."""

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
x = tf.constant(2.0)


def early(n):
    sess = tf.Session()
    if n > 2:
        return sess.run(x)
    result = sess.run(x * n)
    sess.close()
    return result


def summed(n):
    total = 0.0
    for i in range(n):
        s = tf.Session(config=tf.ConfigProto(allow_soft_placement=True))
        total += s.run(x + i)
    return total


def inline():
    print(tf.Session().run(x + 1))  # one line
    return x.eval(session=tf.Session())


def numbers():
    sess = tf.Session()
    for i in range(3):
        yield sess.run(x * i)


def squares(n):
    sess = tf.Session()
    values = [sess.run(x * i) for i in range(n)]
    values = [value**2 for value in values]
    return values


def asked(graph):
    sess = tf.Session(graph=graph)
    value = sess.run("five:0")
    late = tf.constant(1.0)
    return value, late.graph is graph


g = tf.Graph()
with g.as_default():
    tf.constant(5.0, name="five")
print(early(1), early(3), summed(4), inline(), list(numbers()), squares(3), asked(g))
