"""The metrics of the paper's Section 5.1: calibration, coverage, goodness of fit, absolute error, sharpness."""

from __future__ import annotations

from typing import NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike

from collabnets.distribution import PredictiveDistribution
from collabnets.metrics.checks import (
    Levels,
    as_asked,
    central_intervals,
    checked,
    outcomes,
    row_slices,
    several_levels,
    weighted_mean,
)
from collabnets.metrics.scores import interval_width

# The paper's eight nominal levels of two-sided intervals (Section 5.1.1).
PAPER_LEVELS: tuple[float, ...] = tuple(float(q) for q in np.linspace(0.02, 0.98, 8))


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
    q = several_levels(PAPER_LEVELS if levels is None else levels)
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
    y, w = checked(y_true, distribution, sample_weight)
    q = several_levels(level)
    total = np.zeros(len(q))
    for rows, low, high in central_intervals(distribution, q):
        here = y[rows, None]
        total += w[rows] @ ((low < here) & (here < high))
    return as_asked(level, total / w.sum())


def gof_edges(y_true: ArrayLike) -> np.ndarray:
    """The paper's nine inner bin edges: evenly from the 5 % to the 95 % quantile of the outcomes."""
    low, high = np.quantile(outcomes(y_true), [0.05, 0.95])
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
    y, w = checked(y_true, distribution, sample_weight)
    a = gof_edges(y) if edges is None else np.asarray(edges, float)
    if a.ndim != 1 or not len(a) or not np.isfinite(a).all() or np.any(np.diff(a) < 0):
        raise ValueError(f"edges is a vector of finite numbers in increasing order, not {edges!r}.")
    if not epsilon >= 0:
        raise ValueError(f"epsilon is a small number >= 0, not {epsilon}.")
    of = np.searchsorted(a, y, side="left")
    value = np.empty(len(y))
    for rows in row_slices(len(y), len(a) + 2):
        part, index = distribution[rows], of[rows, None]
        below, above = part.cdf(a), part.ccdf(a)
        ends = np.zeros((len(index), 1)), np.ones((len(index), 1))
        cdf, ccdf = np.hstack([ends[0], below, ends[1]]), np.hstack([ends[1], above, ends[0]])
        left, right = (np.take_along_axis(cdf, index + k, 1) for k in (0, 1))
        ccdf_left, ccdf_right = (np.take_along_axis(ccdf, index + k, 1) for k in (0, 1))
        # of the two differences the one of smaller numbers keeps its digits
        value[rows] = np.where(left > 0.5, ccdf_left - ccdf_right, right - left)[:, 0]
    with np.errstate(divide="ignore"):
        return weighted_mean(np.log(np.maximum(value, 0.0) + epsilon), w)


def mae(y_true: ArrayLike, distribution: PredictiveDistribution, *, sample_weight: ArrayLike | None = None) -> float:
    """Mean absolute error of the conditional median.

    The paper's synthetic tables compare with the true median: ``mae(data.truth.median(), distribution)``.
    """
    y, w = checked(y_true, distribution, sample_weight)
    return weighted_mean(np.abs(distribution.median() - y), w)


def sharpness_curve(
    y_true: ArrayLike,
    distribution: PredictiveDistribution,
    *,
    levels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> SharpnessCurve:
    """Empirical coverage and median width of central intervals, by default at the paper's eight levels."""
    q = several_levels(PAPER_LEVELS if levels is None else levels)
    return SharpnessCurve(
        q,
        coverage(y_true, distribution, q, sample_weight=sample_weight),
        interval_width(y_true, distribution, q, sample_weight=sample_weight),
    )
