"""A script: its sessions live as long as it does."""

import tensorflow as tf

tf = tf.compat.v1
v1 = tf
x = v1.constant(1.0)

sess = v1.Session()  # expect: SOJ001
ended = v1.Session()
print(sess.run(x))


def helper():
    return sess.run(x) + ended.run(x)


def end():
    ended.close()


if __name__ == "__main__":
    last = v1.InteractiveSession()  # expect: SOJ009
    print(helper(), x.eval())
    end()
