"""An estimator for a TPU, on what is here."""

import glob

import numpy as np
import tensorflow as tf

rows = np.random.RandomState(0).rand(100, 4).astype(np.float32)
wanted = rows[:, :3].argmax(1).astype(np.int32)
seen = []


def metric_fn(labels, logits):
    return {"accuracy": tf.metrics.accuracy(labels, tf.argmax(logits, -1))}


def model_fn(features, labels, mode, params):
    seen.append((mode, params.get("batch_size")))
    normal = tf.contrib.layers.layer_norm(features["x"], begin_norm_axis=-1, begin_params_axis=-1)
    logits = tf.layers.dense(normal, 3)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.contrib.tpu.TPUEstimatorSpec(mode, predictions={"logits": logits})
    loss = tf.losses.sparse_softmax_cross_entropy(features["y"], logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        metrics = (metric_fn, {"labels": features["y"], "logits": logits})
        return tf.contrib.tpu.TPUEstimatorSpec(mode=mode, loss=loss, eval_metrics=metrics)
    optimizer = tf.contrib.tpu.CrossShardOptimizer(tf.contrib.opt.AdamWOptimizer(1e-5, 0.05))
    number = tf.train.get_global_step()
    step = optimizer.minimize(loss, number)
    return tf.contrib.tpu.TPUEstimatorSpec(
        mode=mode,
        loss=loss,
        train_op=step,
        scaffold_fn=tf.train.Scaffold,
        host_call=(report, [tf.reshape(number, [1]), tf.reshape(loss, [1])]),
    )


def report(number, loss):
    writer = tf.contrib.summary.create_file_writer("reports")
    with writer.as_default(), tf.contrib.summary.always_record_summaries():
        tf.contrib.summary.scalar("loss", loss[0], step=number[0])
        return tf.contrib.summary.all_summary_ops()


def input_fn(params):
    data = tf.data.Dataset.from_tensor_slices({"x": rows, "y": wanted}).repeat(5)
    size = params["batch_size"]
    assert params["name"] == "mine"
    return data.apply(tf.contrib.data.map_and_batch(lambda row: row, size, drop_remainder=True))


resolver = tf.contrib.cluster_resolver.TPUClusterResolver("nowhere", zone=None, project=None)
settings = tf.contrib.tpu.TPUConfig(
    iterations_per_loop=10,
    num_shards=8,
    per_host_input_for_training=tf.contrib.tpu.InputPipelineConfig.PER_HOST_V2,
)
config = tf.contrib.tpu.RunConfig(
    cluster=resolver, model_dir="model", save_checkpoints_steps=10, tpu_config=settings
)
model = tf.contrib.tpu.TPUEstimator(
    model_fn=model_fn,
    config=config,
    params={"name": "mine"},
    use_tpu=True,
    train_batch_size=20,
    eval_batch_size=10,
    predict_batch_size=5,
)
model.train(input_fn=input_fn, max_steps=20)
[events] = glob.glob("reports/*")
assert sum(len(event.summary.value) for event in tf.train.summary_iterator(events)) == 20
assert model.evaluate(input_fn=input_fn, steps=50)["global_step"] == 20
assert len(list(model.predict(input_fn=input_fn))) == 500
receiver = tf.estimator.export.build_raw_serving_input_receiver_fn(
    {"x": tf.placeholder(tf.float32, [None, 4])}
)
model.export_saved_model("exported", receiver)
assert seen == [("train", 20), ("eval", 10), ("infer", 5), ("infer", None)], seen
print("fine")
