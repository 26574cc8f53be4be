"""How good a predictive distribution is: the metrics of the paper's Section 5.1 and those the field expects.

Every metric takes ``(y_true, distribution)`` and optional row weights, for any `PredictiveDistribution`. Four
of them are means of one value a row, which a function named ``..._values`` gives. A metric needs only some
verbs of a distribution (calibration and widths its quantiles, gof and PIT its cdf); one that a distribution
lacks raises that distribution's own error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, overload

import numpy as np
import pandas as pd
import scipy.stats
from numpy.typing import ArrayLike
from scipy import special

from collabnets.distribution import BYTE_BUDGET, PredictiveDistribution, ScipyDistribution, check_levels

__all__ = [
    "PAPER_LEVELS",
    "CalibrationCurve",
    "PITHistogram",
    "SharpnessCurve",
    "by_group",
    "calibration_curve",
    "calibration_error",
    "calibration_scorer",
    "coverage",
    "crps",
    "crps_from_quantiles",
    "crps_scorer",
    "crps_values",
    "evaluate",
    "gof",
    "gof_edges",
    "gof_scorer",
    "interval_score",
    "interval_score_values",
    "interval_width",
    "log_score",
    "log_score_scorer",
    "log_score_values",
    "mae",
    "mae_scorer",
    "pinball",
    "pinball_values",
    "pit",
    "pit_histogram",
    "rmse",
    "sharpness_curve",
]

# The paper's eight nominal levels of two-sided intervals (Section 5.1.1).
PAPER_LEVELS: tuple[float, ...] = tuple(float(q) for q in np.linspace(0.02, 0.98, 8))

Levels = Sequence[float] | np.ndarray


class SharpnessCurve(NamedTuple):
    """Empirical coverage against width; of two methods the sharper one has the lower curve.

    Attributes
    ----------
    nominal
        Nominal levels of the intervals.
    empirical
        Share of the outcomes inside them.
    width
        Median width of the intervals over the rows.
    """

    nominal: np.ndarray
    empirical: np.ndarray
    width: np.ndarray


class PITHistogram(NamedTuple):
    """Shares of the PIT values in equal bins of [0, 1]; flat when the distributions are calibrated.

    Attributes
    ----------
    edges
        Ends of the bins, one more than there are bins.
    share
        Share of the rows in each bin.
    expected
        The share each bin would have under calibration, one over the number of bins.
    """

    edges: np.ndarray
    share: np.ndarray
    expected: float


class CalibrationCurve(NamedTuple):
    """How often outcomes stay at or below the predicted quantiles; the diagonal is calibration.

    Attributes
    ----------
    nominal
        Quantile levels.
    observed
        Share of the outcomes at or below the predicted quantile.
    """

    nominal: np.ndarray
    observed: np.ndarray


# ------------------------------------------------------------------------------------ the paper's Section 5.1
def calibration_error(
    y_true: ArrayLike,
    distribution: PredictiveDistribution,
    *,
    levels: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """The paper's cal: mean over levels q of w_q |q - coverage of the central interval of nominal level q|.

    A fraction, 0.02 where the paper prints 2 %. An outcome on an end of its interval is not covered.

    Parameters
    ----------
    y_true, distribution
        Outcomes (n,) and their predicted distributions.
    levels
        Nominal levels of central (two-sided, equal-tailed) intervals; ``linspace(0.02, 0.98, 8)`` by default.
    weights
        One w_q >= 0 a level, 1 by default; as in the paper the sum is divided by the number of levels.
    sample_weight
        Weights of the rows (n,).
    """
    q = _levels(PAPER_LEVELS if levels is None else levels)
    w = np.ones(len(q)) if weights is None else np.asarray(weights, float)
    if w.shape != q.shape or not np.all(w >= 0):
        raise ValueError(f"weights has one number >= 0 for each of the {len(q)} levels, not {weights!r}.")
    inside = coverage(y_true, distribution, q, sample_weight=sample_weight)
    return float(np.mean(w * np.abs(q - inside)))


@overload
def coverage(
    y_true: ArrayLike,
    distribution: PredictiveDistribution,
    level: float = ...,
    *,
    sample_weight: ArrayLike | None = ...,
) -> float: ...
@overload
def coverage(
    y_true: ArrayLike,
    distribution: PredictiveDistribution,
    level: Levels,
    *,
    sample_weight: ArrayLike | None = ...,
) -> np.ndarray: ...
def coverage(
    y_true: ArrayLike,
    distribution: PredictiveDistribution,
    level: ArrayLike = 0.9,
    *,
    sample_weight: ArrayLike | None = None,
) -> float | np.ndarray:
    """Share of the outcomes strictly inside their central interval; several levels give one share each."""
    y, w = _checked(y_true, distribution, sample_weight)
    q = _levels(level)
    total = np.zeros(len(q))
    for rows, low, high in _intervals(distribution, q):
        here = y[rows, None]
        total += w[rows] @ ((low < here) & (here < high))
    return _like(level, total / w.sum())


def gof_edges(y_true: ArrayLike) -> np.ndarray:
    """The paper's nine inner bin edges: evenly from the 5 % to the 95 % quantile of the outcomes."""
    low, high = np.quantile(_outcomes(y_true), [0.05, 0.95])
    return np.linspace(low, high, 9)


def gof(
    y_true: ArrayLike,
    distribution: PredictiveDistribution,
    *,
    edges: ArrayLike | None = None,
    epsilon: float = 1e-10,
    sample_weight: ArrayLike | None = None,
) -> float:
    """The paper's goodness of fit: mean of log(P(the outcome's bin) + epsilon); higher is better.

    Bins are (-inf, a_1], (a_1, a_2], ..., (a_9, inf).

    Parameters
    ----------
    y_true, distribution
        Outcomes (n,) and their predicted distributions.
    edges
        Inner edges a, increasing; by default `gof_edges` of these outcomes, whatever their weights. Give them
        to compare values over different rows.
    epsilon
        Keeps the logarithm finite when a bin has no probability.
    sample_weight
        Weights of the rows (n,).
    """
    y, w = _checked(y_true, distribution, sample_weight)
    a = gof_edges(y) if edges is None else np.asarray(edges, float)
    if a.ndim != 1 or not len(a) or not np.isfinite(a).all() or np.any(np.diff(a) < 0):
        raise ValueError(f"edges is a vector of finite numbers in increasing order, not {edges!r}.")
    if not epsilon >= 0:
        raise ValueError(f"epsilon is a small number >= 0, not {epsilon}.")
    of = np.searchsorted(a, y, side="left")
    value = np.empty(len(y))
    for rows in _slices(len(y), len(a) + 2):
        part, index = distribution[rows], of[rows, None]
        below, above = part.cdf(a), part.ccdf(a)
        ends = np.zeros((len(index), 1)), np.ones((len(index), 1))
        cdf, ccdf = np.hstack([ends[0], below, ends[1]]), np.hstack([ends[1], above, ends[0]])
        left, right = (np.take_along_axis(cdf, index + k, 1) for k in (0, 1))
        ccdf_left, ccdf_right = (np.take_along_axis(ccdf, index + k, 1) for k in (0, 1))
        # of the two differences the one of smaller numbers keeps its digits
        value[rows] = np.where(left > 0.5, ccdf_left - ccdf_right, right - left)[:, 0]
    with np.errstate(divide="ignore"):
        return _mean(np.log(np.maximum(value, 0.0) + epsilon), w)


def mae(y_true: ArrayLike, distribution: PredictiveDistribution, *, sample_weight: ArrayLike | None = None) -> float:
    """Mean absolute error of the conditional median.

    The paper's synthetic tables compare with the true median: ``mae(data.truth.median(), distribution)``.
    """
    y, w = _checked(y_true, distribution, sample_weight)
    return _mean(np.abs(distribution.median() - y), w)


def sharpness_curve(
    y_true: ArrayLike,
    distribution: PredictiveDistribution,
    *,
    levels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> SharpnessCurve:
    """Empirical coverage and median width of central intervals, by default at the paper's eight levels."""
    q = _levels(PAPER_LEVELS if levels is None else levels)
    return SharpnessCurve(
        q,
        coverage(y_true, distribution, q, sample_weight=sample_weight),
        interval_width(y_true, distribution, q, sample_weight=sample_weight),
    )


# -------------------------------------------------------------------------------------------- what peers have
def rmse(y_true: ArrayLike, distribution: PredictiveDistribution, *, sample_weight: ArrayLike | None = None) -> float:
    """Root mean squared error of the conditional mean."""
    y, w = _checked(y_true, distribution, sample_weight)
    return float(np.sqrt(_mean((distribution.mean() - y) ** 2, w)))


@overload
def interval_width(
    y_true: ArrayLike,
    distribution: PredictiveDistribution,
    level: float = ...,
    *,
    sample_weight: ArrayLike | None = ...,
) -> float: ...
@overload
def interval_width(
    y_true: ArrayLike,
    distribution: PredictiveDistribution,
    level: Levels,
    *,
    sample_weight: ArrayLike | None = ...,
) -> np.ndarray: ...
def interval_width(
    y_true: ArrayLike,
    distribution: PredictiveDistribution,
    level: ArrayLike = 0.9,
    *,
    sample_weight: ArrayLike | None = None,
) -> float | np.ndarray:
    """Median over the rows of the width of the central interval; the outcomes are checked but not used."""
    _, w = _checked(y_true, distribution, sample_weight)
    q = _levels(level)
    width = np.empty((len(w), len(q)))
    for rows, low, high in _intervals(distribution, q):
        width[rows] = high - low
    return _like(level, np.array([_weighted_median(column, w) for column in width.T]))


@overload
def interval_score(
    y_true: ArrayLike,
    distribution: PredictiveDistribution,
    level: float = ...,
    *,
    sample_weight: ArrayLike | None = ...,
) -> float: ...
@overload
def interval_score(
    y_true: ArrayLike,
    distribution: PredictiveDistribution,
    level: Levels,
    *,
    sample_weight: ArrayLike | None = ...,
) -> np.ndarray: ...
def interval_score(
    y_true: ArrayLike,
    distribution: PredictiveDistribution,
    level: ArrayLike = 0.9,
    *,
    sample_weight: ArrayLike | None = None,
) -> float | np.ndarray:
    """Mean interval (Winkler) score of central intervals, one for each level; lower is better."""
    y, w = _checked(y_true, distribution, sample_weight)
    values = interval_score_values(y, distribution, _levels(level))
    return _like(level, w @ values / w.sum())


def interval_score_values(
    y_true: ArrayLike, distribution: PredictiveDistribution, level: ArrayLike = 0.9
) -> np.ndarray:
    """Width plus 2 / (1 - level) times how far outside the outcome is: (n,), or (n, L) for several levels."""
    y, _ = _checked(y_true, distribution, None)
    q = _levels(level)
    if np.any(q == 1):
        raise ValueError("the interval score divides by 1 - level; take levels below 1.")
    out = np.empty((len(y), len(q)))
    for rows, low, high in _intervals(distribution, q):
        here = y[rows, None]
        outside = np.maximum(low - here, 0.0) + np.maximum(here - high, 0.0)
        out[rows] = high - low + 2.0 / (1.0 - q) * outside
    return out if np.ndim(level) else out[:, 0]


@overload
def pinball(
    y_true: ArrayLike,
    distribution: PredictiveDistribution,
    levels: float = ...,
    *,
    sample_weight: ArrayLike | None = ...,
) -> float: ...
@overload
def pinball(
    y_true: ArrayLike,
    distribution: PredictiveDistribution,
    levels: Levels,
    *,
    sample_weight: ArrayLike | None = ...,
) -> np.ndarray: ...
def pinball(
    y_true: ArrayLike,
    distribution: PredictiveDistribution,
    levels: ArrayLike = 0.5,
    *,
    sample_weight: ArrayLike | None = None,
) -> float | np.ndarray:
    """Mean pinball (quantile) loss, one for each quantile level; lower is better."""
    y, w = _checked(y_true, distribution, sample_weight)
    values = pinball_values(y, distribution, _levels(levels))
    return _like(levels, w @ values / w.sum())


def pinball_values(y_true: ArrayLike, distribution: PredictiveDistribution, levels: ArrayLike = 0.5) -> np.ndarray:
    """(q - 1[y < Q(q)]) (y - Q(q)): (n,), or (n, L) for several levels q."""
    y, _ = _checked(y_true, distribution, None)
    q = _levels(levels)
    out = np.empty((len(y), len(q)))
    for rows in _slices(len(y), len(q)):
        over = y[rows, None] - distribution[rows].icdf(q)
        out[rows] = np.maximum(q * over, (q - 1.0) * over)
    return out if np.ndim(levels) else out[:, 0]


def log_score(
    y_true: ArrayLike, distribution: PredictiveDistribution, *, sample_weight: ArrayLike | None = None
) -> float:
    """Mean of minus the log density at the outcome (negative log likelihood); lower is better."""
    y, w = _checked(y_true, distribution, sample_weight)
    return _mean(log_score_values(y, distribution), w)


def log_score_values(y_true: ArrayLike, distribution: PredictiveDistribution) -> np.ndarray:
    """Minus the log density at the outcome, one a row."""
    y, _ = _checked(y_true, distribution, None)
    return -distribution.logpdf(y[:, None])[:, 0]


def pit(y_true: ArrayLike, distribution: PredictiveDistribution) -> np.ndarray:
    """Probability integral transform F(y | x), one a row; uniform under right, continuous distributions."""
    y, _ = _checked(y_true, distribution, None)
    return distribution.cdf(y[:, None])[:, 0]


def pit_histogram(
    y_true: ArrayLike,
    distribution: PredictiveDistribution,
    *,
    bins: int = 10,
    sample_weight: ArrayLike | None = None,
) -> PITHistogram:
    """Histogram of the PIT: a hump says too wide, a bowl too narrow, a slope biased."""
    y, w = _checked(y_true, distribution, sample_weight)
    if isinstance(bins, bool) or not isinstance(bins, int | np.integer) or bins < 1:
        raise ValueError(f"bins is the number of bins, a whole number of at least 1, not {bins!r}.")
    count, edges = np.histogram(pit(y, distribution), bins=int(bins), range=(0.0, 1.0), weights=w)
    return PITHistogram(edges, count / w.sum(), 1.0 / bins)


def calibration_curve(
    y_true: ArrayLike,
    distribution: PredictiveDistribution,
    *,
    levels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> CalibrationCurve:
    """Share of the outcomes at or below each predicted quantile, by default at 1 %, 2 %, ..., 99 %."""
    y, w = _checked(y_true, distribution, sample_weight)
    q = _levels(np.arange(1, 100) / 100 if levels is None else levels)
    total = np.zeros(len(q))
    for rows in _slices(len(y), len(q)):
        total += w[rows] @ (y[rows, None] <= distribution[rows].icdf(q))
    return CalibrationCurve(q, total / w.sum())


# ------------------------------------------------------------------------------------------------------- CRPS
def crps(y_true: ArrayLike, distribution: PredictiveDistribution, *, sample_weight: ArrayLike | None = None) -> float:
    """Mean continuous ranked probability score, in the unit of the outcome; lower is better."""
    y, w = _checked(y_true, distribution, sample_weight)
    return _mean(crps_values(y, distribution), w)


def crps_values(y_true: ArrayLike, distribution: PredictiveDistribution) -> np.ndarray:
    """The integral of (F(z) - 1[y <= z])^2 dz, one a row.

    In closed form for Gaussian distributions; of any other the integral is refined, row by row, until its own
    estimate of the error is below 1e-7 of it.
    """
    y, _ = _checked(y_true, distribution, None)
    if isinstance(distribution, ScipyDistribution) and distribution.family is scipy.stats.norm:
        return _crps_gaussian(y, distribution)
    out = np.empty(len(y))
    for rows in _slices(len(y), len(_PANEL_LEVELS) * len(_NODES)):
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
    y = _outcomes(y_true)
    u = _levels(levels)
    quantile = np.asarray(quantiles, float)
    if quantile.shape != (len(y), len(u)):
        raise ValueError(f"quantiles has shape ({len(y)}, {len(u)}), rows by levels, not {quantile.shape}.")
    if np.any(np.diff(u) <= 0):
        raise ValueError("levels are strictly increasing; sort them and the columns of quantiles with them.")
    if not np.isfinite(quantile).all() or np.any(np.diff(quantile, axis=1) < 0):
        raise ValueError("quantiles are finite and do not decrease along a row; np.sort(quantiles, axis=1) does.")
    u = np.concatenate([[0.0], u, [1.0]])
    out = np.zeros(len(y))
    for rows in _slices(len(y), 4 * len(u)):
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
        for part in _slices(len(row), 4 * len(_NODES)):
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


# ----------------------------------------------------------------------------------------- tables and scorers
def by_group(
    metric: Callable[..., float],
    y_true: ArrayLike,
    distribution: PredictiveDistribution,
    groups: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    **keywords: Any,
) -> pd.DataFrame:
    """One metric in each group of rows: a table with the columns group, n and value, sorted by group.

    Parameters
    ----------
    metric
        Any metric of this module that gives one number.
    y_true, distribution
        Outcomes (n,) and their predicted distributions.
    groups
        Label of each row (n,); missing labels are a group of their own.
    sample_weight
        Weights of the rows (n,).
    **keywords
        Given to the metric. `gof` takes its bins from each group's own outcomes unless ``edges`` is given.
    """
    y, _ = _checked(y_true, distribution, sample_weight)
    labels = pd.Series(np.asarray(groups) if not isinstance(groups, pd.Series) else groups.array)
    if len(labels) != len(y):
        raise ValueError(f"groups has one label for each of the {len(y)} rows, not {len(labels)}.")
    code, names = pd.factorize(labels, sort=True, use_na_sentinel=False)
    sizes, values = [], []
    for k in range(len(names)):
        rows = np.flatnonzero(code == k)
        weight = {} if sample_weight is None else {"sample_weight": np.asarray(sample_weight)[rows]}
        value = metric(y[rows], distribution[rows], **weight, **keywords)
        if np.ndim(value):
            raise ValueError("by_group needs a metric that gives one number; ask for one level at a time.")
        sizes.append(len(rows))
        values.append(float(value))
    return pd.DataFrame({"group": names, "n": sizes, "value": values})


def evaluate(
    y_true: ArrayLike, distribution: PredictiveDistribution, sample_weight: ArrayLike | None = None
) -> dict[str, float]:
    """The headline metrics by name: cal, coverage90, gof, mae, crps, log_score, width90."""
    y, w = _checked(y_true, distribution, sample_weight)
    return {
        "cal": calibration_error(y, distribution, sample_weight=w),
        "coverage90": coverage(y, distribution, 0.9, sample_weight=w),
        "gof": gof(y, distribution, sample_weight=w),
        "mae": mae(y, distribution, sample_weight=w),
        "crps": crps(y, distribution, sample_weight=w),
        "log_score": log_score(y, distribution, sample_weight=w),
        "width90": interval_width(y, distribution, 0.9, sample_weight=w),
    }


def crps_scorer(estimator: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """Minus the CRPS, for ``scoring=`` of scikit-learn, where greater is better."""
    return -crps(y, estimator.predict_dist(X), sample_weight=sample_weight)


def gof_scorer(estimator: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """The paper's gof, for ``scoring=`` of scikit-learn."""
    return gof(y, estimator.predict_dist(X), sample_weight=sample_weight)


def log_score_scorer(estimator: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """Mean log density (minus `log_score`), for ``scoring=`` of scikit-learn, where greater is better."""
    return -log_score(y, estimator.predict_dist(X), sample_weight=sample_weight)


def calibration_scorer(estimator: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """Minus the calibration error, for ``scoring=`` of scikit-learn, where greater is better."""
    return -calibration_error(y, estimator.predict_dist(X), sample_weight=sample_weight)


def mae_scorer(estimator: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """Minus the absolute error of the median, for ``scoring=`` of scikit-learn, where greater is better."""
    return -mae(y, estimator.predict_dist(X), sample_weight=sample_weight)


# ---------------------------------------------------------------------------------------------------- helpers
def _outcomes(y_true: ArrayLike) -> np.ndarray:
    a = np.asarray(y_true)
    if a.dtype.kind == "O":
        try:
            a = a.astype(float)
        except (TypeError, ValueError):
            raise ValueError("y_true has values that are not numbers; convert or drop them.") from None
    if a.dtype.kind not in "biuf":
        raise ValueError(f"y_true holds numbers, not the dtype {a.dtype}.")
    if a.ndim != 1:
        raise ValueError(f"y_true has one outcome a row, shape (n,), not {a.shape}; ravel a single column.")
    if not len(a):
        raise ValueError("y_true is empty; a metric needs at least one row.")
    if not np.isfinite(a).all():
        raise ValueError("y_true contains NaN or infinite values; drop those rows first.")
    return a.astype(float)


def _checked(
    y_true: ArrayLike, distribution: PredictiveDistribution, sample_weight: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray]:
    y = _outcomes(y_true)
    if len(y) != len(distribution):
        raise ValueError(f"y_true has {len(y)} rows but the distribution has {len(distribution)}; give the same rows.")
    if sample_weight is None:
        return y, np.ones(len(y))
    w = np.asarray(sample_weight, float)
    if w.shape != y.shape:
        raise ValueError(f"sample_weight has one weight for each of the {len(y)} rows, not the shape {w.shape}.")
    if not np.isfinite(w).all() or np.any(w < 0) or not w.sum() > 0:
        raise ValueError("sample_weight is finite and not negative, and not all of it is zero.")
    return y, w


def _levels(levels: ArrayLike) -> np.ndarray:
    check_levels(levels)
    q = np.atleast_1d(np.asarray(levels, float))
    if q.ndim != 1 or not len(q):
        raise ValueError(f"levels is a number or a vector of at least one number, not an array of shape {q.shape}.")
    return q


def _mean(values: np.ndarray, weight: np.ndarray) -> float:
    used = weight > 0  # so that an infinite value of weight 0 does not count
    return float(values[used] @ weight[used] / weight.sum())


def _like(level: ArrayLike, values: np.ndarray) -> float | np.ndarray:
    """One number for one level, a vector for several."""
    return values if np.ndim(level) else float(values[0])


def _weighted_median(values: np.ndarray, weight: np.ndarray) -> float:
    """The median of the rows repeated in proportion to their weights."""
    used = weight > 0
    order = np.argsort(values[used], kind="stable")
    values, share = values[used][order], np.cumsum(weight[used][order])
    first = np.searchsorted(share, 0.5 * share[-1], side="left")
    last = np.searchsorted(share, 0.5 * share[-1], side="right")
    return float(0.5 * (values[first] + values[min(last, len(values) - 1)]))


def _slices(n: int, width: int) -> Iterator[slice]:
    """Slices of rows whose few float64 matrices of ``width`` columns stay inside the byte budget."""
    step = max(1, BYTE_BUDGET // (8 * 8 * max(width, 1)))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def _intervals(distribution: PredictiveDistribution, q: np.ndarray) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Ends (rows, L) of the central intervals, a slice of rows at a time."""
    for rows in _slices(len(distribution), 2 * len(q)):
        ends = distribution[rows].interval(q)
        yield rows, ends[:, 0], ends[:, 1]
