"""An estimator of the program's own model function, through everything that one can do."""

import glob
import os

import numpy as np
import tensorflow as tf

rows = np.random.RandomState(0).rand(160, 4).astype(np.float32)
wanted = rows[:, :3].argmax(1).astype(np.int32)


def model_fn(features, labels, mode, params):
    training = mode == tf.estimator.ModeKeys.TRAIN
    net = tf.layers.dense(features["x"], params["width"], activation=tf.nn.relu, name="body")
    net = tf.layers.batch_normalization(net, momentum=0.8, training=training, name="norm")
    logits = tf.layers.dense(net, 3, name="top")
    predictions = {"class": tf.argmax(logits, 1), "share": tf.nn.softmax(logits)}
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions=predictions)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    metrics = {"accuracy": tf.metrics.accuracy(labels, predictions["class"])}
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        step = tf.train.AdamOptimizer(0.02).minimize(loss, tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step)


class Counts(tf.train.SessionRunHook):
    def __init__(self):
        self.begun = self.steps = self.ended = 0

    def begin(self):
        self.begun += 1
        self.step = tf.train.get_global_step()

    def before_run(self, run_context):
        return tf.train.SessionRunArgs({"step": self.step})

    def after_run(self, run_context, run_values):
        assert "step" in run_values.results
        self.steps += 1

    def end(self, session):
        self.ended += 1


numpy_input = tf.estimator.inputs.numpy_input_fn
forever = numpy_input({"x": rows}, wanted, batch_size=32, num_epochs=None, shuffle=True)
once = numpy_input({"x": rows}, wanted, num_epochs=1, shuffle=False)


def dataset():
    return tf.data.Dataset.from_tensor_slices(({"x": rows}, wanted)).batch(50)


def queue():
    row, label = tf.train.slice_input_producer([rows, wanted], num_epochs=1)
    batch, labels = tf.train.batch([row, label], 20)
    return {"x": batch}, labels


config = tf.estimator.RunConfig(tf_random_seed=3, keep_checkpoint_max=2).replace(
    save_checkpoints_steps=100, save_summary_steps=50
)
assert config.save_checkpoints_secs is None
model = tf.estimator.Estimator(model_fn, "model", config, {"width": 8})
counts = Counts()
assert model.train(forever, hooks=[counts], steps=30) is model
assert (counts.begun, counts.steps, counts.ended) == (1, 30, 1)
first = model.evaluate(once)
assert sorted(first) == ["accuracy", "global_step", "loss"], first
assert first["global_step"] == 30

# It continues where it was, and stops at max_steps, also when it is there already.
model = tf.estimator.Estimator(model_fn, "model", config, {"width": 8})
model.train(forever, max_steps=150)
model.train(forever, max_steps=150)
second = model.evaluate(dataset, steps=2, name="half")
assert second["global_step"] == 150
assert second["accuracy"] > 0.7, second
assert second["loss"] < first["loss"]
model.train(queue)
assert model.evaluate(queue)["global_step"] == 158
assert "body/kernel" in model.get_variable_names()
assert model.get_variable_value("body/kernel").shape == (4, 8)
assert len(tf.train.get_checkpoint_state("model").all_model_checkpoint_paths) == 2
assert glob.glob("model/*tfevents*")
assert glob.glob("model/eval_half/*tfevents*")

each = model.predict(once)
row = next(each)
assert sorted(row) == ["class", "share"]
assert row["share"].shape == (3,)
assert tf.get_default_graph().get_operations() == [], "the program's graph is its own meanwhile"
assert len(list(each)) == 159
[keys] = {tuple(r) for r in model.predict(dataset, predict_keys=["class"])}
assert keys == ("class",)
batches = list(model.predict(dataset, yield_single_examples=False))
assert [len(b["class"]) for b in batches] == [50, 50, 50, 10]
before = tf.train.get_checkpoint_state("model").all_model_checkpoint_paths[0]
assert len(list(model.predict(once, checkpoint_path=before))) == 160

warm = tf.estimator.Estimator(
    model_fn,
    "warm",
    params={"width": 8},
    warm_start_from=tf.estimator.WarmStartSettings("model", vars_to_warm_start="body.*"),
)
warm.train(forever, steps=1)
assert (
    np.abs(warm.get_variable_value("body/kernel") - model.get_variable_value("body/kernel")).max()
    < 0.05
)  # one step of the optimizer away

receiver = tf.estimator.export.build_raw_serving_input_receiver_fn(
    {"x": tf.placeholder(tf.float32, [None, 4])}
)
folder = model.export_savedmodel("exported", receiver)
assert isinstance(folder, bytes)
predictor = tf.contrib.predictor.from_saved_model(folder)
assert list(predictor({"x": rows[:5]})["class"]) == list(batches[0]["class"][:5])
predictor.session.close()

hook = tf.estimator.experimental.stop_if_higher_hook(
    model, "accuracy", 0.5, run_every_secs=None, run_every_steps=1
)
metrics, exports = tf.estimator.train_and_evaluate(
    model,
    tf.estimator.TrainSpec(forever, max_steps=200, hooks=[hook]),
    tf.estimator.EvalSpec(
        dataset,
        steps=None,
        throttle_secs=0,
        exporters=[
            tf.estimator.LatestExporter("latest", receiver, exports_to_keep=1),
            tf.estimator.BestExporter("best", receiver),
            tf.estimator.FinalExporter("final", receiver),
        ],
    ),
)
# The evaluations before showed more than the hook waits for: one step, and it ends.
assert metrics["global_step"] == 159, metrics
assert os.path.isdir(exports[0])
assert len(os.listdir("model/export/latest")) == 1
assert not os.path.exists("model/export/final")


def complaint(call):
    try:
        call()
    except ValueError as error:
        return str(error)
    return ""


assert "both steps and max_steps" in complaint(lambda: model.train(forever, steps=1, max_steps=2))
assert "steps > 0" in complaint(lambda: model.train(forever, steps=0))
assert "Missing train_op" in complaint(lambda: tf.estimator.EstimatorSpec("train", loss=1.0))
assert "must include features" in complaint(lambda: tf.estimator.Estimator(lambda x: None))
assert "shuffle must be" in complaint(lambda: numpy_input({"x": rows}, wanted))
print("fine")
