"""The same in a program that closes what may be one of them. Nothing is reported."""

import threading

import tensorflow as tf


def load(path):
    sess = tf.Session()
    tf.train.import_meta_graph(path).restore(sess, path)
    return {"sess": sess, "path": path}


def feed(sess, names):
    for name in names:
        sess.run(name)
    sess.close()


def feed_in_a_thread(names):
    sess = tf.Session()
    threading.Thread(target=feed, args=(sess, names)).start()


model = load("model")
print(model["sess"].run("y:0"))
feed_in_a_thread(["x:0"])
model["sess"].close()
