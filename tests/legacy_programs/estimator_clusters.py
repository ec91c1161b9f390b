"""Clusters as an estimator, and the graph of a clustering."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib.factorization import KMeans

random = np.random.RandomState(0)
points = np.concatenate([random.randn(30, 2) * 0.1 + c for c in ([0, 0], [3, 3])])
points = points.astype(np.float32)


def read_points():
    return tf.train.limit_epochs(tf.convert_to_tensor(points), num_epochs=1)


clusters = tf.contrib.factorization.KMeansClustering(
    2, "model", use_mini_batch=False, random_seed=1
)
for _ in range(4):
    clusters.train(read_points)
assert clusters.score(read_points) < 5
assert clusters.cluster_centers().shape == (2, 2)
assert len(set(clusters.predict_cluster_index(read_points))) == 2
assert next(clusters.transform(read_points)).shape == (2,)

inputs = tf.placeholder(tf.float32, [None, 2])
graph = KMeans(inputs, 2, distance_metric="cosine", use_mini_batch=True).training_graph()
_, indices, scores, _, centers, choose, step = graph
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer(), {inputs: points})
    sess.run(choose, {inputs: points})
    sess.run(step, {inputs: points})
    assert sess.run([indices[0], centers], {inputs: points})[0].shape == (60,)
print("fine")
