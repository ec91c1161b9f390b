"""Records that slim's data providers read and decode."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib import slim
from tensorflow.contrib.slim.python.slim.data import dataset, dataset_data_provider

ENDS = ("min", "max")
images = np.random.RandomState(0).randint(0, 255, [6, 4, 5, 3]).astype(np.uint8)
with tf.Session() as sess, tf.python_io.TFRecordWriter("few_train_0.tfrecord") as writer:
    for number, image in enumerate(images):
        is_raw = number % 2 == 1
        content = image.tobytes() if is_raw else sess.run(tf.image.encode_png(image))
        floats = {"box/ymin": [0.0, 0.5], "box/xmin": [0.1], "box/ymax": [1.0], "box/xmax": [0.9]}
        example = tf.train.Example()
        feature = example.features.feature
        feature["image/encoded"].bytes_list.value.append(content)
        feature["image/format"].bytes_list.value.append(b"raw" if is_raw else b"png")
        feature["label"].int64_list.value.append(number)
        feature["sizes"].int64_list.value.extend([2, 1])
        feature["few"].int64_list.value.extend([number, 7])
        for key, values in floats.items():
            feature[key].float_list.value.extend(values * (3 - len(values)))
        writer.write(example.SerializeToString())

decoder = slim.tfexample_decoder.TFExampleDecoder(
    {
        "image/encoded": tf.FixedLenFeature((), tf.string, default_value=""),
        "image/format": tf.FixedLenFeature((), tf.string, default_value="png"),
        "label": tf.FixedLenFeature([], tf.int64),
        "sizes": tf.VarLenFeature(tf.int64),
        "few": tf.VarLenFeature(tf.int64),
        **{
            f"box/{side}": tf.VarLenFeature(tf.float32) for side in ("ymin", "xmin", "ymax", "xmax")
        },
    },
    {
        "image": slim.tfexample_decoder.Image(shape=[4, 5, 3]),
        "label": slim.tfexample_decoder.Tensor("label"),
        "few": slim.tfexample_decoder.Tensor("few", shape_keys="sizes"),
        "boxes": slim.tfexample_decoder.BoundingBox(prefix="box/"),
        "twice": slim.tfexample_decoder.ItemHandlerCallback("label", lambda of: of["label"] * 2),
    },
)
described = dataset.Dataset(
    "few_train_*.tfrecord", tf.TFRecordReader, decoder, 6, {"image": "noise"}, num_classes=6
)
assert described.num_classes == 6
provider = dataset_data_provider.DatasetDataProvider(described, shuffle=False, num_epochs=1)
assert provider.list_items() == ["image", "label", "few", "boxes", "twice", "record_key"]
items = provider.get(["image", "label", "few", "boxes", "twice"])
items[2].set_shape([None, 1])
named = dict(zip("ilfbt", items, strict=True))
queue = slim.prefetch_queue.prefetch_queue(named, 2, dynamic_pad=True)
batch = queue.dequeue()
with tf.Session() as sess:
    sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
    with slim.queues.QueueRunners(sess):
        for number, image in enumerate(images):
            seen = sess.run(batch)
            assert np.array_equal(seen["i"], image), number
            assert (seen["l"], seen["t"]) == (number, number * 2)
            assert seen["f"].tolist() == [[number], [7]]
            assert np.allclose(seen["b"], [[0, 0.1, 1, 0.9], [0.5, 0.1, 1, 0.9]])
print("fine")
