"""`tf.contrib.distributions`: those of `tf.distributions`, with the names they had before 1.0."""

from __future__ import annotations

import math
from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy import removed
from sojourn.compat.legacy.oldnames import renaming

_kept = tf.distributions


def _of_the_time(kind: Any, **renamed: str) -> Any:
    """`kind` with the old names of its arguments, and `pdf` and `log_pdf` beside `prob`."""
    return type(
        kind.__name__,
        (kind,),
        {
            "__init__": renaming(kind.__init__, **renamed),
            "__doc__": kind.__doc__,
            "pdf": kind.prob,
            "log_pdf": kind.log_prob,
            "pmf": kind.prob,
            "log_pmf": kind.log_prob,
        },
    )


Normal = _of_the_time(_kept.Normal, mu="loc", sigma="scale")
Laplace = _of_the_time(_kept.Laplace)
Bernoulli = _of_the_time(_kept.Bernoulli, p="probs")
Categorical = _of_the_time(_kept.Categorical)
Uniform = _of_the_time(_kept.Uniform, a="low", b="high")
Gamma = _of_the_time(_kept.Gamma, alpha="concentration", beta="rate")
Beta = _of_the_time(_kept.Beta, a="concentration1", b="concentration0")
Exponential = _of_the_time(_kept.Exponential, lam="rate")
StudentT = _of_the_time(_kept.StudentT, mu="loc", sigma="scale")
Dirichlet = _of_the_time(_kept.Dirichlet, alpha="concentration")


class MultivariateNormalDiag:
    """Independent normal numbers side by side, taken as one vector."""

    def __init__(self, loc: Any = None, scale_diag: Any = None, **rest: Any) -> None:
        loc = rest.get("mu", loc)
        scale = rest.get("diag_stdev", rest.get("diag_stddev", scale_diag))
        if loc is None and scale is None:
            raise ValueError("MultivariateNormalDiag needs loc or scale_diag")
        self.loc = tf.zeros_like(scale) if loc is None else tf.convert_to_tensor(loc)
        self.scale = tf.ones_like(self.loc) if scale is None else tf.convert_to_tensor(scale)

    def sample(self, sample_shape: Any = (), seed: Any = None, name: str = "sample") -> Any:
        """Vectors drawn."""
        shape = [sample_shape] if isinstance(sample_shape, int) else list(sample_shape)
        each = tf.broadcast_dynamic_shape(tf.shape(self.loc), tf.shape(self.scale))
        noise = tf.random_normal(tf.concat([tf.cast(shape, tf.int32), each], 0), seed=seed)
        return self.loc + self.scale * tf.cast(noise, self.loc.dtype)

    def log_prob(self, value: Any, name: str = "log_prob") -> Any:
        """The log of the density, one number a vector."""
        distance = tf.square((value - self.loc) / self.scale)
        each = distance / 2 + tf.log(self.scale) + math.log(2 * math.pi) / 2
        return -tf.reduce_sum(each, -1)

    def prob(self, value: Any, name: str = "prob") -> Any:
        """The density."""
        return tf.exp(self.log_prob(value))

    def entropy(self, name: str = "entropy") -> Any:
        """How uncertain a vector is."""
        both = tf.log(self.scale) + tf.zeros_like(self.loc)
        return tf.reduce_sum(both + (1 + math.log(2 * math.pi)) / 2, -1)

    def mean(self, name: str = "mean") -> Any:
        """The middle."""
        return self.loc + tf.zeros_like(self.scale)

    def stddev(self, name: str = "stddev") -> Any:
        """The spread of each number."""
        return self.scale + tf.zeros_like(self.loc)

    pdf, log_pdf, mode = prob, log_prob, mean


Distribution = _kept.Distribution
RegisterKL = _kept.RegisterKL
kl_divergence = _kept.kl_divergence
kl = _kept.kl_divergence
FULLY_REPARAMETERIZED = _kept.FULLY_REPARAMETERIZED
NOT_REPARAMETERIZED = _kept.NOT_REPARAMETERIZED
Multinomial = _kept.Multinomial
DirichletMultinomial = _kept.DirichletMultinomial

__getattr__ = removed.missing_name("tf.contrib.distributions")
