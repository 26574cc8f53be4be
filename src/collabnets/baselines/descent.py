"""Training by epochs, for baselines that are networks: mini-batches in compiled chunks, several candidates at once.

A *candidate* is one set of weights with its own hyperparameters and its own seed; all candidates see the same rows.
What an iteration draws depends on the seed and the iteration's number alone. Training is in float32, or in float64 for
rows and parameters that were made ``in_float64()``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from tqdm.auto import tqdm

from collabnets.fitting import bucket
from collabnets.networks import AnyArray
from collabnets.training import batch_rows, interruptible, over_members

CHUNK = 500
# loss(parameters, hyperparameters, (x, y, weight) of the batch, key of the iteration, number of rows) -> number
Loss = Callable[[Any, Any, tuple[jax.Array, jax.Array, jax.Array], jax.Array, jax.Array], jax.Array]


def in_float64() -> AbstractContextManager:
    """Compute in float64 inside a ``with``, in this thread alone; JAX's global switch stays as it is."""
    # older versions of JAX have the same context among their experiments
    switch: Any = jax if hasattr(jax, "enable_x64") else import_module("jax.experimental")
    return switch.enable_x64(True)


class Rows(NamedTuple):
    """Training rows, padded to one of few lengths so that few shapes are ever compiled for.

    Attributes
    ----------
    x, y, weight
        Features (N, p), outcomes (N,) and weights (N,).
    n
        How many of them are real.
    """

    x: AnyArray
    y: AnyArray
    weight: AnyArray
    n: AnyArray

    @staticmethod
    def of(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> Rows:
        """Pad rows."""
        pad = bucket(len(y)) - len(y)

        def padded(a: np.ndarray) -> jax.Array:
            return jnp.asarray(np.pad(a, ((0, pad),) + ((0, 0),) * (a.ndim - 1)))

        return Rows(padded(x), padded(y), padded(weight), jnp.int32(len(y)))


class Trained(NamedTuple):
    """What a descent leaves.

    Attributes
    ----------
    parameters
        Weights, candidates stacked on the first axis; NumPy arrays.
    losses
        Loss of every iteration (iterations, candidates).
    """

    parameters: Any
    losses: np.ndarray


@lru_cache(maxsize=64)
def adam(step: float) -> optax.GradientTransformation:
    """Adam; the same object for the same step, so that a second fit finds what the first one compiled."""
    return optax.flatten(optax.adam(step))


@lru_cache(maxsize=64)
def adam_with_inverse_time_decay(step: float, rate: float, steps: int) -> optax.GradientTransformation:
    """Adam whose step is ``step / (1 + rate * iteration / steps)``."""
    return optax.flatten(optax.adam(lambda count: step / (1.0 + rate * count / steps)))


@eqx.filter_jit
def _start(optimizer: optax.GradientTransformation, parameters: Any) -> Any:
    return jax.vmap(optimizer.init)(parameters)


@eqx.filter_jit
def _chunk(
    loss: Loss, optimizer: optax.GradientTransformation, batch_size: int, group: Any, rows: Rows, start, n_steps
):
    """Train a group of candidates for the first ``n_steps`` of the ``CHUNK`` iterations from ``start``."""

    def one(parameters, state, hyper, key):
        words = jax.random.key_data(key).astype(jnp.uint32)
        batches = batch_rows(words, start + jnp.arange(CHUNK), jnp.asarray(rows.n), batch_size)

        def iterate(i, carry):
            parameters, state, losses = carry
            at = batches[i]
            batch = rows.x[at], rows.y[at], rows.weight[at]
            step_key = jax.random.fold_in(key, start + i)
            value, gradient = jax.value_and_grad(loss)(parameters, hyper, batch, step_key, jnp.asarray(rows.n))
            update, state = optimizer.update(gradient, state, parameters)
            return optax.apply_updates(parameters, update), state, losses.at[i].set(value)

        losses = jnp.zeros(CHUNK, rows.y.dtype)
        return jax.lax.fori_loop(0, n_steps, iterate, (parameters, state, losses))

    return jax.vmap(one)(*group)


def descend(
    loss: Loss,
    optimizer: optax.GradientTransformation,
    parameters: Any,
    hyper: Any,
    rows: Rows,
    *,
    seeds: np.ndarray,
    epochs: int,
    batch_size: int,
    some_may_diverge: bool = False,
    progress: bool = False,
    description: str = "",
) -> Trained:
    """Train candidates for some epochs.

    Parameters
    ----------
    loss
        A function of a module, not a closure made anew at every fit: it decides what is compiled.
    optimizer
        An Optax transformation, one object for all fits with the same settings (see ``adam``).
    parameters, hyper
        Pytrees of arrays with a leading axis of candidates: what descends, and what the loss reads besides.
    rows
        Training rows.
    seeds
        One seed a candidate.
    epochs
        Passes over the rows; the n mod batch_size rows at the end of a shuffle wait for the next one.
    batch_size
        Rows of a mini-batch, at most all.
    some_may_diverge
        Go on as long as one candidate is finite, as a search that drops the others may; a final fit needs them all.
    progress
        Show a bar, if on a terminal.
    description
        What the bar says.
    """
    size = min(int(batch_size), int(rows.n))
    double = rows.y.dtype == np.float64
    total = epochs * max(1, int(rows.n) // size)
    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))
    state = _start(optimizer, parameters)
    group, history, done = (parameters, state), [], 0
    bar = tqdm(total=total, desc=description or None, disable=None if progress else True, unit="it", leave=False)
    with bar, interruptible() as interrupted:
        while done < total:
            n_steps = min(CHUNK, total - done)
            at = np.int32(done), np.int32(n_steps)

            def run(part, at=at):
                parameters, state, hyper, keys = part
                with in_float64() if double else nullcontext():  # threads do not inherit the caller's context
                    return _chunk(loss, optimizer, size, (parameters, state, hyper, keys), rows, *at)

            *group, losses = over_members(run, (*group, hyper, keys), len(seeds))
            values = np.asarray(losses)[:, :n_steps].T
            _still_finite(np.isfinite(values[-1]), some_may_diverge)
            history.append(values)
            done += n_steps
            bar.update(n_steps)
            if interrupted.is_set():
                raise KeyboardInterrupt
    learnt = jax.tree.map(np.asarray, group[0])
    _still_finite(_finite_weights(learnt, len(seeds)), some_may_diverge)  # the last step comes after the last loss
    return Trained(learnt, np.concatenate(history))


def _finite_weights(parameters: Any, count: int) -> np.ndarray:
    """Which candidates have finite weights only."""
    leaves = [np.isfinite(a).reshape(count, -1).all(axis=1) for a in jax.tree.leaves(parameters)]
    return np.logical_and.reduce(leaves)


def _still_finite(finite: np.ndarray, some_may_diverge: bool) -> None:
    """Refuse to go on with candidates of which too many have diverged."""
    if finite.any() if some_may_diverge else finite.all():
        return
    lost = int((~finite).sum())
    which = "every candidate" if lost == len(finite) else f"{lost} of {len(finite)} networks"
    raise FloatingPointError(
        f"the training loss became infinite or NaN for {which}; try a smaller learning_rate_init, or look for extreme "
        "values in X or y."
    )
