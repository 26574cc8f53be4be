"""The continuous ranked probability score: in closed form, by adaptive quadrature, or from quantiles."""

from __future__ import annotations

import numpy as np
import scipy.stats
from numpy.typing import ArrayLike
from scipy import special

from collabnets.distribution import PredictiveDistribution, ScipyDistribution
from collabnets.metrics.checks import checked, outcomes, row_slices, several_levels, weighted_mean


def crps(y_true: ArrayLike, distribution: PredictiveDistribution, *, sample_weight: ArrayLike | None = None) -> float:
    """Mean continuous ranked probability score, in the unit of the outcome; lower is better."""
    y, w = checked(y_true, distribution, sample_weight)
    return weighted_mean(crps_values(y, distribution), w)


def crps_values(y_true: ArrayLike, distribution: PredictiveDistribution) -> np.ndarray:
    """The integral of (F(z) - 1[y <= z])^2 dz, one a row.

    In closed form for Gaussian distributions; of any other the integral is refined, row by row, until its own
    estimate of the error is below 1e-7 of it.
    """
    y, _ = checked(y_true, distribution, None)
    if isinstance(distribution, ScipyDistribution) and distribution.family is scipy.stats.norm:
        return _crps_gaussian(y, distribution)
    out = np.empty(len(y))
    for rows in row_slices(len(y), len(_PANEL_LEVELS) * len(_NODES)):
        out[rows] = _crps_integral(y[rows], distribution[rows])
    return out


def crps_from_quantiles(y_true: ArrayLike, quantiles: ArrayLike, levels: ArrayLike) -> np.ndarray:
    """CRPS, one a row, of distributions whose quantile functions join the given quantiles by straight lines.

    Below the lowest and above the highest level the quantile function is taken as constant. Exact for that
    distribution, hence an approximation to one of which only these quantiles are known.

    Parameters
    ----------
    y_true
        Outcomes (n,).
    quantiles
        Predicted quantiles (n, L), not decreasing along a row.
    levels
        Their levels (L,), strictly increasing.
    """
    y = outcomes(y_true)
    u = several_levels(levels)
    quantile = np.asarray(quantiles, float)
    if quantile.shape != (len(y), len(u)):
        raise ValueError(f"quantiles has shape ({len(y)}, {len(u)}), rows by levels, not {quantile.shape}.")
    if np.any(np.diff(u) <= 0):
        raise ValueError("levels are strictly increasing; sort them and the columns of quantiles with them.")
    if not np.isfinite(quantile).all() or np.any(np.diff(quantile, axis=1) < 0):
        raise ValueError("quantiles are finite and do not decrease along a row; np.sort(quantiles, axis=1) does.")
    u = np.concatenate([[0.0], u, [1.0]])
    out = np.zeros(len(y))
    for rows in row_slices(len(y), 4 * len(u)):
        Q = np.hstack([quantile[rows, :1], quantile[rows], quantile[rows, -1:]])
        over = y[rows, None] - Q
        rise = np.diff(Q, axis=1)
        # where in its segment the quantile function passes the outcome, 0 or 1 if it does not
        passed = (over[:, :-1] >= 0).astype(float)
        np.divide(over[:, :-1], rise, out=passed, where=rise > 0)
        passed = np.clip(passed, 0.0, 1.0)
        at = u[:-1] + passed * np.diff(u)
        over_at = over[:, :-1] - passed * rise
        # 2 u (y - Q) up to there and 2 (1 - u) (Q - y) from there are of degree two: Simpson's rule is exact
        value = _simpson(u[:-1], at, over[:, :-1], over_at) + _simpson(1.0 - u[1:], 1.0 - at, -over[:, 1:], -over_at)
        out[rows] = value.sum(axis=1)
    return out


def _simpson(a: np.ndarray, b: np.ndarray, at_a: np.ndarray, at_b: np.ndarray) -> np.ndarray:
    """The integral of 2 u L(u) du over [a, b], L linear."""
    return (b - a) / 3.0 * (a * at_a + (a + b) * (at_a + at_b) + b * at_b)


def _crps_gaussian(y: np.ndarray, distribution: ScipyDistribution) -> np.ndarray:
    scale = distribution.parameters.get("scale", np.ones(1))
    z = (y - distribution.parameters.get("loc", np.zeros(1))) / scale
    density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    return scale * (z * special.erf(z / np.sqrt(2)) + 2 * density - 1 / np.sqrt(np.pi))


# Panels between these quantiles follow any scale, skewness and tail; beyond them at most 1e-10 of the
# probability is left, which adds a part of that order to the integral of any distribution with a mean.
_TAIL = np.array([1e-10, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 0.05, 0.2])
_PANEL_LEVELS = np.concatenate([_TAIL, [0.5], 1.0 - _TAIL[::-1]])

# Kronrod's 15 points hold Gauss's 7; the difference of the two rules tells the error (QUADPACK's qk15).
# Neither sees a jump between its last point and the end of the panel: so the ends are there too, weight 0.
_KRONROD = np.array(
    [
        [0.991455371120812639206854697526329, 0.022935322010529224963732008058970],
        [0.949107912342758524526189684047851, 0.063092092629978553290700663189204],
        [0.864864423359769072789712788640926, 0.104790010322250183839876322541518],
        [0.741531185599394439863864773280788, 0.140653259715525918745189590510238],
        [0.586087235467691130294144691693013, 0.169004726639267902826583426598550],
        [0.405845151377397166906606412076961, 0.190350578064785409913256402421014],
        [0.207784955007898467600689403773245, 0.204432940075298892414161999234649],
    ]
)
_NODES = np.concatenate([[-1.0], -_KRONROD[:, 0], [0.0], _KRONROD[::-1, 0], [1.0]])
_FINE = np.concatenate([[0.0], _KRONROD[:, 1], [0.209482141084727828012999174891714], _KRONROD[::-1, 1], [0.0]])
_COARSE = np.zeros(17)
_COARSE[2:-1:2] = np.polynomial.legendre.leggauss(7)[1]

_CRPS_TOLERANCE = 1e-7
_MOST_ROUNDS = 40
_MOST_PANELS = 4000  # a row; a step function with many steps stops here, at about that many digits


def _crps_integral(y: np.ndarray, distribution: PredictiveDistribution) -> np.ndarray:
    """CRPS by adaptive quadrature of the cdf, all rows at once."""
    n = len(y)
    ends = np.sort(np.column_stack([distribution.icdf(_PANEL_LEVELS), y]), axis=1)
    if not np.isfinite(ends).all():
        raise ValueError("the CRPS needs finite quantiles at the levels 1e-10 and 1 - 1e-10.")
    row = np.repeat(np.arange(n), ends.shape[1] - 1)
    low, high = ends[:, :-1].ravel(), ends[:, 1:].ravel()
    value, error = _panels(low, high, row, y, distribution.cdf(_at(low, high).reshape(n, -1)).reshape(len(row), -1))
    done, left_over, used = np.zeros(n), np.zeros(n), np.full(n, ends.shape[1] - 1)
    for _ in range(_MOST_ROUNDS):
        total = done + np.bincount(row, value, n)
        doubt = left_over + np.bincount(row, error, n)
        tolerance = _CRPS_TOLERANCE * total
        # panels that a converged row still has, and those too good to matter, are settled
        again = ((doubt > tolerance) & (used < _MOST_PANELS))[row] & (error > 0.02 * tolerance[row])
        done += np.bincount(row[~again], value[~again], n)
        left_over += np.bincount(row[~again], error[~again], n)
        if not again.any():
            return done
        row, low, high = row[again], low[again], high[again]
        middle = 0.5 * (low + high)
        row = np.concatenate([row, row])
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
        used += np.bincount(row, minlength=n)
        value, error = np.empty(len(row)), np.empty(len(row))
        for part in row_slices(len(row), 4 * len(_NODES)):
            cdf = distribution[row[part]].cdf(_at(low[part], high[part]))
            value[part], error[part] = _panels(low[part], high[part], row[part], y, cdf)
    return done + np.bincount(row, value, n)


def _at(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return low[:, None] + 0.5 * (high - low)[:, None] * (1.0 + _NODES)


def _panels(
    low: np.ndarray, high: np.ndarray, row: np.ndarray, y: np.ndarray, cdf: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Integral and error estimate of (F(z) - 1[y <= z])^2 over panels that lie on one side of y."""
    square = (cdf - (low >= y[row])[:, None]) ** 2
    half = 0.5 * (high - low)
    value = half * (square @ _FINE)
    rough = half * np.abs(square @ (_FINE - _COARSE))
    spread = half * (np.abs(square - (square @ _FINE)[:, None] / 2.0) @ _FINE)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where(spread > 0, spread * np.minimum(1.0, (200.0 * rough / spread) ** 1.5), rough)
    at_ends = np.abs(square[:, [1, -1]] - square[:, [0, -2]])
    jump = at_ends > 0.1 * np.abs(square[:, :1] - square[:, -1:])
    return value, error + half * (1.0 + _NODES[1]) * (at_ends * jump).sum(axis=1)
