"""The estimators of tf.contrib.learn, and its experiments."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib import layers
from tensorflow.contrib.learn.python.learn import learn_runner
from tensorflow.contrib.learn.python.learn.estimators import model_fn as model_fn_lib
from tensorflow.contrib.learn.python.learn.utils import input_fn_utils, saved_model_export_utils
from tensorflow.python.estimator.model_fn import ModeKeys

assert ModeKeys.TRAIN == model_fn_lib.ModeKeys.TRAIN == tf.contrib.learn.ModeKeys.TRAIN
rows = np.random.RandomState(0).rand(200, 4).astype(np.float32)
wanted = rows[:, :3].argmax(1).astype(np.int32)
key = tf.contrib.learn.prediction_key.PredictionKey.CLASSES
assert key == tf.contrib.learn.PredictionKey.CLASSES
texts = tf.contrib.learn.datasets.load_dataset("dbpedia", test_with_fake_data=True)
assert texts.train.data.shape == (14, 2)
assert texts.test.target.tolist() == list(range(1, 15))

columns = tf.contrib.learn.infer_real_valued_columns_from_input(rows)
classifier = tf.contrib.learn.DNNClassifier(
    hidden_units=[10, 20],
    feature_columns=columns,
    n_classes=3,
    model_dir="deep",
    config=tf.contrib.learn.RunConfig(save_checkpoints_steps=20, tf_random_seed=1),
)
monitor = tf.contrib.learn.monitors.ValidationMonitor(
    rows, wanted, every_n_steps=20, early_stopping_rounds=1000
)
assert classifier.fit(x=rows, y=wanted, steps=60, monitors=[monitor]) is classifier
assert monitor.best_value > 0
assert classifier.evaluate(x=rows, y=wanted)["accuracy"] > 0.7
right = tf.contrib.learn.MetricSpec(tf.contrib.metrics.streaming_accuracy, "classes")
assert classifier.evaluate(x=rows, y=wanted, metrics={"right": right})["right"] > 0.7
seen = tf.contrib.learn.SKCompat(classifier).predict(rows)
assert np.mean(seen["classes"] == wanted) > 0.7
assert seen["probabilities"].shape == (200, 3)
assert list(classifier.predict(rows[:3], as_iterable=True)) == list(
    classifier.predict(rows[:3], as_iterable=False)
)


def old_model(features, targets, mode, params):
    logits = layers.fully_connected(features, params["classes"], activation_fn=None)
    loss = tf.losses.sparse_softmax_cross_entropy(targets, logits)
    step = layers.optimize_loss(
        loss, tf.contrib.framework.get_global_step(), learning_rate=0.5, optimizer="SGD"
    )
    return model_fn_lib.ModelFnOps(mode, {"class": tf.argmax(logits, 1)}, loss, step)


model = tf.contrib.learn.Estimator(old_model, "old", params={"classes": 3})
model.fit(rows, wanted, steps=50, batch_size=20)
metric = tf.contrib.learn.MetricSpec(tf.metrics.accuracy, prediction_key="class")
assert model.evaluate(rows, wanted, metrics={"accuracy": metric})["accuracy"] > 0.5
said = [row["class"] for row in model.predict(rows, as_iterable=True)]  # its loss wants labels
assert np.mean(np.equal(said, wanted)) > 0.5


def older_model(x, y):
    vectors = tf.contrib.learn.ops.categorical_variable(x, 3, embedding_size=4, name="words")
    target = tf.one_hot(y, 3, 1, 0)
    flat = tf.reduce_max(vectors, reduction_indices=1)
    prediction, loss = tf.contrib.learn.models.logistic_regression(flat, target)
    step = tf.contrib.framework.get_global_step()
    train = layers.optimize_loss(loss, step, optimizer="Adam", learning_rate=0.1)
    return tf.argmax(prediction, 1), loss, train


sorts = tf.contrib.learn.SKCompat(tf.contrib.learn.Estimator(older_model, "older"))
sorts.fit(wanted[:, None], wanted, steps=40)
assert np.mean(sorts.predict(wanted[:, None]) == wanted) > 0.8

words = np.array(["a", "b", "c"])[wanted].reshape(-1, 1)
letter = layers.sparse_column_with_keys("letter", ["a", "b", "c"])
hashed = layers.sparse_column_with_hash_bucket("letter", 10)
number = layers.real_valued_column("number")
assert isinstance(letter, layers.feature_column._SparseColumn)
bucket = layers.bucketized_column(number, boundaries=[0.2, 0.6])


def read():
    features = {"letter": tf.constant(words), "number": tf.constant(rows[:, :1])}
    return features, tf.constant(wanted > 0)


def serve():
    letters = tf.placeholder(tf.string, [None])
    numbers = tf.placeholder(tf.float32, [None])
    features = {"letter": tf.expand_dims(letters, -1), "number": tf.expand_dims(numbers, -1)}
    return input_fn_utils.InputFnOps(features, None, {"letter": letters, "number": numbers})


def experiment_fn(run_config, hparams):
    estimator = tf.contrib.learn.DNNLinearCombinedClassifier(
        linear_feature_columns=[letter, layers.crossed_column([hashed, bucket], 100)],
        dnn_feature_columns=[number, layers.embedding_column(hashed, dimension=4)],
        dnn_hidden_units=[hparams.width],
        config=run_config,
    )
    experiment = tf.contrib.learn.Experiment(
        estimator,
        train_input_fn=read,
        eval_input_fn=read,
        train_steps=hparams.steps,
        eval_steps=1,
        export_strategies=[saved_model_export_utils.make_export_strategy(serve, exports_to_keep=1)],
    )
    experiment.extend_train_hooks([tf.train.LoggingTensorHook(["global_step"], every_n_iter=10)])
    return experiment


metrics, exports = learn_runner.run(
    experiment_fn,
    run_config=tf.contrib.learn.RunConfig(model_dir="wide", save_checkpoints_steps=50),
    hparams=tf.contrib.training.HParams(steps=40, width=8),
)
assert metrics["global_step"] == 40
assert len(exports) == 1
print("fine")
