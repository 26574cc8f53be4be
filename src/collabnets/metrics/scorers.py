"""Metrics by group, several at once, and as scorers of scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from collabnets.distribution import PredictiveDistribution
from collabnets.metrics.checks import checked
from collabnets.metrics.paper import calibration_error, coverage, gof, mae
from collabnets.metrics.ranked import crps
from collabnets.metrics.scores import interval_width, log_score


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
    y, _ = checked(y_true, distribution, sample_weight)
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
    y, w = checked(y_true, distribution, sample_weight)
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
