"""The maths of a Gaussian process: its kernel, its marginal likelihood, and its conditioning on rows.

In float64: the matrices of a Gaussian process are too near to singular for float32. A row of weight w is w observations
with one outcome, so its noise variance is divided by w.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from collabnets.networks import AnyArray

# Where the search for hyperparameters starts: softplus(0), as in gpytorch.
START = math.log(2.0)
# Features are padded to a multiple of this.
COLUMNS = 8
# A learnt noise variance stays above this; the outcome has variance 1.
NOISE_FLOOR = 1e-4
# Added to the diagonal, relative to its mean, when a matrix is not positive definite: the first try and the last.
FIRST_JITTER, LAST_JITTER = 1e-12, 1e-2


class Hyperparameters(NamedTuple):
    """What a Gaussian process with an RBF kernel is made of, in network units.

    Attributes
    ----------
    length_scale
        One for all features (1,), or one a feature (p,).
    signal_variance, noise_variance
        Variances of the function and of an outcome around it.
    mean
        The constant mean of the function.
    """

    length_scale: AnyArray
    signal_variance: AnyArray
    noise_variance: AnyArray
    mean: AnyArray

    @staticmethod
    def of(length_scale: Any, signal_variance: Any, noise_variance: Any, mean: Any) -> Hyperparameters:
        """Make them from numbers and arrays."""
        values = (np.asarray(v, np.float64) for v in (length_scale, signal_variance, noise_variance, mean))
        return Hyperparameters(*values)


def padded(features: np.ndarray, rows: int) -> np.ndarray:
    """Features in float64 with more rows, and columns, of zeros, so that few shapes are ever compiled for.

    A column of zeros adds nothing to a distance, and its length scale has no gradient.
    """
    n, p = features.shape
    return np.pad(features.astype(np.float64), ((0, rows - n), (0, -p % COLUMNS)))


def free(h: Hyperparameters, floor: float) -> Hyperparameters:
    """Give the numbers on the whole real line that ``constrained`` maps to ``h``."""

    def inverse_softplus(v):
        return v + np.log(-np.expm1(-v))

    return Hyperparameters(
        inverse_softplus(h.length_scale),
        inverse_softplus(h.signal_variance),
        inverse_softplus(h.noise_variance - floor),
        h.mean,
    )


def constrained(raw: Hyperparameters, floor: Any) -> Hyperparameters:
    """Hyperparameters from free numbers: positive by softplus, the noise variance above ``floor``."""
    return Hyperparameters(
        jax.nn.softplus(raw.length_scale),
        jax.nn.softplus(raw.signal_variance),
        floor + jax.nn.softplus(raw.noise_variance),
        raw.mean,
    )


def kernel(h: Hyperparameters, a: Any, b: Any) -> jax.Array:
    """Covariances s exp(-|(a - b) / l|^2 / 2) of the function at rows a (n, p) and b (m, p), (n, m)."""
    a, b = a / h.length_scale[None, :], b / h.length_scale[None, :]
    squared = jnp.sum(a * a, axis=1)[:, None] + jnp.sum(b * b, axis=1)[None, :] - 2.0 * (a @ b.T)
    return jnp.asarray(h.signal_variance * jnp.exp(-0.5 * jnp.maximum(squared, 0.0)))


def factor(covariance: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Lower Cholesky factor of a matrix plus a jitter on its diagonal, and that jitter: 0 where it is not needed."""
    n = len(covariance)
    scale = jnp.trace(covariance) / n

    def attempt(jitter):
        return jnp.linalg.cholesky(covariance + jitter * scale * jnp.eye(n), symmetrize_input=False)

    def fails(carry):
        jitter, lower = carry
        return ~jnp.all(jnp.isfinite(lower)) & (jitter < LAST_JITTER)

    def more(carry):
        jitter = jnp.where(carry[0] == 0.0, FIRST_JITTER, 10.0 * carry[0])
        return jitter, attempt(jitter)

    none = jnp.zeros_like(scale)
    jitter, lower = jax.lax.while_loop(fails, more, (none, attempt(none)))
    return lower, jitter * scale


@jax.custom_vjp
def _log_normal(covariance: jax.Array, residual: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Log density of N(0, covariance) at a residual but for its constant, and the jitter."""
    return _log_normal_forward(covariance, residual)[0]


def _log_normal_forward(covariance, residual):
    lower, jitter = factor(covariance)
    white = solve_triangular(lower, residual, lower=True)
    value = -0.5 * jnp.sum(white**2) - jnp.sum(jnp.log(jnp.diagonal(lower)))
    return (value, jitter), (lower, white)


def _log_normal_backward(kept, cotangent):
    lower, white = kept
    dual = solve_triangular(lower, white, lower=True, trans=1)
    inverse = solve_triangular(lower, jnp.eye(len(lower)), lower=True)
    slope = cotangent[0]
    return 0.5 * slope * (dual[:, None] * dual[None, :] - inverse.T @ inverse), -slope * dual


_log_normal.defvjp(_log_normal_forward, _log_normal_backward)


def _evidence(h: Hyperparameters, x: Any, weight: Any) -> tuple[jax.Array, jax.Array]:
    """Covariance of the outcomes, and the constant of their log density; rows of weight 0 are padding, and N(0, 1)."""
    real = weight > 0
    w = jnp.where(real, weight, 1.0)
    noise = jnp.where(real, h.noise_variance / w, 1.0)
    covariance = jnp.where(real[:, None] & real[None, :], kernel(h, x, x), 0.0) + jnp.diag(noise)
    # w normal densities of one outcome are one with its noise variance divided by w, times this constant
    repeated = jnp.where(real, (w - 1.0) * jnp.log(2.0 * jnp.pi * h.noise_variance) + jnp.log(w), 0.0)
    return covariance, -0.5 * (jnp.sum(real) * jnp.log(2.0 * jnp.pi) + jnp.sum(repeated))


def log_marginal_likelihood(h: Hyperparameters, x: Any, y: Any, weight: Any) -> tuple[jax.Array, jax.Array]:
    """Log density of outcomes (n,) of rows (n, p) that stand for ``weight`` (n,) observations each, and the jitter."""
    covariance, constant = _evidence(h, x, weight)
    value, jitter = _log_normal(covariance, jnp.where(weight > 0, y - h.mean, 0.0))
    return value + constant, jitter


class Posterior(NamedTuple):
    """A Gaussian process given its training rows.

    Attributes
    ----------
    factor
        Lower Cholesky factor of the covariance of the outcomes (n, n).
    dual
        That covariance's inverse times the outcomes less the mean (n,).
    log_marginal_likelihood, jitter
        As ``log_marginal_likelihood`` gives them.
    """

    factor: AnyArray
    dual: AnyArray
    log_marginal_likelihood: AnyArray
    jitter: AnyArray


@jax.jit
def condition(h: Hyperparameters, x: Any, y: Any, weight: Any) -> Posterior:
    """Condition a Gaussian process on rows; those of weight 0 are padding."""
    covariance, constant = _evidence(h, x, weight)
    lower, jitter = factor(covariance)
    white = solve_triangular(lower, jnp.where(weight > 0, y - h.mean, 0.0), lower=True)
    value = constant - 0.5 * jnp.sum(white**2) - jnp.sum(jnp.log(jnp.diagonal(lower)))
    return Posterior(lower, solve_triangular(lower, white, lower=True, trans=1), value, jitter)


@jax.jit
def moments(h: Hyperparameters, x: Any, real: Any, lower: Any, dual: Any, new: Any) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of the function at new rows (m, p)."""
    covariance = jnp.where(real[:, None], kernel(h, x, new), 0.0)
    white = solve_triangular(lower, covariance, lower=True)
    variance = h.signal_variance - jnp.sum(white**2, axis=0)
    return h.mean + dual @ covariance, jnp.maximum(variance, 0.0)
