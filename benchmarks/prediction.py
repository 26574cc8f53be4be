"""99 quantiles of 10,000 rows against the authors' way, and the memory of 1,000,000 rows.

The authors evaluate g at 5,000 points of a grid for each row and interpolate the inverse linearly, row by row. Both
ways are compared with the same reference: g itself, inverted in float64 by bisection to 1e-9.
"""

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.interpolate import interp1d

from benchmarks.common import Row, by_turns, ratio_of_medians
from collabnets import CollaboratingRegressor
from collabnets.datasets import heteroskedastic_gaussian
from collabnets.networks import ACTIVATIONS, respond_rows

LEVELS = np.arange(1, 100) / 100
N_ROWS, GRID = 10_000, 5_000


def fitted(pretrain_iter: int = 5000, max_iter: int = 5000) -> CollaboratingRegressor:
    data = heteroskedastic_gaussian(1000)
    model = CollaboratingRegressor(pretrain_iter=pretrain_iter, max_iter=max_iter, random_state=0, verbose=0)
    return model.fit(data.X, data.y)


def authors_way(model: CollaboratingRegressor) -> Callable[[np.ndarray], np.ndarray]:
    """The grid of the authors' notebooks, with g compiled and rows in batches, which favours it."""
    g = jax.tree.map(lambda a: jnp.asarray(a[0]) if eqx.is_array(a) else a, model.g_)
    low, high = (model.outcome_.transform(np.array(model.search_range_))).astype(float)
    grid = np.linspace(low, high, GRID)
    evaluate = eqx.filter_jit(lambda g, x, z: jax.nn.sigmoid(respond_rows(g, z, x)[0]))

    def quantiles(X: np.ndarray) -> np.ndarray:
        x = model.columns_.transform(X)
        out = np.empty((len(X), len(LEVELS)))
        z = jnp.broadcast_to(jnp.asarray(grid, jnp.float32), (20, GRID))
        for start in range(0, len(X), 20):
            p = np.asarray(evaluate(g, x[start : start + 20], z))
            for i, row in enumerate(p):
                out[start + i] = interp1d(row, grid, bounds_error=False, fill_value="extrapolate")(LEVELS)
        return model.outcome_.inverse(out)

    return quantiles


def reference_quantiles(model: CollaboratingRegressor, X: np.ndarray) -> np.ndarray:
    """Bisection on g in float64, NumPy."""
    leaf = lambda a: np.asarray(a[0], float)  # noqa: E731
    g, x = model.g_, model.columns_.transform(X).astype(float)
    context = x @ leaf(g.weights[0]) + leaf(g.biases[0])

    def elu(h: np.ndarray) -> np.ndarray:
        return np.where(h > 0, h, np.expm1(np.minimum(h, 0)))

    assert g.activation == "elu"
    assert "elu" in ACTIVATIONS

    def logit(z: np.ndarray) -> np.ndarray:
        h = z[..., None] * leaf(g.query_weight) + context[:, None, :]
        for i, affine in enumerate(g.affines):
            if i:
                h = h @ leaf(g.weights[i]) + leaf(g.biases[i])
            h = elu(h) * leaf(affine.scale) + leaf(affine.shift)
        return g.output.mean + g.output.deviation * (h @ leaf(g.readout_weight) + leaf(g.readout_bias))

    target = np.log(LEVELS / (1 - LEVELS))
    low, high = (np.full((len(x), len(LEVELS)), v) for v in model.outcome_.transform(np.array(model.search_range_)))
    low, high = low.astype(float), high.astype(float)
    while (high - low).max() > 1e-9:
        middle = (low + high) / 2
        below = logit(middle) < target
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return model.outcome_.inverse((low + high) / 2)


def measure() -> list[Row]:
    model = fitted()
    X = heteroskedastic_gaussian(N_ROWS, random_state=1).X
    theirs = authors_way(model)
    model.predict_quantiles(X[:2000], LEVELS)
    theirs(X[:20])
    seconds = by_turns({"ours": lambda: model.predict_quantiles(X, LEVELS), "grid": lambda: theirs(X)}, 3)
    sample = X[:200]
    truth = reference_quantiles(model, sample)
    scale = model.outcome_.scale
    ours, grid = (np.abs(q - truth) / scale for q in (model.predict_quantiles(sample, LEVELS), theirs(sample)))
    per_second = N_ROWS * len(LEVELS)
    return [
        Row(
            "99 quantiles of 10,000 rows",
            per_second / sorted(seconds["ours"])[1],
            per_second / sorted(seconds["grid"])[1],
            ratio_of_medians(seconds["grid"], seconds["ours"]),
            10.0,
            "quantiles/s",
            "against the 5,000-point grid, row by row",
        ),
        Row("mean error of a quantile", ours.mean(), grid.mean(), grid.mean() / ours.mean(), 1.0, "sd of y"),
        Row("largest error of a quantile", ours.max(), grid.max(), grid.max() / ours.max(), 1.0, "sd of y"),
    ]


def memory() -> list[Row]:
    """Peak memory added by 99 quantiles of a million rows, in a process of its own."""
    code = "from benchmarks.prediction import _peak; _peak()"
    text = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    added = float(text.split()[-1])
    note = "limit 2 GB; the result itself is 0.79 GB"
    return [Row("memory of 99 quantiles of 1,000,000 rows", added, 2.0, 2.0 / added, 1.0, "GB", note)]


def _peak() -> None:
    model = fitted(200, 200)
    X = np.tile(heteroskedastic_gaussian(10_000, random_state=1).X, (100, 1))
    model.predict_quantiles(X[:5000], LEVELS)
    status = Path("/proc/self/status").read_text()
    before = int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
    model.predict_quantiles(X, LEVELS)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / 1e9)
