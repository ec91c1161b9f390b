"""What estimators compute where the program leaves the numbers to them."""

import glob

import numpy as np
import tensorflow as tf

learn = tf.contrib.learn
numpy_input = tf.estimator.inputs.numpy_input_fn
ones = np.ones(8, np.float32)


def head_loss(head):
    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.create_global_step()
        logits = tf.constant([[10.0, 0, 0], [0, 10, 0]])[:, : head.logits_dimension]
        spec = head.create_estimator_spec(
            {"x": tf.zeros([2, 1])}, "eval", logits, labels=tf.constant([[1], [1]])
        )
        return session.run(spec.loss)


# The mean over the batch, unless the sum is asked for, by either of its names.
assert np.isclose(head_loss(tf.estimator.MultiClassHead(3)), 5, atol=1e-3)
for name in ("sum", tf.losses.Reduction.SUM):
    head = tf.estimator.MultiClassHead(3, loss_reduction=name)
    assert np.isclose(head_loss(head), 10, atol=1e-3)
assert head_loss(tf.estimator.RegressionHead()) == (81 + 1) / 2
assert head_loss(tf.contrib.estimator.regression_head(None, 1)) == (81 + 1) / 2
assert np.isclose(head_loss(tf.contrib.estimator.binary_classification_head()), 0.347, atol=1e-3)

x = tf.feature_column.numeric_column("x")
both = tf.estimator.DNNLinearCombinedRegressor(
    "both", linear_feature_columns=[x], dnn_feature_columns=[x], dnn_hidden_units=[4]
)
both.train(numpy_input({"x": ones}, 9 * ones, shuffle=False), steps=1)
# The first step of Adagrad is the learning rate, near enough.
assert np.isclose(both.get_variable_value("dnn/logits/bias"), 0.001, rtol=0.01)

# Those of contrib.learn: the mean too, larger rates, and gradients clipped all together.
rows = np.linspace(0, 1, 100).astype(np.float32)[:, None]
wanted = 3 * rows[:, 0] + 1
columns = learn.infer_real_valued_columns_from_input(rows)
descent = tf.train.GradientDescentOptimizer(0.1)
line = learn.LinearRegressor(columns, model_dir="line", optimizer=descent)
line.fit(rows, wanted, steps=50)
guessed = np.array(list(line.predict(rows)))
assert np.isclose(line.evaluate(rows, wanted)["loss"], np.mean((guessed - wanted) ** 2), rtol=1e-3)
[batch] = line.predict(rows, iterate_batches=True)
assert np.array_equal(batch, guessed)
held = learn.LinearRegressor(columns, model_dir="held", optimizer="SGD", gradient_clip_norm=0.1)
held.fit(rows, wanted, steps=1)
moved = np.concatenate(
    [held.get_variable_value(n).ravel() for n in held.get_variable_names() if "linear_model" in n]
)
assert np.isclose(np.linalg.norm(moved), 0.2 * 0.1)  # the rate, and the length of both together

# An experiment with metrics of its own exports as well.
number = tf.contrib.layers.real_valued_column("x")
spec = tf.feature_column.make_parse_example_spec([number])
forever = numpy_input({"x": ones}, ones, shuffle=False, num_epochs=None)
rmse = learn.MetricSpec(tf.metrics.root_mean_squared_error, "predictions")
experiment = learn.Experiment(
    learn.LinearRegressor([number], model_dir="experiment"),
    forever,
    forever,
    train_steps=2,
    eval_steps=1,
    eval_metrics={"rmse": rmse},
    export_strategies=[learn.make_export_strategy(learn.build_parsing_serving_input_fn(spec))],
)
metrics, exports = experiment.train_and_evaluate()
assert metrics["rmse"] >= 0
assert len(exports) == len(glob.glob("experiment/export/Servo/*")) == 1

# The first evaluation has nothing to beat but those before it, which a restart remembers.
receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn(spec)
best = tf.estimator.BestExporter("best", receiver)
model = tf.estimator.LinearRegressor([x], "model")
_, [exported] = tf.estimator.train_and_evaluate(
    model,
    tf.estimator.TrainSpec(forever, 2),
    tf.estimator.EvalSpec(forever, 1, exporters=best),
)
assert exported is not None
again = tf.estimator.BestExporter("best", receiver)
arguments = (model, "model/export/best", model.latest_checkpoint())
assert again.export(*arguments, {"loss": 1e9, "global_step": 3}, False) is None
assert again.export(*arguments, {"loss": -1.0, "global_step": 4}, False) is not None

# A dataset of features alone, each in a tuple.
assert len(list(model.predict(lambda: tf.data.Dataset.from_tensors(({"x": ones},))))) == 8
print("fine")
