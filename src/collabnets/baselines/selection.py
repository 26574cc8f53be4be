"""Grid search as the paper has it: candidates learn from a part of the training rows, gof on the rest decides.

The test rows are never looked at. The units of features and outcome are those of all training rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from collabnets.distribution import PredictiveDistribution
from collabnets.estimator import Table
from collabnets.metrics import gof

# Candidates as columns, one value of each hyperparameter a candidate.
Candidates = dict[str, np.ndarray]
# More rows than this decide nothing that these do not: the standard error of a gof is about 1 / sqrt(rows).
MOST_HELD_OUT = 5_000
# trial(rows to learn from, candidates, features to predict) -> one distribution a candidate, in the units of y
Trial = Callable[[Table, Candidates, np.ndarray], Sequence[PredictiveDistribution]]


def candidates_of(grid: Mapping[str, Sequence[float]]) -> Candidates:
    """All combinations of a grid, the last name varying fastest."""
    columns = zip(*product(*grid.values()), strict=True)
    return {name: np.array(column, float) for name, column in zip(grid, columns, strict=True)}


def hold_out(table: Table, fraction: float) -> tuple[Table, Table]:
    """Divide the rows of a table at random, by its seed, into those to learn from and those to judge by."""
    n = len(table.y)
    n_held = min(max(1, round(fraction * n)), n - 1, MOST_HELD_OUT)
    order = np.random.default_rng([table.seed, n]).permutation(n)
    return _part(table, np.sort(order[n_held:])), _part(table, np.sort(order[:n_held]))


def search(
    table: Table, grid: Mapping[str, Sequence[float]], trial: Trial, fraction: float
) -> tuple[dict[str, float], dict[str, Any]]:
    """Choose the candidate with the best gof on held-out rows, and tell how all of them did.

    Parameters
    ----------
    table
        Training rows.
    grid
        Values to try of each hyperparameter.
    trial
        Learns from one table with every candidate and predicts for other rows.
    fraction
        Share of the training rows that is held out, of at most ``MOST_HELD_OUT``; none with a single candidate.

    Returns
    -------
    best : dict
        The chosen value of each hyperparameter; of equally good candidates the first.
    record : dict
        The candidates, column by column, with their ``gof``, and ``n_train`` and ``n_held_out``. With a single
        candidate the gof is NaN.
    """
    candidates = candidates_of(grid)
    count = len(next(iter(candidates.values())))
    if count == 1:
        score, n_train, n_held = np.array([np.nan]), len(table.y), 0
        best = 0
    else:
        train, held = hold_out(table, fraction)
        tried = trial(train, candidates, held.features)
        score = np.array([gof(held.values, dist, sample_weight=held.weight) for dist in tried])
        if not np.isfinite(score).any():
            raise FloatingPointError(
                "every candidate of the grid search became infinite or NaN; try a smaller learning_rate_init, or look "
                "for extreme values in X or y."
            )
        n_train, n_held = len(train.y), len(held.y)
        best = int(np.nanargmax(score))
    chosen = {name: float(column[best]) for name, column in candidates.items()}
    return chosen, {**candidates, "gof": score, "n_train": n_train, "n_held_out": n_held}


def grid_values(
    name: str, values: ArrayLike, allowed: Callable[[np.ndarray], np.ndarray], expected: str
) -> tuple[float, ...]:
    """Read one axis of a grid, a number or several; raises unless all of them are allowed."""
    numbers = np.atleast_1d(np.asarray(values))
    if numbers.ndim != 1 or not numbers.size or numbers.dtype.kind not in "iuf" or not np.all(allowed(numbers)):
        raise ValueError(f"{name} lists one or more {expected}; got {values!r}.")
    return tuple(float(v) for v in numbers)


def _part(table: Table, index: np.ndarray) -> Table:
    rows = table.rows.iloc[index] if hasattr(table.rows, "columns") else table.rows[index]
    weight = table.weight[index]
    return table._replace(
        rows=rows,
        values=table.values[index],
        features=table.features[index],
        y=table.y[index],
        weight=weight / weight.mean(),
    )
