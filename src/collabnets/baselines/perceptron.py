"""The plain perceptron of the baselines: layers as pairs of weights and biases, written for one row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from collabnets.networks import ACTIVATIONS, AnyArray

# (weights (fan_in, fan_out), biases (fan_out,)) of each layer, the heads last.
Layers = tuple[tuple[AnyArray, AnyArray], ...]
Init = Literal["glorot", "uniform"]


def start(seed: Sequence[int], widths: Sequence[int], *, heads: int = 1, outputs: int = 1, init: Init) -> Layers:
    """Draw a perceptron as its reference implementation starts one.

    Parameters
    ----------
    seed
        Whole numbers; the same ones give the same network.
    widths
        Number of features, then the widths of the hidden layers.
    heads, outputs
        Last layers side by side on the same hidden layer, and numbers each of them gives.
    init
        ``"glorot"``: weights uniform within sqrt(6 / (fan-in + fan-out)), biases 0, as Keras does.
        ``"uniform"``: weights and biases uniform within 1 / sqrt(fan-in), as PyTorch does.
    """
    rng = np.random.default_rng(seed)

    def layer(fan_in: int, fan_out: int) -> tuple[np.ndarray, np.ndarray]:
        bound = np.sqrt(6.0 / (fan_in + fan_out)) if init == "glorot" else fan_in**-0.5
        weight = rng.uniform(-bound, bound, (fan_in, fan_out))
        bias = np.zeros(fan_out) if init == "glorot" else rng.uniform(-bound, bound, fan_out)
        return weight.astype(np.float32), bias.astype(np.float32)

    hidden = [layer(*shape) for shape in pairwise(widths)]
    return (*hidden, *(layer(widths[-1], outputs) for _ in range(heads)))


def stack(nets: Sequence[Layers]) -> Layers:
    """Put networks of one shape into one, their arrays stacked on a new first axis."""
    return jax.tree.map(lambda *arrays: np.stack(arrays), *nets)


def respond(
    layers: Layers, x: jax.Array, *, activation: str, heads: int = 1, masks: Sequence[jax.Array] | None = None
) -> jax.Array:
    """What the heads say of one row x (p,), one after the other.

    Parameters
    ----------
    layers
        The network.
    x
        Features of the row.
    activation
        A name in ``ACTIVATIONS``.
    heads
        How many of the last layers are heads.
    masks
        What the inputs of each layer are multiplied by, one vector a layer; for dropout.
    """

    def through(k: int, h: jax.Array) -> jax.Array:
        weight, bias = layers[k]
        return jnp.asarray((h if masks is None else h * masks[k]) @ weight + bias)

    depth = len(layers) - heads
    for k in range(depth):
        x = ACTIVATIONS[activation](through(k, x))
    return jnp.concatenate([through(depth + head, x) for head in range(heads)])


def fan_ins(layers: Layers) -> tuple[int, ...]:
    """How many inputs each layer has."""
    return tuple(weight.shape[-2] for weight, _ in layers)


def sums_of_squares(layers: Layers) -> jax.Array:
    """Sum of the squared weights, biases not counted, of each layer."""
    return jnp.stack([jnp.sum(weight**2) for weight, _ in layers])


def hidden_widths(value: int | Sequence[int]) -> tuple[int, ...]:
    """Read the parameter ``hidden_layer_sizes`` of an estimator."""
    sizes = np.atleast_1d(np.asarray(value))
    if sizes.ndim != 1 or not sizes.size or sizes.dtype.kind not in "iu" or sizes.min() < 1:
        raise ValueError(
            f"hidden_layer_sizes lists the widths of one or more hidden layers, such as (100, 80); got {value!r}."
        )
    return tuple(int(v) for v in sizes)
