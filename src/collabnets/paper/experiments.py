"""The synthetic experiments of Section 5.3: data, splits, and what is measured."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from collabnets import metrics
from collabnets.datasets import heteroskedastic_gaussian, paper_splits, weibull
from collabnets.distribution import PredictiveDistribution, Unavailable
from collabnets.paper import settings
from collabnets.paper.grid import Experiment, Split

N_ROWS, TRAIN = 1_000, 0.7
GRID = 201  # points of a drawn CDF


def measure(dist: PredictiveDistribution, split: Split) -> dict[str, float]:
    """The columns of the paper's tables, calibration and coverage in percent; MAE is to the true median if known."""
    y = split.y_test
    median = y if split.truth is None else split.truth.median()
    out = {
        "cal": 100.0 * metrics.calibration_error(y, dist),
        "coverage90": 100.0 * metrics.coverage(y, dist, 0.9),
        "mae": metrics.mae(median, dist),
    }
    return out | (available(lambda: {"gof": metrics.gof(y, dist), "crps": metrics.crps(y, dist)}) or {})


def available(ask: Callable[[], Any]) -> Any:
    """What a distribution answers, or None where it does not have it (CQR has quantiles only)."""
    try:
        return ask()
    except Unavailable:
        return None


def draw(
    shown: tuple[tuple[float, ...], ...], threshold: float | None, dist: PredictiveDistribution, split: Split
) -> dict[str, Any]:
    """Widths of the 90 % intervals, CDFs of the test rows nearest to some points, survival beyond a threshold."""
    out: dict[str, Any] = {"width90": _list(np.diff(dist.interval(0.9), axis=1)[:, 0])}
    X = np.asarray(split.X_test, float)
    rows = [int(np.square(X - np.array(place)).sum(axis=1).argmin()) for place in shown]
    assert split.truth is not None
    low, high = split.truth[rows].icdf([0.0005, 0.9995]).T
    z = np.linspace(low - 0.1 * (high - low), high + 0.1 * (high - low), GRID, axis=1)
    out["shown"] = {"x": X[rows].tolist(), "z": [_list(row) for row in z]}
    cdf = available(lambda: dist[rows].cdf(z))
    if cdf is not None:
        out["shown"]["cdf"] = [_list(row) for row in cdf]
    if threshold is not None:
        survival = available(lambda: dist.ccdf(threshold))
        if survival is not None:
            out["survival"] = _list(survival)
    return out


def _list(values: np.ndarray) -> list[float]:
    return [float(f"{v:.6g}") for v in values]


@lru_cache
def _data(name: str) -> Any:
    make = {"gaussian": heteroskedastic_gaussian, "weibull": weibull}[name]
    return make(N_ROWS, random_state=settings.DATA_SEED)


def _split(name: str, replication: int) -> Split:
    data = _data(name)
    splits = list(paper_splits(len(data.y), replication + 1, train=TRAIN, seed=settings.SPLIT_SEED))
    train, test = splits[replication]
    return Split(data.X[train], data.y[train], data.X[test], data.y[test], data.truth[test])


def _synthetic(name: str, shown: tuple[tuple[float, ...], ...], threshold: float | None) -> Experiment:
    return Experiment(
        name,
        partial(_split, name),
        measure,
        partial(draw, shown, threshold),
        {
            "data": name,
            "rows": N_ROWS,
            "train": TRAIN,
            "data_seed": settings.DATA_SEED,
            "split_seed": settings.SPLIT_SEED,
            "shown": shown,
            "threshold": threshold,
            "grid": GRID,
        },
        keeps_extra=name == "gaussian",  # Figures S1 and S2
    )


# The test rows nearest to those that Figures 5 and 7 show.
GAUSSIAN = _synthetic("gaussian", ((-1.34, 1.77), (-1.41, 2.09)), None)
WEIBULL = _synthetic("weibull", ((1.34, 1.51), (1.39, 2.05)), 1.0)
