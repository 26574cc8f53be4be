"""Proper scores and what else peers have: squared error, interval width and score, pinball, log score."""

from __future__ import annotations

from typing import overload

import numpy as np
from numpy.typing import ArrayLike

from collabnets.distribution import PredictiveDistribution
from collabnets.metrics.checks import (
    Levels,
    as_asked,
    central_intervals,
    checked,
    row_slices,
    several_levels,
    weighted_mean,
    weighted_median,
)


def rmse(y_true: ArrayLike, distribution: PredictiveDistribution, *, sample_weight: ArrayLike | None = None) -> float:
    """Root mean squared error of the conditional mean."""
    y, w = checked(y_true, distribution, sample_weight)
    return float(np.sqrt(weighted_mean((distribution.mean() - y) ** 2, w)))


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
    _, w = checked(y_true, distribution, sample_weight)
    q = several_levels(level)
    width = np.empty((len(w), len(q)))
    for rows, low, high in central_intervals(distribution, q):
        width[rows] = high - low
    return as_asked(level, np.array([weighted_median(column, w) for column in width.T]))


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
    y, w = checked(y_true, distribution, sample_weight)
    values = interval_score_values(y, distribution, several_levels(level))
    return as_asked(level, w @ values / w.sum())


def interval_score_values(
    y_true: ArrayLike, distribution: PredictiveDistribution, level: ArrayLike = 0.9
) -> np.ndarray:
    """Width plus 2 / (1 - level) times how far outside the outcome is: (n,), or (n, L) for several levels."""
    y, _ = checked(y_true, distribution, None)
    q = several_levels(level)
    if np.any(q == 1):
        raise ValueError("the interval score divides by 1 - level; take levels below 1.")
    out = np.empty((len(y), len(q)))
    for rows, low, high in central_intervals(distribution, q):
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
    y, w = checked(y_true, distribution, sample_weight)
    values = pinball_values(y, distribution, several_levels(levels))
    return as_asked(levels, w @ values / w.sum())


def pinball_values(y_true: ArrayLike, distribution: PredictiveDistribution, levels: ArrayLike = 0.5) -> np.ndarray:
    """(q - 1[y < Q(q)]) (y - Q(q)): (n,), or (n, L) for several levels q."""
    y, _ = checked(y_true, distribution, None)
    q = several_levels(levels)
    out = np.empty((len(y), len(q)))
    for rows in row_slices(len(y), len(q)):
        over = y[rows, None] - distribution[rows].icdf(q)
        out[rows] = np.maximum(q * over, (q - 1.0) * over)
    return out if np.ndim(levels) else out[:, 0]


def log_score(
    y_true: ArrayLike, distribution: PredictiveDistribution, *, sample_weight: ArrayLike | None = None
) -> float:
    """Mean of minus the log density at the outcome (negative log likelihood); lower is better."""
    y, w = checked(y_true, distribution, sample_weight)
    return weighted_mean(log_score_values(y, distribution), w)


def log_score_values(y_true: ArrayLike, distribution: PredictiveDistribution) -> np.ndarray:
    """Minus the log density at the outcome, one a row."""
    y, _ = checked(y_true, distribution, None)
    return -distribution.logpdf(y[:, None])[:, 0]
