"""TensorFlow by way of another file; a session of its own leads elsewhere."""

from .compat import tfv1


def restore(saver, path):
    saver.restore(tfv1.get_default_session(), path)  # expect: SOJ005


def evaluate(fetch):
    return tfv1.get_default_session().run(fetch)


def never_closed(fetch):
    return tfv1.Session().run(fetch)  # expect: SOJ001


def main(saver, fetch):
    with tfv1.Session():
        print(step(fetch))


def step(fetch):
    return evaluate(fetch)


def other(saver, path):
    restore(saver, path)
