"""What all metrics share: checked arguments, weighted means, and slices of rows that stay inside the byte budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from collabnets.distribution import BYTE_BUDGET, PredictiveDistribution, check_levels

Levels = Sequence[float] | np.ndarray


def outcomes(y_true: ArrayLike) -> np.ndarray:
    """The outcomes as float64, or an error that says what is wrong with them."""
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


def checked(
    y_true: ArrayLike, distribution: PredictiveDistribution, sample_weight: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray]:
    """The outcomes and a weight for each, of as many rows as the distribution has."""
    y = outcomes(y_true)
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


def several_levels(levels: ArrayLike) -> np.ndarray:
    """Levels as a vector, of one if a number was given."""
    check_levels(levels)
    q = np.atleast_1d(np.asarray(levels, float))
    if q.ndim != 1 or not len(q):
        raise ValueError(f"levels is a number or a vector of at least one number, not an array of shape {q.shape}.")
    return q


def weighted_mean(values: np.ndarray, weight: np.ndarray) -> float:
    """The mean of the rows that have a weight."""
    used = weight > 0  # so that an infinite value of weight 0 does not count
    return float(values[used] @ weight[used] / weight.sum())


def as_asked(level: ArrayLike, values: np.ndarray) -> float | np.ndarray:
    """One number for one level, a vector for several."""
    return values if np.ndim(level) else float(values[0])


def weighted_median(values: np.ndarray, weight: np.ndarray) -> float:
    """The median of the rows repeated in proportion to their weights."""
    used = weight > 0
    order = np.argsort(values[used], kind="stable")
    values, share = values[used][order], np.cumsum(weight[used][order])
    first = np.searchsorted(share, 0.5 * share[-1], side="left")
    last = np.searchsorted(share, 0.5 * share[-1], side="right")
    return float(0.5 * (values[first] + values[min(last, len(values) - 1)]))


def row_slices(n: int, width: int) -> Iterator[slice]:
    """Slices of rows whose few float64 matrices of ``width`` columns stay inside the byte budget."""
    step = max(1, BYTE_BUDGET // (8 * 8 * max(width, 1)))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def central_intervals(
    distribution: PredictiveDistribution, q: np.ndarray
) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Ends (rows, L) of the central intervals, a slice of rows at a time."""
    for rows in row_slices(len(distribution), 2 * len(q)):
        ends = distribution[rows].interval(q)
        yield rows, ends[:, 0], ends[:, 1]
