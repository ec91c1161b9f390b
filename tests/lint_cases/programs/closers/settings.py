"""What other files set, and this one closes."""

SESSION = None


def stop():
    SESSION.close()
