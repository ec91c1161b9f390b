"""TensorFlow sessions that leave nothing behind."""

from sojourn._version import __version__ as __version__
