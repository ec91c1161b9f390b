"""`tf.contrib.distributions`: the classes of `tf.distributions`, with the names from before 1.0."""

from __future__ import annotations

import math
from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy import removed
from sojourn.compat.legacy.namespaces import names_of
from sojourn.compat.legacy.oldnames import renaming

_kept = tf.distributions


def _of_the_time(kind: Any, **renamed: str) -> Any:
    """Subclass `kind` to accept the old argument names and to add `pdf`, `log_pdf` and so on."""
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
    """A vector of independent normally distributed numbers."""

    def __init__(self, loc: Any = None, scale_diag: Any = None, **rest: Any) -> None:
        loc = rest.get("mu", loc)
        scale = rest.get("diag_stdev", rest.get("diag_stddev", scale_diag))
        if loc is None and scale is None:
            raise ValueError("MultivariateNormalDiag needs loc or scale_diag")
        self.loc = tf.zeros_like(scale) if loc is None else tf.convert_to_tensor(loc)
        self.scale = tf.ones_like(self.loc) if scale is None else tf.convert_to_tensor(scale)

    def sample(self, sample_shape: Any = (), seed: Any = None, name: str = "sample") -> Any:
        """Sample vectors."""
        shape = [sample_shape] if isinstance(sample_shape, int) else list(sample_shape)
        each = tf.broadcast_dynamic_shape(tf.shape(self.loc), tf.shape(self.scale))
        noise = tf.random_normal(tf.concat([tf.cast(shape, tf.int32), each], 0), seed=seed)
        return self.loc + self.scale * tf.cast(noise, self.loc.dtype)

    def log_prob(self, value: Any, name: str = "log_prob") -> Any:
        """Return the log of the density, one number per vector."""
        distance = tf.square((value - self.loc) / self.scale)
        each = distance / 2 + tf.log(self.scale) + math.log(2 * math.pi) / 2
        return -tf.reduce_sum(each, -1)

    def prob(self, value: Any, name: str = "prob") -> Any:
        """Return the density."""
        return tf.exp(self.log_prob(value))

    def entropy(self, name: str = "entropy") -> Any:
        """Return the differential entropy."""
        both = tf.log(self.scale) + tf.zeros_like(self.loc)
        return tf.reduce_sum(both + (1 + math.log(2 * math.pi)) / 2, -1)

    def mean(self, name: str = "mean") -> Any:
        """Return the mean, which is also the mode."""
        return self.loc + tf.zeros_like(self.scale)

    def stddev(self, name: str = "stddev") -> Any:
        """Return the standard deviation of each number."""
        return self.scale + tf.zeros_like(self.loc)

    pdf, log_pdf, mode = prob, log_prob, mean


def _kl_of_diagonals(a: Any, b: Any, name: Any = None) -> Any:
    ratio = tf.square(a.scale / b.scale)
    apart = tf.square((a.loc - b.loc) / b.scale)
    return tf.reduce_sum(ratio + apart - 1 - tf.log(ratio), -1) / 2


_kept.RegisterKL(MultivariateNormalDiag, MultivariateNormalDiag)(_kl_of_diagonals)


class OneHotCategorical(Categorical):  # type: ignore[misc, valid-type]
    """A categorical distribution whose samples are one-hot vectors."""

    def __init__(
        self, logits: Any = None, probs: Any = None, dtype: Any = tf.int32, **named: Any
    ) -> None:
        super().__init__(logits=logits, probs=probs, **named)
        self._one_hot = dtype

    def _vector(self, classes: Any) -> Any:
        return tf.one_hot(classes, tf.dimension_value(self.logits.shape[-1]), dtype=self._one_hot)

    def sample(self, sample_shape: Any = (), seed: Any = None, name: str = "sample") -> Any:
        """Sample vectors."""
        return self._vector(super().sample(sample_shape, seed, name))

    def log_prob(self, value: Any, name: str = "log_prob") -> Any:
        """Return the log of the probability, one number per vector."""
        return super().log_prob(tf.argmax(value, -1, output_type=tf.int32))

    def prob(self, value: Any, name: str = "prob") -> Any:
        """Return the probability."""
        return tf.exp(self.log_prob(value))

    def mode(self, name: str = "mode") -> Any:
        """Return the likeliest vector."""
        return self._vector(super().mode(name))

    def mean(self, name: str = "mean") -> Any:
        """Return the mean, which is the probability of each class."""
        return tf.identity(self.probs)


class RelaxedOneHotCategorical:
    """A differentiable approximation of one-hot vectors (Gumbel-softmax)."""

    def __init__(
        self, temperature: Any, logits: Any = None, probs: Any = None, **named: Any
    ) -> None:
        if (logits is None) == (probs is None):
            raise ValueError("Must pass probs or logits, but not both.")
        logits = tf.log(probs) if logits is None else logits
        self.logits = tf.convert_to_tensor(logits, name="logits")
        self.temperature = tf.convert_to_tensor(temperature, self.logits.dtype)

    @property
    def probs(self) -> Any:
        return tf.nn.softmax(self.logits)

    def sample(self, sample_shape: Any = (), seed: Any = None, name: str = "sample") -> Any:
        """Sample vectors: the softmax of the logits with Gumbel noise."""
        shape = [sample_shape] if isinstance(sample_shape, int) else list(sample_shape)
        size = tf.concat([tf.cast(shape, tf.int32), tf.shape(self.logits)], 0)
        kind = self.logits.dtype
        chance = tf.random_uniform(size, minval=kind.as_numpy_dtype(1e-37), dtype=kind, seed=seed)
        noisy = (self.logits - tf.log(-tf.log(chance))) / self.temperature
        noisy.set_shape(tf.TensorShape([None] * len(shape)).concatenate(self.logits.shape))
        return tf.nn.softmax(noisy, name=name)

    def log_prob(self, value: Any, name: str = "log_prob") -> Any:
        """Return the log of the density, one number per vector."""
        width = tf.cast(tf.shape(self.logits)[-1], self.logits.dtype)
        scale = tf.lgamma(width) + (width - 1) * tf.log(self.temperature)
        score = tf.nn.log_softmax(self.logits - self.temperature * tf.log(value))
        return scale + tf.reduce_sum(score - tf.log(value), -1)

    def prob(self, value: Any, name: str = "prob") -> Any:
        """Return the density."""
        return tf.exp(self.log_prob(value))


def percentile(
    x: Any, q: Any, axis: Any = None, interpolation: str = "nearest", keep_dims: bool = False
) -> Any:
    """Return the `q`-th percentile along `axis`."""
    if interpolation not in (places := {"lower": tf.floor, "higher": tf.ceil, "nearest": tf.round}):
        raise ValueError(f"interpolation must be one of {list(places)}, not {interpolation!r}")
    x = tf.convert_to_tensor(x)
    axes = (
        range(x.shape.rank) if axis is None else [a % x.shape.rank for a in tf.nest.flatten(axis)]
    )
    rest = [a for a in range(x.shape.rank) if a not in axes]
    moved = tf.transpose(x, [*rest, *axes])
    flat = tf.sort(tf.reshape(moved, tf.concat([tf.shape(moved)[: len(rest)], [-1]], 0)))
    last = tf.cast(tf.shape(flat)[-1] - 1, tf.float64)
    found = tf.gather(
        flat, tf.to_int32(places[interpolation](tf.to_double(q) / 100 * last)), axis=-1
    )
    for each in sorted(axes) if keep_dims else ():
        found = tf.expand_dims(found, each)
    return found


kl = _kept.kl_divergence
globals().update(
    names_of(
        _kept,
        "DirichletMultinomial Distribution FULLY_REPARAMETERIZED Multinomial NOT_REPARAMETERIZED "
        "RegisterKL kl_divergence",
    )
)

__getattr__ = removed.missing_name("tf.contrib.distributions")
