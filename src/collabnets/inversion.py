"""Quantiles from a CDF, and a CDF from quantiles: one monotone spline a row serves both directions.

A network g(z, x) gives the logit of P(Y < z | x) wherever it is asked, but it need not increase in z, and its inverse
has no formula. Here each row of x gets knots z_1 < ... < z_K, bracketing every level, with the logit l_k = g(z_k, x)
and its exact slope d_k = dg/dz. Between two knots the logit is the monotone rational quadratic with these values and
slopes [1]_, so the CDF, its inverse and its density are closed forms of *one* function, and

* the CDF increases strictly: where g itself does not, the knots are lifted to the middle of the two monotone
  envelopes of g (``make_monotone``), and the largest change is reported;
* the CDF agrees with g where g increases, within ``TOLERANCE``: knots go where the probability is and a row gets a
  further round of knots until the spline of one round predicts the next, five at most (``adaptive_knots``);
* outside the searched range the tails are logistic: the logit goes on linearly, with the average slope between the
  median and the edge, or that of the edge itself if it is steeper.

References
----------
.. [1] J. A. Gregory and R. Delbourgo, "Piecewise rational quadratic interpolation to monotonic data",
   IMA Journal of Numerical Analysis 2, 1982.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, log_expit, spence

# Largest difference in probability allowed between a spline and the g it stands for, where g increases.
TOLERANCE = 2e-5
N_KNOTS = 128
MAX_ROUNDS = 5
# The spline of the first round is at least this much closer to g than the coarse one it started from.
GAIN = 10.0

Evaluate = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


class Knots(NamedTuple):
    """A monotone rational-quadratic spline of the logit of the CDF, one a row; float64.

    Attributes
    ----------
    z
        Knots (n, K), strictly increasing.
    logit
        Logit of the CDF at the knots (n, K), strictly increasing.
    slope
        Derivative of the logit at the knots (n, K), positive.
    tail
        Slope of the logit left of the first and right of the last knot (n, 2), positive.
    correction
        Largest change in probability that monotonicity asked for at any knot (n,); 0 where nothing was changed.
    """

    z: np.ndarray
    logit: np.ndarray
    slope: np.ndarray
    tail: np.ndarray
    correction: np.ndarray

    def take(self, index: np.ndarray | slice) -> Knots:
        """Give the splines of some rows."""
        return Knots(*(a[index] for a in self))


# -------------------------------------------------------------------- the spline


def evaluate_logit(knots: Knots, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logit of the CDF and its derivative at points z (n, T)."""
    cell = _locate(knots.z, z)
    z0, z1, l0, l1, d0, d1 = _cell(knots, cell)
    inside = (cell > 0) & (cell < knots.z.shape[1])
    h = z1 - z0
    theta = np.clip(np.where(inside, (z - z0) / h, 0.0), 0.0, 1.0)
    logit, slope = _rational_quadratic(theta, h, l0, l1, d0, d1)
    with np.errstate(invalid="ignore"):
        left, right = cell == 0, cell == knots.z.shape[1]
        s_left, s_right = knots.tail[:, :1], knots.tail[:, 1:]
        logit = np.where(left, knots.logit[:, :1] + s_left * (z - knots.z[:, :1]), logit)
        logit = np.where(right, knots.logit[:, -1:] + s_right * (z - knots.z[:, -1:]), logit)
    slope = np.where(left, s_left, np.where(right, s_right, slope))
    return logit, slope


def invert_logit(knots: Knots, logit: np.ndarray) -> np.ndarray:
    """The z at which the logit of the CDF takes given values (n, T): the cell brackets it, a quadratic solves it."""
    cell = _locate(knots.logit, logit)
    z0, z1, l0, l1, d0, d1 = _cell(knots, cell)
    h = z1 - z0
    s = (l1 - l0) / h
    with np.errstate(invalid="ignore"):
        eta = np.clip(logit - l0, 0.0, l1 - l0)
        bend = d0 + d1 - 2.0 * s
        a = (l1 - l0) * (s - d0) + eta * bend
        b = (l1 - l0) * d0 - eta * bend
        c = -s * eta
        theta = -2.0 * c / (b + np.sqrt(np.maximum(b * b - 4.0 * a * c, 0.0)))
        z = z0 + h * np.clip(theta, 0.0, 1.0)
        left, right = cell == 0, cell == knots.z.shape[1]
        z = np.where(left, knots.z[:, :1] + (logit - knots.logit[:, :1]) / knots.tail[:, :1], z)
        return np.where(right, knots.z[:, -1:] + (logit - knots.logit[:, -1:]) / knots.tail[:, 1:], z)


def _rational_quadratic(theta, h, l0, l1, d0, d1):
    s = (l1 - l0) / h
    t = theta * (1.0 - theta)
    below = s + (d0 + d1 - 2.0 * s) * t
    value = l0 + (l1 - l0) * (s * theta**2 + d0 * t) / below
    slope = s**2 * (d1 * theta**2 + 2.0 * s * t + d0 * (1.0 - theta) ** 2) / below**2
    return value, slope


def _locate(knots: np.ndarray, t: np.ndarray) -> np.ndarray:
    """How many knots of its row are <= t: one binary search over all rows at once."""
    n, k = knots.shape
    first, span = knots[:, :1], knots[:, -1:] - knots[:, :1]
    offset = 2.0 * np.arange(n)[:, None]
    rail = (knots - first) / span + offset
    at = np.clip((t - first) / span, -0.5, 1.5) + offset
    count = np.searchsorted(rail.ravel(), at.ravel(), side="right").reshape(at.shape)
    return count - k * np.arange(n)[:, None]


def _cell(knots: Knots, cell: np.ndarray) -> tuple[np.ndarray, ...]:
    n, k = knots.z.shape
    left = np.clip(cell, 1, k - 1) - 1 + k * np.arange(n)[:, None]
    z, logit, slope = knots.z.ravel(), knots.logit.ravel(), knots.slope.ravel()
    return z[left], z[left + 1], logit[left], logit[left + 1], slope[left], slope[left + 1]


# -------------------------------------------------------------------- making one


def make_monotone(z: np.ndarray, logit: np.ndarray, slope: np.ndarray) -> Knots:
    """Knots through (z, logit) with the given slopes, changed only where the logit does not increase.

    The middle of the running maximum from the left and the running minimum from the right increases and equals the
    logit wherever all knots left of it are lower and all right of it higher. Its level stretches are tilted to half
    the slope between their neighbours, so that the CDF has an inverse everywhere.
    """
    middle = (np.maximum.accumulate(logit, 1) + np.minimum.accumulate(logit[:, ::-1], 1)[:, ::-1]) / 2.0
    level = _tilt(z, middle)
    secant = np.diff(level, axis=1) / np.diff(z, axis=1)
    before = np.concatenate([secant[:, :1], secant], axis=1)
    after = np.concatenate([secant, secant[:, -1:]], axis=1)
    smooth = 2.0 * before * after / (before + after)
    steep = np.clip(slope, 1e-2 * np.minimum(before, after), 3.0 * np.maximum(before, after))
    slope = np.where(level == logit, steep, smooth)
    centre = np.abs(level).argmin(1)[:, None]
    z_mid, l_mid = np.take_along_axis(z, centre, 1), np.take_along_axis(level, centre, 1)
    ends_z, ends_l, ends_d = z[:, [0, -1]], level[:, [0, -1]], slope[:, [0, -1]]
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_slope = np.where(ends_z == z_mid, ends_d, (ends_l - l_mid) / (ends_z - z_mid))
    tail = np.maximum(mean_slope, ends_d)
    return Knots(z, level, slope, tail, np.abs(expit(level) - expit(logit)).max(1))


def _tilt(z: np.ndarray, level: np.ndarray) -> np.ndarray:
    """Give the flat stretches of a non-decreasing function half the slope between the points around them."""
    gap = np.maximum(np.spacing(np.abs(level).max(1, keepdims=True)) * 64.0, 1e-9)
    flat = np.diff(level, axis=1) <= gap
    if not flat.any():
        return level
    k = level.shape[1]
    out = level.copy()
    rows = flat.any(1)
    z, level, flat = z[rows], level[rows], flat[rows]
    never = np.zeros((len(z), 1), bool)
    run = np.concatenate([flat, never], 1) | np.concatenate([never, flat], 1)
    # one more point beyond each edge, a little lower and higher, bounds the stretches that touch it
    step = np.diff(z, axis=1).mean(1, keepdims=True)
    zz = np.concatenate([z[:, :1] - step, z, z[:, -1:] + step], 1)
    ll = np.concatenate([level[:, :1] - 0.1, level, level[:, -1:] + 0.1], 1)
    index = np.broadcast_to(np.arange(k), level.shape)
    starts = np.concatenate([~never, ~flat], 1)  # a stretch starts where the step before it is not flat
    first = np.maximum.accumulate(np.where(starts, index, 0), 1)
    ends = np.concatenate([~flat, ~never], 1)
    last = np.minimum.accumulate(np.where(ends, index, k - 1)[:, ::-1], 1)[:, ::-1]
    row = np.arange(len(z))[:, None]
    z0, l0, z1, l1 = zz[row, first], ll[row, first], zz[row, last + 2], ll[row, last + 2]
    line = l0 + (l1 - l0) * (z - z0) / (z1 - z0)
    anchor = level[row, first]
    out[rows] = np.where(run, (anchor + line) / 2.0, level)
    return out


def coarse_points(low: float, high: float, likely: np.ndarray) -> np.ndarray:
    """Increasing points from low to high to start a search with: evenly spaced ones and likely places together."""
    even = np.linspace(low, high, 17)
    gap = 1e-3 * (high - low) / (len(even) + len(likely))
    points = np.unique(np.concatenate([even, likely[(likely > low + gap) & (likely < high - gap)]]))
    return points[np.diff(points, prepend=-np.inf) > gap].astype(np.float32).astype(float)


def adaptive_knots(evaluate: Evaluate, start: np.ndarray, n: int) -> Knots:
    """Splines of n rows of a function, with knots where the probability is, to ``TOLERANCE`` or for ``MAX_ROUNDS``.

    Parameters
    ----------
    evaluate
        ``evaluate(rows, z)`` gives logit and slope, both (len(rows), K), of the rows ``rows`` at points z.
    start
        Increasing points (K_0,), or (n, K_0) with their own for each row, that cover the range to search.
    n
        How many rows there are.
    """
    every = np.arange(n)
    z = np.broadcast_to(start, (n, start.shape[-1]))
    knots = make_monotone(z, *evaluate(every, z))
    open_rows, out, local = every, None, None
    for _ in range(MAX_ROUNDS):
        z = place(knots, N_KNOTS, local)
        raw, slope = evaluate(open_rows, z)
        finer = make_monotone(z, raw, slope)
        seen = evaluate_logit(knots, z)[0]
        local = np.abs(expit(seen) - expit(finer.logit))
        error = local.max(1)
        if out is None:
            out, limit = finer, GAIN * TOLERANCE
        else:
            for whole, part in zip(out, finer, strict=True):
                whole[open_rows] = part
            limit = TOLERANCE
        rough = error > limit
        if not rough.any():
            break
        open_rows, knots, local = open_rows[rough], finer.take(rough), local[rough]
    assert out is not None
    return out


def place(knots: Knots, count: int, error: np.ndarray | None = None) -> np.ndarray:
    """Points (n, count) over the range of the knots, dense where probability and logit change; float32 values.

    With the error found at each knot (n, K), half of them go where that was large: it falls with the fourth power of
    the width of a cell.
    """
    p = expit(knots.logit)
    clipped = np.clip(knots.logit, -9.0, 9.0)
    parts = [(knots.z, 0.2), (p, 0.4), (clipped, 0.4)]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = sum(w * np.nan_to_num(np.diff(a, axis=1) / (a[:, -1:] - a[:, :1])) for a, w in parts)
    # let neighbouring cells share, for the coarse knots say only roughly where the probability is
    share[:, 1:-1] = (share[:, :-2] + 2.0 * share[:, 1:-1] + share[:, 2:]) / 4.0
    if error is not None:
        need = np.maximum(np.maximum(error[:, :-1], error[:, 1:]), 1e-12) ** 0.25
        share = share / share.sum(1, keepdims=True) + need / need.sum(1, keepdims=True)
    total = np.concatenate([np.zeros((len(p), 1)), np.cumsum(share, 1)], 1)
    at = np.linspace(0.0, 1.0, count) * total[:, -1:]
    cell = np.clip(_locate(total, at), 1, total.shape[1] - 1) - 1
    row = np.arange(len(p))[:, None]
    t0, t1 = total[row, cell], total[row, cell + 1]
    z0, z1 = knots.z[row, cell], knots.z[row, cell + 1]
    z = z0 + (z1 - z0) * np.clip((at - t0) / np.maximum(t1 - t0, 1e-300), 0.0, 1.0)
    z[:, 0], z[:, -1] = knots.z[:, 0], knots.z[:, -1]
    return z.astype(np.float32).astype(float)


def knots_from_quantiles(q: np.ndarray, z: np.ndarray, slope: np.ndarray) -> Knots:
    """Splines through quantiles z (n, K) at levels q (K,) with slopes dz/dq (n, K), made monotone where they cross."""
    u = np.broadcast_to(np.log(q) - np.log1p(-q), z.shape)
    # the same tool with the roles changed: z as an increasing function of the logit u
    inverse = make_monotone(u, z, slope * q * (1.0 - q))
    knots = Knots(inverse.z, u, 1.0 / inverse.slope, inverse.tail, inverse.correction)
    knots = knots._replace(z=inverse.logit)
    centre = np.abs(u[0]).argmin()
    ends = [0, -1]
    mean_slope = (u[:, ends] - u[:, [centre]]) / (knots.z[:, ends] - knots.z[:, [centre]])
    knots = knots._replace(tail=np.maximum(mean_slope, knots.slope[:, ends]))
    change = np.abs(expit(evaluate_logit(knots, z)[0]) - q).max(1)
    moved = (knots.z != z).any(1)
    return knots._replace(correction=np.where(moved, change, 0.0))


def average(parts: list[Knots]) -> Knots:
    """The spline of the average of several CDFs, on knots of its own."""
    first = np.min([part.z[:, 0] for part in parts], axis=0)
    last = np.max([part.z[:, -1] for part in parts], axis=0)

    def mixture(rows: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pairs = [evaluate_logit(part.take(rows), z) for part in parts]
        return average_logits(np.stack([a for a, _ in pairs]), np.stack([b for _, b in pairs]))

    knots = adaptive_knots(mixture, np.linspace(first, last, 2 * N_KNOTS, axis=1), len(first))
    return knots._replace(correction=np.max([part.correction for part in parts], axis=0))


def average_logits(logits: Any, slopes: Any, xp: Any = np) -> tuple[Any, Any]:
    """Logit, and its slope, of the mean over the first axis of the CDFs with these logits and slopes.

    ``xp`` is the array library of the arguments, NumPy or ``jax.numpy``.
    """
    if len(logits) == 1:
        return logits[0], slopes[0]
    below, above = -xp.logaddexp(0.0, -logits), -xp.logaddexp(0.0, logits)
    log_p, log_not_p = (_log_mean_exp(a, xp) for a in (below, above))
    weight = xp.exp(below + above - log_p - log_not_p) / len(logits)
    return (log_p - log_not_p)[0], (weight * slopes).sum(0)


def _log_mean_exp(a, xp: Any):
    """Over the first axis, which stays with length 1."""
    top = a.max(0, keepdims=True)
    return top + xp.log(xp.exp(a - top).mean(0, keepdims=True))


# -------------------------------------------------------------------- moments


def moments(knots: Knots) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of each row: Gauss-Legendre inside the cells, closed form in the logistic tails.

    With a knot m near the median, E[Y - m] is the integral of 1 - F right of m less that of F left of it, and
    E[(Y - m)^2] that of 2 |z - m| times the same; no term cancels.
    """
    node, weight = np.polynomial.legendre.leggauss(4)
    theta, weight = (node + 1.0) / 2.0, weight / 2.0
    z, logit, slope = (a[:, :, None] for a in (knots.z, knots.logit, knots.slope))
    h = np.diff(z, axis=1)
    inner, _ = _rational_quadratic(theta, h, logit[:, :-1], logit[:, 1:], slope[:, :-1], slope[:, 1:])
    j = np.abs(knots.logit).argmin(1)[:, None]
    m = np.take_along_axis(knots.z, j, 1)
    right = np.arange(knots.z.shape[1] - 1)[None, :] >= j
    mass = expit(np.where(right[:, :, None], -inner, inner)) * (h * weight)
    distance = np.abs(z[:, :-1] + theta * h - m[:, :, None])
    sign = np.where(right, 1.0, -1.0)
    first = (sign * mass.sum(2)).sum(1)
    second = 2.0 * (mass * distance).sum((1, 2))
    for side, edge in ((0, 0), (1, -1)):
        s, out = knots.tail[:, side], (knots.logit[:, edge] if side == 0 else -knots.logit[:, edge])
        area = -log_expit(-out) / s
        first += area if side else -area
        second += 2.0 * (np.abs(knots.z[:, edge] - m[:, 0]) * area - spence(1.0 + np.exp(out)) / s**2)
    return m[:, 0] + first, np.maximum(second - first**2, 0.0)
