"""The two networks: g(z, x), the logit of the conditional CDF, and f(q, x), its inverse.

Both are the same thing, a perceptron of one scalar query and the features of a row, so both are a ``QueryNetwork``.
The first layer is kept in two parts, one for the query and one for the features, so that many queries of one row cost
the features' part once (``context``, then ``respond`` for each query). Everything is written for one row and one
query; ``respond_rows`` maps it over both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

AnyArray = Array | np.ndarray
Normalization = Literal["none", "scale", "batch"]
Encoder = Callable[..., eqx.Module]

ROWS, DRAWS = "rows", "draws"  # the mapped axes over which batch moments are taken
BATCH_EPSILON = 1e-5


@jax.custom_jvp
def elu(x: Array) -> Array:
    """Exponential linear unit; its derivative reuses its value, and exp(x) - 1 is cheaper here than expm1."""
    return jnp.where(x > 0, x, jnp.exp(jnp.minimum(x, 0.0)) - 1.0)


@elu.defjvp
def _elu_jvp(primals, tangents):
    value = elu(primals[0])
    return value, tangents[0] * (jnp.minimum(value, 0.0) + 1.0)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "elu": elu,
    "relu": jax.nn.relu,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "softplus": jax.nn.softplus,
    "tanh": jnp.tanh,
}


class Moments(eqx.Module):
    """Stored mean and variance of a normalised quantity; updated by averaging, never by gradients."""

    mean: Float[AnyArray, "..."]
    var: Float[AnyArray, "..."]


class MomentsOf(NamedTuple):
    """Whose moments normalise: those of the batch, or the stored ones.

    Attributes
    ----------
    hidden_from_batch
        For the batch normalisation of hidden layers.
    output_from_batch
        For the moment matching of the logit.
    """

    hidden_from_batch: bool | Array = False
    output_from_batch: bool | Array = False


STORED = MomentsOf()


class Normalise(eqx.Module):
    """(h - mean) / sd with the moments of the batch or the stored ones.

    Called with ``batch=True`` it must stand under maps named ``rows`` and ``draws``.
    """

    moments: Moments

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.moments = Moments(np.zeros(shape, np.float32), np.ones(shape, np.float32))

    def __call__(self, h: Array, batch: bool | Array) -> tuple[Array, Moments]:
        """The normalised quantity and the moments that were used."""
        now = jax.lax.stop_gradient(self.moments)
        if batch is not False:
            axes = (ROWS, DRAWS)
            mean = jax.lax.pmean(h, axes)
            of_batch = Moments(mean, jax.lax.pmean((h - mean) ** 2, axes))
            now = jax.tree.map(lambda a, b: jnp.where(batch, a, b), of_batch, now)
        return (h - now.mean) / jnp.sqrt(now.var + BATCH_EPSILON), now


class Affine(eqx.Module):
    """Learnt scale and shift, after the batch's own normalisation where ``normalise`` is present."""

    scale: Float[AnyArray, " width"]
    shift: Float[AnyArray, " width"]
    normalise: Normalise | None

    def __init__(self, width: int, batch: bool) -> None:
        self.scale, self.shift = np.ones(width, np.float32), np.zeros(width, np.float32)
        self.normalise = Normalise((width,)) if batch else None

    def __call__(self, h: Array, batch: bool | Array) -> tuple[Array, Moments | None]:
        """The scaled and shifted layer and the moments that were used, if any."""
        moments = None
        if self.normalise is not None:
            h, moments = self.normalise(h, batch)
        return jnp.asarray(self.scale * h + self.shift), moments


class MomentMatching(eqx.Module):
    """Eq. (gloss_constrained): logits with a given mean and standard deviation, those of logit(q) for q ~ p(q).

    ``matched=False`` is what the authors' code did: the raw logit times a fixed factor. With ``matched=True`` the raw
    logit is normalised by the moments of the batch in the joint phase, and by their stored average at prediction.
    """

    normalise: Normalise
    mean: float = eqx.field(static=True)
    deviation: float = eqx.field(static=True)
    matched: bool = eqx.field(static=True)

    def __init__(self, mean: float, deviation: float, matched: bool) -> None:
        self.normalise = Normalise(())
        self.mean, self.deviation, self.matched = mean, deviation, matched

    def __call__(self, logit: Array, batch: bool | Array) -> tuple[Array, Moments | None]:
        """The logit with its moments set and the moments that were used, if any."""
        if not self.matched:
            return self.mean + self.deviation * logit, None
        logit, moments = self.normalise(logit, batch)
        return self.mean + self.deviation * logit, moments


class QueryNetwork(eqx.Module):
    """A perceptron h(s, x) of a scalar query s and features x, with one number out.

    Parameters
    ----------
    n_features
        Length of x.
    widths
        Sizes of the hidden layers: (100, 80) for g and (100, 80, 60) for f in Appendix C.
    activation
        A name in ``ACTIVATIONS``.
    init
        ``"tiny"``: hidden weights N(0, 0.001^2) as the authors' code starts them; ``"ordinary"``: N(0, 1 / fan-in).
        Biases start at 0.
    readout_init
        The same for the last layer: the authors' g starts it at Glorot normal, their f at the tiny start.
    normalization
        After each hidden layer: ``"scale"`` a learnt scale and shift, which is what batch normalisation run in
        inference mode is; ``"batch"`` real batch normalisation; ``"none"``.
    output
        What happens to the last layer's number: a ``MomentMatching`` for g, nothing for f.
    encoder
        ``encoder(n_features, key=key)`` makes an ``eqx.Module`` that maps x to a vector; the layers above see that
        vector instead of x.
    key
        Seed of the start.
    """

    encoder: eqx.Module | None
    query_weight: Float[AnyArray, " first"]
    weights: list[Float[AnyArray, "fan_in fan_out"]]
    biases: list[Float[AnyArray, " fan_out"]]
    affines: list[Affine | None]
    readout_weight: Float[AnyArray, " last"]
    readout_bias: Float[AnyArray, ""]
    output: MomentMatching | None
    activation: str = eqx.field(static=True)

    def __init__(
        self,
        n_features: int,
        widths: Sequence[int],
        *,
        activation: str = "elu",
        init: str = "tiny",
        readout_init: str = "glorot",
        normalization: Normalization = "scale",
        output: MomentMatching | None = None,
        encoder: Encoder | None = None,
        key: AnyArray,
    ) -> None:
        rng = np.random.default_rng(np.asarray(key))  # NumPy's: nothing to compile for a start
        self.encoder = None if encoder is None else encoder(n_features, key=key)
        fan_in = n_features if self.encoder is None else _encoded_size(self.encoder, n_features)
        first = _weights(rng, (fan_in + 1, widths[0]), init)
        self.query_weight = first[0]
        self.weights = [first[1:], *(_weights(rng, shape, init) for shape in pairwise(widths))]
        self.biases = [np.zeros(w, np.float32) for w in widths]
        self.affines = [None if normalization == "none" else Affine(w, normalization == "batch") for w in widths]
        self.readout_weight = _weights(rng, (widths[-1], 1), readout_init)[:, 0]
        self.readout_bias = np.zeros((), np.float32)
        self.output = output
        self.activation = activation

    def context(self, x: Float[Array, " p"]) -> Float[Array, " first"]:
        """The part of the first layer that depends on x alone."""
        encoded = x if self.encoder is None else self.encoder(x)  # type: ignore[operator]
        return encoded @ self.weights[0] + self.biases[0]

    def respond(
        self, query: Float[Array, ""], context: Float[Array, " first"], moments_of: MomentsOf = STORED
    ) -> tuple[Float[Array, ""], list[Moments | None]]:
        """h(query, x) from the context of x, and the moments it used, one entry a normalised quantity."""
        activate = ACTIVATIONS[self.activation]
        seen: list[Moments | None] = []
        h = jnp.asarray(query * self.query_weight + context)
        for i, affine in enumerate(self.affines):
            if i > 0:
                h = h @ self.weights[i] + self.biases[i]
            h = activate(h)
            if affine is not None:
                h, moments = affine(h, moments_of.hidden_from_batch)
                seen.append(moments)
        out = h @ self.readout_weight + self.readout_bias
        if self.output is not None:
            out, moments = self.output(out, moments_of.output_from_batch)
            seen.append(moments)
        return out, seen

    def __call__(self, query: Float[Array, ""], x: Float[Array, " p"]) -> Float[Array, ""]:
        """h(query, x) for one query and one row."""
        return self.respond(query, self.context(x))[0]


def respond_rows(
    net: QueryNetwork, queries: Float[Array, "rows draws"], x: Float[Array, "rows p"], moments_of: MomentsOf = STORED
) -> tuple[Float[Array, "rows draws"], list[Moments | None]]:
    """Answer several queries for each of several rows; the features' part is computed once a row."""
    context = jax.vmap(net.context)(x)
    several = jax.vmap(lambda s, c: net.respond(s, c, moments_of), (0, None), (0, None), axis_name=DRAWS)
    return jax.vmap(several, (0, 0), (0, None), axis_name=ROWS)(queries, context)


def trainable(net: QueryNetwork) -> QueryNetwork:
    """Tell for every leaf of a network whether gradients may change it: stored moments, they may not."""
    everything = jax.tree.map(eqx.is_inexact_array, net)
    return jax.tree.map(
        lambda leaf: jax.tree.map(lambda _: False, leaf) if isinstance(leaf, Moments) else leaf,
        everything,
        is_leaf=lambda leaf: isinstance(leaf, Moments),
    )


def store_moments(net: QueryNetwork, seen: Sequence[Moments | None], momentum: float = 0.01) -> QueryNetwork:
    """Move the stored moments towards those a training batch showed."""
    fresh = [m for m in seen if m is not None]
    if not fresh:
        return net

    def moved(old: Moments, new: Moments) -> Moments:
        return jax.tree.map(lambda a, b: (1.0 - momentum) * a + momentum * b, old, new)

    return eqx.tree_at(_stored, net, [moved(o, n) for o, n in zip(_stored(net), fresh, strict=True)])


def _stored(net: QueryNetwork) -> list[Moments]:
    inner = [a.normalise.moments for a in net.affines if a is not None and a.normalise is not None]
    outer = [net.output.normalise.moments] if net.output is not None and net.output.matched else []
    return inner + outer


def stack(nets: Sequence[QueryNetwork]) -> QueryNetwork:
    """Put networks of one shape into one, their arrays stacked on a new first axis of members."""
    arrays, rests = zip(*(eqx.partition(net, eqx.is_array_like) for net in nets), strict=True)
    return eqx.combine(jax.tree.map(lambda *leaves: np.stack(leaves), *arrays), rests[0])


def _weights(rng: np.random.Generator, shape: tuple[int, int], init: str) -> np.ndarray:
    deviation = {"tiny": 1e-3, "ordinary": shape[0] ** -0.5, "glorot": (2.0 / sum(shape)) ** 0.5}[init]
    return (deviation * rng.standard_normal(shape)).astype(np.float32)


def _encoded_size(encoder: Any, n_features: int) -> int:
    shape = eqx.filter_eval_shape(lambda x: encoder(x), jax.ShapeDtypeStruct((n_features,), jnp.float32)).shape
    if len(shape) != 1:
        raise ValueError(
            f"an encoder maps the features of one row, shape ({n_features},), to a vector; it gives shape {shape}."
        )
    return int(shape[0])
