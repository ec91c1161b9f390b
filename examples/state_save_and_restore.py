"""Train, save, go on, and come back to what was saved. Then lose the worker, and go on anyway."""

import os
import signal
import tempfile

import sojourn


def build():
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [], name="x")
    w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
    loss = (w * x - 3.0) ** 2
    return {"x": x}, {"w": w, "loss": loss, "train": v1.train.AdamOptimizer(0.1).minimize(loss)}


with (
    tempfile.TemporaryDirectory() as folder,
    sojourn.open(build, restart="from-checkpoint") as session,
):
    for _ in range(20):
        session.run("train", {"x": 1.0})
    saved = session.run("w")
    session.save(f"{folder}/step-20")  # when this returns, it is on the disk
    print("saved:", sorted(os.listdir(f"{folder}/step-20")))

    session.run("train", {"x": 1.0})
    session.restore(f"{folder}/step-20")
    print("restored exactly:", session.run("w") == saved)

    session.run("train", {"x": 1.0})
    os.kill(session.pid, signal.SIGKILL)  # the worker is lost ...
    while os.path.exists(f"/proc/{session.pid}"):
        pass
    print("and back:", session.run("w") == saved)  # ... and replaced, with the saved state

    session.reset()
    print("reset:", session.run("w"))
