"""Conformalized quantile regression (CQR) on a quantile forest: intervals whose coverage holds on finite data.

A forest learns on one half of the rows. On the other half each interval [q_lo(x), q_hi(x)] of the forest gets the
scores max(q_lo(x_i) - y_i, y_i - q_hi(x_i)), how far outside an outcome is, negative inside. Widened on both sides by
the ceil(c (n + 1))-th smallest of the n scores, it covers a new outcome with probability at least c [1]_, whatever
the forest is worth. Each coverage c has its own correction; there is no distribution behind them.

References
----------
.. [1] Y. Romano, E. Patterson, E. Candès, "Conformalized quantile regression", NeurIPS 2019; their code is at
   https://github.com/yromano/cqr.
"""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral, Real
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils._param_validation import Interval

from collabnets.baselines.forest import Forest, grow, in_bag
from collabnets.distribution import BYTE_BUDGET, PredictiveDistribution, Support, Unavailable
from collabnets.estimator import Table, TableRegressor
from collabnets.metrics import PAPER_LEVELS

# Coverages that get a correction by default: every half percent, the paper's eight, and the tail.
LEVELS = tuple(
    float(c) for c in np.unique([*np.arange(1, 200) / 200, *PAPER_LEVELS, 0.996, 0.997, 0.998, 0.999, 0.9999, 0.99999])
)
# The median is the middle of the 1 % interval (the paper's Appendix C.1.3).
MEDIAN = (0.495, 0.505)
# Tuning tries this many narrower intervals, up to this much from either end of the nominal one (the reference code).
STEPS, RANGE = 10, 0.3
# Rows that tuning looks at, at most.
TUNING_ROWS = 2000
# Two levels, or a level and a rank, that differ by less are the same but for rounding.
ROUNDING = 1e-9


class Corrections(NamedTuple):
    """What turns a forest's quantiles into intervals, one entry a coverage.

    Attributes
    ----------
    levels
        Coverages (K,), increasing.
    lower
        Level of the forest's quantile at the lower end; that at the upper end is 1 minus it.
    correction
        How far both ends move outward; infinite where the rows are too few for the coverage.
    """

    levels: np.ndarray
    lower: np.ndarray
    correction: np.ndarray

    def ends(self, forest: Forest, features: np.ndarray) -> np.ndarray:
        """Ends of the intervals of rows (n, 2 K + 3), not decreasing: upper ends right of the median, lower ones left.

        An interval takes in those of all lower coverages, and the median. At the ends of a row stands infinity.
        """
        k = len(self.levels)
        at = np.concatenate([self.lower, 1.0 - self.lower, MEDIAN])
        quantiles = forest.quantiles(features, at)
        median = quantiles[:, 2 * k :].mean(axis=1, keepdims=True)
        low = np.minimum.accumulate(np.hstack([median, quantiles[:, :k] - self.correction]), axis=1)
        high = np.maximum.accumulate(np.hstack([median, quantiles[:, k : 2 * k] + self.correction]), axis=1)
        infinite = np.full_like(median, np.inf)
        return np.hstack([-infinite, low[:, :0:-1], high, infinite])


class ConformalDistribution(PredictiveDistribution):
    """Quantiles and intervals of conformalized quantile regression; it has no cdf, density, moments or samples.

    ``interval(c)`` covers a new outcome with probability at least c. ``icdf(q)`` is the lower (or for q > 1/2 the
    upper) end of the interval of coverage |1 - 2 q|; at 1/2 it is the median. A coverage between two calibrated ones
    gets the interval of the higher one, beyond the highest it is infinite. Intervals are nested.
    """

    def __init__(
        self, forest: Forest, corrections: Corrections, features: np.ndarray, ends: np.ndarray | None = None
    ) -> None:
        self.forest, self.corrections, self.features = forest, corrections, features
        if ends is None and 8 * (2 * len(corrections.levels) + 3) * len(features) <= BYTE_BUDGET:
            ends = corrections.ends(forest, features)
        self._ends = ends

    def __len__(self) -> int:
        return len(self.features)

    def _take(self, index: np.ndarray) -> ConformalDistribution:
        ends = None if self._ends is None else self._ends[index]
        return type(self)(self.forest, self.corrections, self.features[index], ends)

    def _icdf(self, q: np.ndarray) -> np.ndarray:
        coverage = np.abs(1.0 - 2.0 * q)
        steps = np.searchsorted(self.corrections.levels, coverage - ROUNDING) + 1
        middle = len(self.corrections.levels) + 1
        at = np.where(coverage <= ROUNDING, middle, np.where(q < 0.5, middle - steps, middle + steps))
        if self._ends is not None:
            return np.take_along_axis(self._ends, at, axis=1)
        out = np.empty(q.shape)
        for rows in self._chunks(2 * middle):
            out[rows] = np.take_along_axis(self.corrections.ends(self.forest, self.features[rows]), at[rows], axis=1)
        return out

    def _cdf(self, z: np.ndarray) -> NoReturn:
        self._lack("cdf")

    def _logpdf(self, z: np.ndarray) -> NoReturn:
        self._lack("density")

    def _moments(self) -> NoReturn:
        self._lack("mean or variance")

    def _support(self) -> Support:
        self._lack("support")

    def sample(self, size: int = 1, *, rng: int | np.random.Generator | None = 0) -> np.ndarray:
        """Raise: there is no distribution to draw from."""
        self._lack("samples")

    @staticmethod
    def _lack(what: str) -> NoReturn:
        raise Unavailable(
            f"conformal quantile regression has no {what}, only quantiles and intervals (icdf, median, interval): "
            "each coverage is corrected by itself, and no single distribution has all these intervals."
        )


class ConformalQuantileRegressor(TableRegressor):
    """CQR: quantiles of a random forest, corrected on held-out rows so that intervals cover what they promise.

    What it predicts has quantiles, intervals and the median, and no more: ``predict_dist(X).cdf`` and its like raise
    `Unavailable`, and metrics that need them with it.

    Parameters
    ----------
    n_estimators, max_features, min_samples_leaf
        Trees, columns that a split may use (a share of them), and rows that a leaf needs, as in scikit-learn's
        forests; the defaults are those of the reference code.
    max_samples
        Bootstrap draws for one tree, at most; None is one a row. It bounds time and memory on large tables (about
        50 bytes a tree and draw) and changes nothing on small ones.
    calibration_fraction
        Share of the rows, by weight, that only the corrections see.
    levels
        Coverages that get a correction. By default every half percent from 0.5 % to 99.5 %, the paper's eight, and
        99.6 % to 99.999 %. A coverage in between gets the interval of the next higher one, and one beyond the highest
        an infinite interval. Memory of the fit: 8 bytes a held-out row and level.
    tune_levels
        Try, for each coverage, narrower quantile levels of the forest and take the narrowest whose out-of-bag
        coverage is still ``coverage_factor`` times the nominal one. A forest on many features is often too wide; the
        correction then takes the same width from every row, while narrower quantiles keep the shape. The reference
        code does so (with a second forest and 5 % of the rows instead of the rows out of bag), hence the default.
    coverage_factor
        See ``tune_levels``.
    n_jobs
        Threads that grow trees; the forest is the same for any number.
    random_state
        Seed of the split and of the forest.
    verbose
        0 for silence; 1 shows a progress bar if on a terminal.

    Attributes
    ----------
    levels_ : ndarray of shape (K,)
        Coverages.
    lower_levels_ : ndarray of shape (K,)
        Level of the forest's quantile that is the lower end; the upper end's is 1 minus it.
    corrections_ : ndarray of shape (K,)
        How far both ends move outward, in units of y; infinite where ceil(c (n + 1)) > n.
    forest_ : dict of ndarray
        The trees.
    columns_, outcome_, n_features_in_, feature_names_in_
        As in all estimators here.

    Notes
    -----
    The coverage is at least c on average over training sets and new rows of the same source, not for each row.
    With fewer than c / (1 - c) held-out rows no finite interval can promise it, and the interval is infinite.
    So that intervals are nested, each takes in those of lower coverages; that adds some tenths of a percent to the
    coverage. ``levels=[0.9]`` gives the textbook's interval of that one coverage. Weights act as repetitions: equal
    rows are on the same side of the split, drawn together for a tree and counted together in the correction.

    Examples
    --------
    >>> from collabnets.baselines import ConformalQuantileRegressor
    >>> from collabnets.datasets import heteroskedastic_gaussian
    >>> data = heteroskedastic_gaussian(300)
    >>> model = ConformalQuantileRegressor(n_estimators=50, random_state=0).fit(data.X, data.y)
    >>> model.predict_interval(data.X, coverage=[0.5, 0.9]).shape
    (300, 2, 2)
    """

    _parameter_constraints: dict = {  # noqa: RUF012  (the name and type scikit-learn asks for)
        "n_estimators": [Interval(Integral, 1, None, closed="left")],
        "max_features": [Interval(Real, 0, 1, closed="right")],
        "min_samples_leaf": [Interval(Integral, 1, None, closed="left")],
        "max_samples": [Interval(Integral, 1, None, closed="left"), None],
        "calibration_fraction": [Interval(Real, 0, 1, closed="neither")],
        "levels": ["array-like", None],
        "tune_levels": ["boolean"],
        "coverage_factor": [Interval(Real, 0, 1, closed="both")],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }
    _learnt = ("levels_", "lower_levels_", "corrections_", "forest_")

    def __init__(
        self,
        *,
        n_estimators: int = 1000,
        max_features: float = 1.0,
        min_samples_leaf: int = 1,
        max_samples: int | None = 10_000,
        calibration_fraction: float = 0.5,
        levels: ArrayLike | None = None,
        tune_levels: bool = True,
        coverage_factor: float = 0.85,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 1,
    ) -> None:
        self.n_estimators = n_estimators
        self.max_features = max_features
        self.min_samples_leaf = min_samples_leaf
        self.max_samples = max_samples
        self.calibration_fraction = calibration_fraction
        self.levels = levels
        self.tune_levels = tune_levels
        self.coverage_factor = coverage_factor
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, table: Table) -> None:
        self.levels_ = _levels(self.levels)
        fitted, held = _split(table, float(self.calibration_fraction))
        forest = grow(
            table.features[fitted],
            table.values[fitted],
            table.weight[fitted],
            seed=table.seed,
            n_estimators=int(self.n_estimators),
            max_features=float(self.max_features),
            min_samples_leaf=int(self.min_samples_leaf),
            max_samples=self.max_samples,
            n_jobs=self.n_jobs,
            progress=bool(self.verbose),
        )
        self.lower_levels_ = (1.0 - self.levels_) / 2.0
        if self.tune_levels:
            self.lower_levels_ = self._tuned(table, fitted, forest)
        scores = _scores(forest, table.features[held], table.values[held], self.lower_levels_)
        self.corrections_ = np.array(
            [smallest_covering(s, table.weight[held], c) for s, c in zip(scores.T, self.levels_, strict=True)]
        )
        self.forest_: dict[str, np.ndarray] = forest._asdict()

    def _learn_constant(self) -> None:
        self.levels_ = _levels(self.levels)
        self.lower_levels_, self.corrections_ = (1.0 - self.levels_) / 2.0, np.zeros(len(self.levels_))
        self.forest_ = {}

    def _distribution(self, features: np.ndarray) -> PredictiveDistribution:
        corrections = Corrections(self.levels_, self.lower_levels_, self.corrections_)
        return ConformalDistribution(Forest(**self.forest_), corrections, features)

    def _tuned(self, table: Table, fitted: np.ndarray, forest: Forest) -> np.ndarray:
        """For each coverage the lower quantile level that out-of-bag rows choose."""
        weight = table.weight[fitted]
        some = np.arange(min(len(fitted), TUNING_ROWS))  # canonical order is as good as a random one
        cumulative = np.cumsum(weight) / weight.sum()
        draws = len(fitted) if self.max_samples is None else min(len(fitted), int(self.max_samples))
        bags = (in_bag(cumulative, draws, table.seed, t)[some] for t in range(int(self.n_estimators)))
        unseen = np.stack([bag == 0 for bag in bags], axis=1)
        rows = fitted[some]
        p = forest.probabilities(table.features[rows], table.values[rows], unseen)
        known = np.isfinite(p[:, 0])
        if not known.any():
            return self.lower_levels_
        p, weight = p[known], weight[some][known]
        chosen = self.lower_levels_.copy()
        for k, level in enumerate(self.levels_):
            for lower in self.lower_levels_[k] + np.linspace(0.0, RANGE, STEPS):
                # y is at or above the quantile of level q if P(Y <= y) >= q, at or below it if P(Y < y) < q
                inside = (p[:, 1] >= lower - ROUNDING) & (p[:, 0] < 1.0 - lower - ROUNDING)
                if lower >= 0.5 or weight @ inside < self.coverage_factor * level * weight.sum():
                    break
                chosen[k] = lower
        return chosen


def smallest_covering(scores: np.ndarray, weight: np.ndarray, level: float) -> float:
    """The smallest score at or below which lies the weight ``level (total + 1)``; infinity if there is not enough.

    With weights of 1 this is the ceil(level (n + 1))-th smallest of n scores: one more outcome from the same source
    has a score at most that with probability at least ``level``.
    """
    order = np.argsort(scores, kind="stable")
    total = np.cumsum(weight[order])
    at = int(np.searchsorted(total, level * (total[-1] + 1.0) - ROUNDING))
    return float(scores[order[at]]) if at < len(scores) else np.inf


def _levels(levels: ArrayLike | None) -> np.ndarray:
    if levels is None:
        return np.array(LEVELS)
    c = np.asarray(levels)
    if c.ndim != 1 or not c.size or c.dtype.kind not in "iuf" or not np.all((c > 0) & (c < 1)):
        raise ValueError(f"levels lists coverages between 0 and 1, such as [0.5, 0.9]; got {levels!r}.")
    return np.unique(c.astype(float))


def _split(table: Table, fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows for the forest and rows for the corrections, at least one each, in canonical order."""
    order = np.random.default_rng(table.seed).permutation(len(table.values))
    share = np.cumsum(table.weight[order]) / table.weight.sum()
    # a share that is met but for rounding is met
    first = min(1 + int(np.searchsorted(share, 1.0 - fraction - ROUNDING)), len(order) - 1)
    return np.sort(order[:first]), np.sort(order[first:])


def _scores(forest: Forest, features: np.ndarray, y: np.ndarray, lower: np.ndarray) -> np.ndarray:
    """How far each outcome is outside each interval of the forest (n, K), negative inside."""
    k, scores = len(lower), np.empty((len(y), len(lower)))
    at = np.concatenate([lower, 1.0 - lower])
    for rows in _slices(len(y), 2 * k):
        quantiles = forest.quantiles(features[rows], at)
        scores[rows] = np.maximum(quantiles[:, :k] - y[rows, None], y[rows, None] - quantiles[:, k:])
    return scores


def _slices(n: int, width: int) -> Iterator[slice]:
    step = max(1, BYTE_BUDGET // (8 * 4 * width))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))
