"""Calibration to look at: PIT values, their histogram, and the calibration curve."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from collabnets.distribution import PredictiveDistribution
from collabnets.metrics.checks import checked, row_slices, several_levels


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


def pit(y_true: ArrayLike, distribution: PredictiveDistribution) -> np.ndarray:
    """Probability integral transform F(y | x), one a row; uniform under right, continuous distributions."""
    y, _ = checked(y_true, distribution, None)
    return distribution.cdf(y[:, None])[:, 0]


def pit_histogram(
    y_true: ArrayLike,
    distribution: PredictiveDistribution,
    *,
    bins: int = 10,
    sample_weight: ArrayLike | None = None,
) -> PITHistogram:
    """Histogram of the PIT: a hump says too wide, a bowl too narrow, a slope biased."""
    y, w = checked(y_true, distribution, sample_weight)
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
    y, w = checked(y_true, distribution, sample_weight)
    q = several_levels(np.arange(1, 100) / 100 if levels is None else levels)
    total = np.zeros(len(q))
    for rows in row_slices(len(y), len(q)):
        total += w[rows] @ (y[rows, None] <= distribution[rows].icdf(q))
    return CalibrationCurve(q, total / w.sum())
