"""Where training looks: the levels p(q) that f is asked for, and the thresholds p(Z) that g is asked for.

A query distribution is a quantile table, so that any distribution can be drawn from, stratified, inside a compiled
loop: u uniform on (0, 1), or one u in each of M equal strata, goes through the table.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike
from scipy import stats
from scipy.special import logit

TABLE_SIZE = 1025
# Levels of a table, denser towards 0 and 1 where quantile functions are steep.
LEVELS = np.sin(np.linspace(0.0, np.pi / 2.0, TABLE_SIZE)) ** 2
EDGE = 1e-6


class QuantileTable(NamedTuple):
    """Quantile functions as tables: row r gives the quantile ``values[r, j]`` at level ``levels[j]``.

    Attributes
    ----------
    levels
        Increasing levels from 0 to 1, shape (L,).
    values
        Quantiles, shape (rows, L).
    """

    levels: Float[Array, " L"]
    values: Float[Array, "rows L"]

    def __call__(self, u: Float[Array, "*n"], row: Int[Array, "*n"]) -> Float[Array, "*n"]:
        """Quantiles at levels u of the tables' rows, by linear interpolation."""
        n_levels = self.levels.shape[0]
        right = jnp.clip(jnp.searchsorted(self.levels, u, side="right"), 1, n_levels - 1)
        a, b = self.levels[right - 1], self.levels[right]
        return (self.values[row, right - 1] * (b - u) + self.values[row, right] * (u - a)) / (b - a)


def stratified(u: Float[Array, "*n M"]) -> Float[Array, "*n M"]:
    """Turn M independent uniform draws into one in each of M equal strata of (0, 1)."""
    return (u + jnp.arange(u.shape[-1], dtype=u.dtype).reshape((1,) * (u.ndim - 1) + (-1,))) / u.shape[-1]


# -------------------------------------------------------------------- p(q)

Q_DISTRIBUTIONS = ("uniform", "beta(0.5, 0.5)", "beta(a, b)", "an object with ppf(u)")


def level_quantiles(spec: object) -> np.ndarray:
    """Quantiles at ``LEVELS`` of p(q), kept inside (0, 1).

    ``"uniform"``; ``("beta", a, b)``, with (.5, .5) for the tails as Section 4.2 suggests; or any object with a
    ``ppf`` on (0, 1), such as a frozen distribution of SciPy.
    """
    if isinstance(spec, str) and spec == "uniform":
        q = LEVELS
    elif isinstance(spec, tuple) and len(spec) == 3 and spec[0] == "beta":
        if not (spec[1] > 0 and spec[2] > 0):
            raise ValueError(f"the two parameters of a Beta distribution are positive, not {spec[1:]}.")
        q = stats.beta(spec[1], spec[2]).ppf(LEVELS)
    elif hasattr(spec, "ppf"):
        q = np.asarray(spec.ppf(LEVELS), float)
        if q.shape != LEVELS.shape or not (np.all(np.diff(q) >= 0) and q[0] >= 0 and q[-1] <= 1):
            raise ValueError("the ppf of q_distribution must increase from >= 0 to <= 1: it draws levels.")
    else:
        raise ValueError(f"q_distribution is 'uniform', ('beta', a, b) or an object with a ppf method, not {spec!r}.")
    return np.clip(q, EDGE, 1.0 - EDGE)


def logit_moments(spec: object) -> tuple[float, float]:
    """Mean and standard deviation of logit(q) for q ~ p(q): the targets of moment matching (0, 3.29^.5 if uniform)."""
    u = (np.arange(200_000) + 0.5) / 200_000
    logits = logit(np.interp(u, LEVELS, level_quantiles(spec)))
    if isinstance(spec, str):
        return 0.0, float(np.pi / np.sqrt(3.0))
    return float(logits.mean()), float(logits.std())


# -------------------------------------------------------------------- p(Z)

Z_DISTRIBUTIONS = ("uniform", "marginal", "an object with ppf(u)", "a function of (q, X)")


def threshold_quantiles(
    spec: object, y: np.ndarray, X: object, *, margin: float, weight: np.ndarray | None = None
) -> np.ndarray:
    """Quantiles (1 or n, L) of p(Z), in the units of y, at ``LEVELS``.

    ``"uniform"`` on [min(y) - K, max(y) + K] with K = margin * (max(y) - min(y)); ``"marginal"``, the empirical
    distribution of y; an object with a ``ppf``; or a function ``(q, X) -> (n, len(q))``, one distribution a row of X,
    which is a fixed f: with a uniform distribution it is the paper's U-g, with the true quantiles its T-g.
    """
    if isinstance(spec, str) and spec in ("uniform", "marginal"):
        if spec == "uniform":
            pad = margin * (y.max() - y.min())
            values = y.min() - pad + LEVELS * (y.max() - y.min() + 2.0 * pad)
        else:
            values = empirical_quantiles(y, LEVELS, weight)
    elif hasattr(spec, "ppf"):
        values = np.asarray(spec.ppf(np.clip(LEVELS, EDGE, 1.0 - EDGE)), float)
    elif callable(spec):
        values = np.asarray(spec(np.clip(LEVELS, EDGE, 1.0 - EDGE), X), float)
        if values.shape != (len(y), len(LEVELS)):
            raise ValueError(
                f"a z_distribution given as a function (q, X) returns one row of thresholds a row of X: "
                f"shape {(len(y), len(LEVELS))} was expected, {values.shape} came."
            )
    else:
        raise ValueError(
            "z_distribution is 'uniform', 'marginal', an object with a ppf method or a function of (q, X), "
            f"not {spec!r}."
        )
    if not np.isfinite(values).all():
        raise ValueError("z_distribution gave thresholds that are not finite; every quantile must be a number.")
    return np.atleast_2d(values)


def empirical_quantiles(y: np.ndarray, levels: ArrayLike, weight: np.ndarray | None = None) -> np.ndarray:
    """Quantiles of the values y with their weights, linear between the mid-points of the steps."""
    order = np.argsort(y, kind="stable")
    w = np.ones(len(y)) if weight is None else weight
    middle = np.cumsum(w[order]) - 0.5 * w[order]
    return np.interp(np.asarray(levels), middle / w.sum(), y[order])
