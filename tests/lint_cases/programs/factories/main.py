import making
from making import among_others, lost_by_all, lost_by_some


def loses():
    sess = lost_by_all(None)
    return sess.run("out:0")


def loses_again():
    return making.lost_by_all(None).run("out:0")


def closes():
    with lost_by_some() as sess, making.closed_by_all() as other:
        return sess.run("out:0"), other.run("out:0")


def does_not_close():
    sess = lost_by_some()  # expect: SOJ001
    return sess.run("out:0")


def asks_for_silence():
    sess = making.silenced()  # noqa: SOJ001
    return sess.run("out:0")


def takes_two():
    _, sess = among_others()
    return sess.run("out:0")


def takes_one_of_two():
    sess = making.one_of_two(has_gpu=False)
    return sess.run("out:0")


def by_two_steps():
    sess = making.through_another()  # expect: SOJ001
    return sess.run("out:0")


def enters():
    making.interactive_if_asked().__enter__()


def asks(is_default):
    return making.interactive_or_not(is_default).run("out:0")
