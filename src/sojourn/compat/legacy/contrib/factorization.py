"""`tf.contrib.factorization`: k-means clustering."""

from __future__ import annotations

from typing import Any

from tensorflow.python.ops import clustering_ops

from sojourn.compat.legacy import removed
from sojourn.compat.legacy.estimator.clusters import KMeans as KMeansClustering
from sojourn.compat.legacy.namespaces import names_of

globals().update(
    names_of(
        clustering_ops,
        "COSINE_DISTANCE KMC2_INIT KMEANS_PLUS_PLUS_INIT RANDOM_INIT SQUARED_EUCLIDEAN_DISTANCE",
    )
)


class KMeans(clustering_ops.KMeans):  # type: ignore[misc]
    """The graph of a k-means clustering; `training_graph` also returns the cluster centers."""

    def _create_variables(self, num_clusters: Any) -> Any:
        made = super()._create_variables(num_clusters)
        self._centers = made[0]
        return made

    def training_graph(self) -> Any:
        scores, indices, each, is_initialized, choose, step = super().training_graph()
        return scores, indices, each, is_initialized, self._centers, choose, step


__getattr__ = removed.missing_name("tf.contrib.factorization")

__all__ = ["KMeans", "KMeansClustering"]
