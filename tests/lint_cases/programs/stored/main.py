"""Sessions that are put away, or given to threads, in a program that closes none."""

import threading

import tensorflow as tf


def load(path):
    sess = tf.Session()  # expect: SOJ001
    tf.train.import_meta_graph(path).restore(sess, path)
    return {"sess": sess, "path": path}


class Models:
    def __init__(self, paths):
        self.models = {}
        for path in paths:
            graph = tf.Graph()
            sess = tf.Session(graph=graph)  # expect: SOJ001
            self.models[path] = (graph, sess)

    def answer(self, path, x):
        _, sess = self.models[path]
        return sess.run("y:0", {"x:0": x})

    def fresh(self):
        sess = tf.Session()
        return {"sess": sess}


def remember(places):
    sess = tf.Session()  # expect: SOJ001
    places["sess"] = sess


def feed(sess, names):
    for name in names:
        sess.run(name)


def feed_in_threads(names):
    sess = tf.Session()  # expect: SOJ001
    threads = [threading.Thread(target=feed, args=(sess, names)) for _ in range(4)]
    for thread in threads:
        thread.start()


model = load("model")
print(model["sess"].run("y:0"), Models(["a", "b"]).answer("a", 1.0))
feed_in_threads(["x:0"])
remember({})
with open("model") as f:
    f.close()
