"""The ready-made estimators, over feature columns."""

import numpy as np
import tensorflow as tf

columns = tf.feature_column
random = np.random.RandomState(0)
age = random.randint(18, 70, 300).astype(np.float32)
job = random.choice(["smith", "clerk", "baker"], 300)
rich = (age > 40) & (job != "clerk")


def read(labels, epochs=1):
    features = {"age": age, "job": job}
    return tf.data.Dataset.from_tensor_slices((features, labels)).repeat(epochs).batch(50)


years = columns.numeric_column("age")
jobs = columns.categorical_column_with_vocabulary_list("job", ["smith", "clerk", "baker"])
hashed = columns.categorical_column_with_hash_bucket("job", 20)
buckets = columns.bucketized_column(years, [20, 30, 40, 50])
scaled = columns.numeric_column("age", normalizer_fn=lambda years: years / 40 - 1)
wide = [jobs, buckets, columns.crossed_column([buckets, "job"], 100)]
deep = [scaled, columns.indicator_column(jobs), columns.embedding_column(hashed, 4)]
seeded = tf.estimator.RunConfig(tf_random_seed=1)

linear = tf.estimator.LinearClassifier(wide, "linear", config=seeded)
# Programs log the loss by these names.
shown = {"average": "linear/head/truediv", "loss": "linear/head/weighted_loss/Sum"}
hook = tf.train.LoggingTensorHook(shown, every_n_iter=10)
linear.train(lambda: read(rich, 10), hooks=[hook])
scores = linear.evaluate(lambda: read(rich))
assert sorted(scores) == [
    "accuracy", "accuracy_baseline", "auc", "auc_precision_recall", "average_loss",
    "global_step", "label/mean", "loss", "precision", "prediction/mean", "recall",
]  # fmt: skip
assert scores["accuracy"] > 0.9, scores
assert np.isclose(scores["loss"], scores["average_loss"] * 50, rtol=1e-4)
assert np.isclose(scores["label/mean"], rich.mean())
# Datasets were made before the graph in which an estimator reads them.
before = read(rich).shuffle(10)
linear.train(lambda: before.make_one_shot_iterator().get_next())
assert linear.evaluate(lambda: before)["accuracy"] > 0.9
one = next(linear.predict(lambda: read(rich)))
assert one["classes"][0] == str(one["class_ids"][0]).encode()
assert one["probabilities"].shape == (2,)
assert "linear/linear_model/bias_weights" in linear.get_variable_names()

both = tf.estimator.DNNLinearCombinedClassifier(
    "both",
    linear_feature_columns=wide,
    dnn_feature_columns=deep,
    dnn_hidden_units=[16, 8],
    dnn_optimizer=tf.train.ProximalAdagradOptimizer(0.1),
    config=seeded.replace(session_config=tf.ConfigProto(device_count={"GPU": 0})),
)
both.train(lambda: read(rich, 10))
assert both.evaluate(lambda: read(rich))["accuracy"] > 0.8
spec = columns.make_parse_example_spec(deep + wide)
receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn(spec)
folder = both.export_saved_model("exported", receiver)
feature = {
    "age": tf.train.Feature(float_list=tf.train.FloatList(value=[60])),
    "job": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"smith"])),
}
example = tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
served = tf.contrib.predictor.from_saved_model(folder)
assert served({"inputs": [example]})["scores"].argmax() == 1
served.session.close()

classifier = tf.estimator.DNNClassifier(
    [16],
    deep,
    "deep",
    3,
    label_vocabulary=["smith", "clerk", "baker"],
    dropout=0.1,
    config=seeded,
)
classifier.train(lambda: read(job, 20))
assert classifier.evaluate(lambda: read(job))["accuracy"] > 0.8
assert next(classifier.predict(lambda: read(job)))["classes"][0] in (b"smith", b"clerk", b"baker")

regressor = tf.estimator.DNNRegressor(
    [8], [years], "regressor", optimizer=lambda: tf.train.AdamOptimizer(0.05), batch_norm=True
)
regressor.train(lambda: read(age / 70, 5))
assert sorted(regressor.evaluate(lambda: read(age / 70))) == [
    "average_loss", "global_step", "label/mean", "loss", "prediction/mean",
]  # fmt: skip
more = tf.contrib.estimator.add_metrics(
    regressor,
    lambda labels, predictions: {
        "error": tf.metrics.mean_absolute_error(labels, predictions["predictions"][:, 0])
    },
)
assert more.evaluate(lambda: read(age / 70))["error"] > 0
baseline = tf.estimator.BaselineClassifier("baseline", 2, None, None, "Ftrl", seeded)
baseline.train(lambda: read(rich, 5))
assert np.isclose(baseline.evaluate(lambda: read(rich))["accuracy"], 1 - rich.mean(), atol=1e-3)


def is_refused(**named):
    try:
        tf.estimator.DNNClassifier(hidden_units=[4], **named)
    except TypeError:
        return True
    return False


assert is_refused()
assert is_refused(feature_columns=[years], depth=3)


# Networks of canned estimators in a model of the program's own, with a head, by their functions.
def both(features, labels, mode, config):
    deep_logits = tf.contrib.estimator.dnn_logit_fn_builder(
        1, [4], [scaled], tf.nn.relu, None, None
    )
    linear_logits = tf.estimator.experimental.linear_logit_fn_builder(1, [jobs])
    found = [
        tf.estimator.experimental.call_logit_fn(function, features, mode, None, config)
        for function in (deep_logits, linear_logits)
    ]
    head = tf.contrib.estimator.binary_classification_head()
    return head.create_estimator_spec(
        features, mode, tf.add_n(found), labels, tf.train.AdamOptimizer(0.1)
    )


own = tf.estimator.Estimator(both, "own", seeded)
stop = tf.contrib.estimator.make_stop_at_checkpoint_step_hook(own, 20)
own.train(lambda: read(rich, None), hooks=[stop])
result = own.evaluate(lambda: read(rich))
assert result["global_step"] == 20
assert result["accuracy"] > 0.6
print("fine")
