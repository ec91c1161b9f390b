"""`tf.estimator.experimental.KMeans`: clustering with the ops that TensorFlow still has for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import clustering_ops

from sojourn.compat.legacy.estimator import export
from sojourn.compat.legacy.estimator.estimator import Estimator
from sojourn.compat.legacy.estimator.specs import EstimatorSpec


class KMeans(Estimator):
    """Finds the centers of clusters by Lloyd's algorithm, on batches or on the whole input."""

    SQUARED_EUCLIDEAN_DISTANCE = clustering_ops.SQUARED_EUCLIDEAN_DISTANCE
    COSINE_DISTANCE = clustering_ops.COSINE_DISTANCE
    RANDOM_INIT = clustering_ops.RANDOM_INIT
    KMEANS_PLUS_PLUS_INIT = clustering_ops.KMEANS_PLUS_PLUS_INIT
    CLUSTER_CENTERS_VAR_NAME = clustering_ops.CLUSTERS_VAR_NAME
    SCORE = "score"
    CLUSTER_INDEX = "cluster_index"
    ALL_DISTANCES = "all_distances"

    def __init__(
        self,
        num_clusters: int,
        model_dir: Any = None,
        initial_clusters: Any = RANDOM_INIT,
        distance_metric: str = SQUARED_EUCLIDEAN_DISTANCE,
        seed: int | None = None,
        use_mini_batch: bool = True,
        mini_batch_steps_per_iteration: int = 1,
        kmeans_plus_plus_num_retries: int = 2,
        relative_tolerance: float | None = None,
        config: Any = None,
        feature_columns: Any = None,
        **older: Any,
    ) -> None:
        seed = older.pop("random_seed", seed)
        if older:
            raise TypeError(f"unexpected arguments: {', '.join(sorted(older))}")

        def model_fn(features: Any, mode: str) -> EstimatorSpec:
            distances, indices, each, is_initialized, choose, step = clustering_ops.KMeans(
                _points(features, feature_columns),
                num_clusters,
                initial_clusters,
                distance_metric,
                use_mini_batch,
                mini_batch_steps_per_iteration,
                random_seed=seed,
                kmeans_plus_plus_num_retries=kmeans_plus_plus_num_retries,
            ).training_graph()
            loss = tf.reduce_sum(each)
            tf.summary.scalar("loss/raw", loss)
            with tf.control_dependencies([step]):
                train_op = tf.assign_add(tf.train.get_global_step(), 1)
            hooks = []
            if relative_tolerance is not None:
                hooks.append(_StopWhenSettled(loss, relative_tolerance))
            nearest = export.PredictOutput(indices[0])
            return EstimatorSpec(
                mode,
                {self.ALL_DISTANCES: distances[0], self.CLUSTER_INDEX: indices[0]},
                loss,
                train_op,
                {self.SCORE: tf.metrics.mean(loss)},
                export_outputs={
                    self.ALL_DISTANCES: export.PredictOutput(distances[0]),
                    self.CLUSTER_INDEX: nearest,
                    "serving_default": nearest,
                },
                # A chief hook, because it runs before the first checkpoint: the choice of centers
                # may use up an input of one batch.
                training_chief_hooks=[_ChooseCenters(choose, is_initialized)],
                training_hooks=hooks,
            )

        super().__init__(model_fn, model_dir, config)

    def predict_cluster_index(self, input_fn: Any) -> Iterator[Any]:
        """Yield the number of the nearest center for each point."""
        for prediction in self.predict(input_fn, [self.CLUSTER_INDEX]):
            yield prediction[self.CLUSTER_INDEX]

    def transform(self, input_fn: Any) -> Iterator[Any]:
        """Yield the distances to all centers for each point."""
        for prediction in self.predict(input_fn, [self.ALL_DISTANCES]):
            distances = prediction[self.ALL_DISTANCES]
            yield distances

    def score(self, input_fn: Any) -> Any:
        """Return the sum of the squared distances to the nearest centers."""
        return self.evaluate(input_fn, steps=1)[self.SCORE]

    def cluster_centers(self) -> Any:
        """Return the centers."""
        return self.get_variable_value(self.CLUSTER_CENTERS_VAR_NAME)

    def clusters(self) -> Any:
        """Return the centers: the original name of `cluster_centers`."""
        return self.cluster_centers()


class _ChooseCenters(tf.train.SessionRunHook):  # type: ignore[misc]
    """Takes batches until the requested number of centers exists."""

    def __init__(self, choose: Any, is_initialized: Any) -> None:
        self._choose, self._is_initialized = choose, is_initialized

    def after_create_session(self, session: Any, coord: Any) -> None:
        while not session.run(self._is_initialized):
            session.run(self._choose)


class _StopWhenSettled(tf.train.SessionRunHook):  # type: ignore[misc]
    """Stops once the loss changes by less than `tolerance` of itself."""

    def __init__(self, loss: Any, tolerance: float) -> None:
        self._loss, self._tolerance = loss, tolerance
        self._before: float | None = None

    def before_run(self, run_context: Any) -> Any:
        return tf.train.SessionRunArgs(self._loss)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        loss, before = float(run_values.results), self._before
        if before and abs(loss - before) / abs(before) < self._tolerance:
            run_context.request_stop()
        self._before = loss


def _points(features: Any, columns: Any) -> Any:
    """Return the points as one matrix."""
    if columns is not None:
        return tf.feature_column.input_layer(features, columns)
    if isinstance(features, dict):
        return tf.concat([features[name] for name in sorted(features)], axis=1)
    return features
