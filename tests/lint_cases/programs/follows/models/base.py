"""Closes nothing."""


class Base:
    def name(self):
        return type(self).__name__
