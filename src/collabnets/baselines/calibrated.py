"""Calibrated regression (CR): a map of levels, learnt on held-out rows, on top of any estimator of the library.

A model says F(y | x) for rows it has not seen. If it is calibrated these values are uniform; if not, their empirical
distribution R says what each level is really worth, and R(F(z | x)) is calibrated on average [1]_. With R come the
whole distribution: quantiles F^-1(R^-1(q)) and the density R'(F(z)) f(z). Nothing is learnt about x, so a sharper
order of the rows cannot come out of it.

References
----------
.. [1] V. Kuleshov, N. Fenner, S. Ermon, "Accurate uncertainties for deep learning using calibrated regression",
   ICML 2018.
"""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit
from sklearn.base import _fit_context, clone
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from collabnets.distribution import PointMass, PredictiveDistribution, Support
from collabnets.estimator import POINT_ESTIMATES, DistributionRegressor, Table
from collabnets.preprocessing import Outcome, align
from collabnets.regressor import CollaboratingRegressor

# A probability that has vanished below the smallest number stands for an outcome that nevertheless came.
SMALLEST = 1e-300
# An upper tail below this is solved for, as 1 minus it would have too few digits left.
THIN = 1e-6


class Recalibration(NamedTuple):
    """A strictly increasing, piecewise linear map R of [0, 1] onto itself: predicted level -> empirical level.

    A level p comes as a pair with its complement 1 - p, so that it keeps its digits in either tail.

    Attributes
    ----------
    predicted
        Knots (K, 2): predicted levels from 0 to 1, and their complements.
    empirical
        R at the knots (K,), from 0 to 1.
    """

    predicted: np.ndarray
    empirical: np.ndarray

    @staticmethod
    def identity() -> Recalibration:
        """Change nothing."""
        ends = np.array([0.0, 1.0])
        return Recalibration(np.column_stack([ends, 1.0 - ends]), ends)

    @staticmethod
    def learn(cdf: np.ndarray, ccdf: np.ndarray, weight: np.ndarray, n_levels: int | None = None) -> Recalibration:
        """Join the points (p_(k), k / (n + 1)) of the n sorted PIT values by lines, and (0, 0) and (1, 1) with them.

        k / (n + 1) is the mean of the k-th smallest of n uniform numbers, so that a calibrated model is left alone on
        average. Equal values share the mean of their ranks; a weight of w counts as w equal values.

        Parameters
        ----------
        cdf, ccdf
            P(Y <= y_i | x_i) and P(Y > y_i | x_i) (n,).
        weight
            Weights (n,), positive.
        n_levels
            Keep the knots nearest to this many evenly spaced empirical levels; None keeps all.
        """
        lower = cdf <= 0.5
        smaller = np.maximum(np.where(lower, cdf, ccdf), SMALLEST)  # the accurate one of the two
        order = np.lexsort((np.where(lower, smaller, -smaller), ~lower))
        smaller, lower, weight = smaller[order], lower[order], weight[order]
        new = np.flatnonzero(np.r_[True, (np.diff(smaller) != 0) | (np.diff(lower) != 0)])
        smaller, lower, weight = smaller[new], lower[new], np.add.reduceat(weight, new)
        before = np.cumsum(weight) - weight
        level = (before + 0.5 * (weight + 1.0)) / (weight.sum() + 1.0)
        if n_levels is not None and n_levels < len(level):
            at = np.searchsorted(0.5 * (level[1:] + level[:-1]), np.arange(1, n_levels + 1) / (n_levels + 1))
            smaller, lower, level = (a[np.unique(at)] for a in (smaller, lower, level))
        p, s = np.where(lower, smaller, 1.0 - smaller), np.where(lower, 1.0 - smaller, smaller)
        predicted = np.column_stack([np.r_[0.0, p, 1.0], np.r_[1.0, s, 0.0]])
        return Recalibration(predicted, np.r_[0.0, level, 1.0])

    def forward(self, p: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """R(p) and 1 - R(p), from p and s = 1 - p."""
        below = np.interp(p, self.predicted[:, 0], self.empirical)
        above = np.interp(s, self.predicted[::-1, 1], 1.0 - self.empirical[::-1])
        return np.where(p <= 0.5, below, 1.0 - above), np.where(p <= 0.5, 1.0 - below, above)

    def backward(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The p with R(p) = q, and 1 - p."""
        below = np.interp(q, self.empirical, self.predicted[:, 0])
        above = np.interp(1.0 - q, 1.0 - self.empirical[::-1], self.predicted[::-1, 1])
        return np.where(below <= 0.5, below, 1.0 - above), np.where(below <= 0.5, 1.0 - below, above)

    def log_slope(self, p: np.ndarray, s: np.ndarray) -> np.ndarray:
        """Logarithm of R'(p), constant between knots."""
        last = len(self.empirical) - 2
        lower = np.clip(np.searchsorted(self.predicted[:, 0], p, side="right") - 1, 0, last)
        upper = last - np.clip(np.searchsorted(self.predicted[::-1, 1], s, side="left") - 1, 0, last)
        rise = np.log(np.diff(self.empirical))
        with np.errstate(divide="ignore"):  # knots that are equal in the digits of the tail which is not theirs
            run = np.log(np.diff(self.predicted[:, 0])), np.log(-np.diff(self.predicted[:, 1]))
        return np.where(p <= 0.5, rise[lower] - run[0][lower], rise[upper] - run[1][upper])

    def rule(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Nodes p, their complements and weights w with sum w h(p) ~ the integral of h(p) dR(p), for smooth h.

        Panels in logit(p) end at knots, at most some hundreds, and are at most 1 long; between the knots that a panel
        still holds, dR is integrated against the polynomials of the panel's own nodes.
        """
        with np.errstate(divide="ignore"):
            knots = np.log(self.predicted[1:-1, 0]) - np.log(self.predicted[1:-1, 1])
        if not len(knots):
            knots = np.zeros(1)
        ladder = np.arange(knots[0] - 21.0, knots[-1] + 22.0)  # 1e-9 of the last segments' probability is left out
        ends = np.union1d(ladder, knots[:: max(1, len(knots) // 500)])
        x, weight = np.polynomial.legendre.leggauss(6)

        def nodes(ends: np.ndarray) -> np.ndarray:
            return ends[:-1, None] + 0.5 * np.diff(ends)[:, None] * (1.0 + x)

        fine = np.union1d(ends, knots)
        t = nodes(fine)
        p, s = expit(t), expit(-t)
        mass = 0.5 * np.diff(fine)[:, None] * weight * p * s * np.exp(self.log_slope(p, s))
        panel = np.searchsorted(ends, fine[:-1], side="right") - 1
        at = 2.0 * (t - ends[panel][:, None]) / np.diff(ends)[panel][:, None] - 1.0
        basis = np.vander(at.ravel(), 6) @ np.linalg.inv(np.vander(x))
        where = np.repeat(panel, 6)
        shares = np.column_stack([np.bincount(where, mass.ravel() * b, len(ends) - 1) for b in basis.T])
        t = nodes(ends).ravel()
        return expit(t), expit(-t), shares.ravel() / shares.sum()


class CalibratedDistribution(PredictiveDistribution):
    """Distributions with the cdf R(F(z)) for distributions F and one map R of levels.

    Parameters
    ----------
    inner
        The distributions F.
    recalibration
        The map R.
    """

    def __init__(self, inner: PredictiveDistribution, recalibration: Recalibration) -> None:
        self.inner, self.recalibration = inner, recalibration

    def __len__(self) -> int:
        return len(self.inner)

    def _take(self, index: np.ndarray) -> CalibratedDistribution:
        return type(self)(self.inner[index], self.recalibration)

    def _cdf(self, z: np.ndarray) -> np.ndarray:
        return self.recalibration.forward(self.inner._cdf(z), self.inner._ccdf(z))[0]

    def _ccdf(self, z: np.ndarray) -> np.ndarray:
        return self.recalibration.forward(self.inner._cdf(z), self.inner._ccdf(z))[1]

    def _icdf(self, q: np.ndarray) -> np.ndarray:
        return _quantile(self.inner, *self.recalibration.backward(q))

    def _logpdf(self, z: np.ndarray) -> np.ndarray:
        return self.inner._logpdf(z) + self.recalibration.log_slope(self.inner._cdf(z), self.inner._ccdf(z))

    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        p, s, w = self.recalibration.rule()
        mean, variance = np.empty(len(self)), np.empty(len(self))
        for rows in self._chunks(len(p)):
            part = self.inner[rows]
            z = _quantile(part, *(np.broadcast_to(a, (len(part), len(a))) for a in (p, s)))
            mean[rows] = (z * w).sum(axis=1)  # not a product of matrices, whose last bit depends on the other rows
            variance[rows] = ((z - mean[rows, None]) ** 2 * w).sum(axis=1)
        return mean, variance

    def _support(self) -> Support:
        return self.inner.support()


def _quantile(dist: PredictiveDistribution, p: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Quantiles at levels p = 1 - s, with the digits of s in the upper tail."""
    z = dist._icdf(p)
    thin = (s < THIN) & (s > 0)
    columns = np.flatnonzero(thin.any(axis=0))
    if len(columns):
        z[:, columns] = np.where(thin[:, columns], _upper_quantile(dist, s[:, columns]), z[:, columns])
    return z


def _upper_quantile(dist: PredictiveDistribution, s: np.ndarray) -> np.ndarray:
    """The z with P(Y > z) = s for small s > 0, by bracketing and bisection of the ccdf."""
    start = dist._icdf(np.full(s.shape, 1.0 - 2 * THIN))
    step = start - dist._icdf(np.full(s.shape, 0.5))
    low, high = start, start + step
    for _ in range(64):
        beyond = dist._ccdf(high) > s
        if not beyond.any():
            break
        low, step = np.where(beyond, high, low), 2.0 * step
        high = np.where(beyond, high + step, high)
    for _ in range(64):
        middle = 0.5 * (low + high)
        beyond = dist._ccdf(middle) > s
        low, high = np.where(beyond, middle, low), np.where(beyond, high, middle)
    return 0.5 * (low + high)


class CalibratedRegressor(DistributionRegressor):
    """CR: any estimator of the library, recalibrated on rows that it did not see.

    A copy of the estimator is fitted on a part of the rows; where the outcomes of the others fall in its predictions
    gives a map from predicted to empirical levels; then the estimator is fitted on all rows and every prediction
    passes through the map (the paper's Appendix C.1.3). ``CalibratedRegressor(MCDropoutRegressor())`` is its DP-CR.

    Parameters
    ----------
    estimator
        The estimator to calibrate, with the face of `DistributionRegressor`; None is ``CollaboratingRegressor()``.
        It is cloned; a ``random_state`` of None in it is set from that of this estimator.
    calibration_fraction
        Share of the rows, by weight, that only the map sees.
    n_levels
        Knots of the map at about this many evenly spaced levels. None, the paper's way, puts one at every held-out
        row: the finest map, whose density jumps at each of them. That costs about 0.42 in `log_score` however many
        rows there are; 20 levels on some hundred rows cost nearly nothing. Intervals and gof change little.
    point_estimate
        What ``predict`` returns: ``"median"`` or ``"mean"``.
    random_state
        Seed of the split.

    Attributes
    ----------
    estimator_ : DistributionRegressor
        The estimator, fitted on all rows.
    predicted_levels_ : ndarray of shape (K, 2)
        Knots of the map: levels predicted for the held-out rows, sorted, with 0 and 1; and their complements.
    empirical_levels_ : ndarray of shape (K,)
        What these levels were worth.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    The map was made for the estimator of the smaller part, so it is not exact for that of all rows: a model that
    sharpens much with more rows comes out too wide. Coverage on finite data is not guaranteed.

    Examples
    --------
    >>> from collabnets import CollaboratingRegressor
    >>> from collabnets.baselines import CalibratedRegressor
    >>> from collabnets.datasets import heteroskedastic_gaussian
    >>> data = heteroskedastic_gaussian(300)
    >>> inner = CollaboratingRegressor(pretrain_iter=500, max_iter=0)
    >>> model = CalibratedRegressor(inner, random_state=0).fit(data.X, data.y)
    >>> model.predict_interval(data.X, coverage=0.9).shape
    (300, 2)
    """

    _parameter_constraints: dict = {  # noqa: RUF012  (the name and type scikit-learn asks for)
        "estimator": [HasMethods(["fit", "predict_dist"]), None],
        "calibration_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_levels": [Interval(Integral, 1, None, closed="left"), None],
        "point_estimate": [StrOptions(set(POINT_ESTIMATES))],
        "random_state": ["random_state"],
    }
    _learnt = ("estimator_", "predicted_levels_", "empirical_levels_")

    def __init__(
        self,
        estimator: DistributionRegressor | None = None,
        *,
        calibration_fraction: float = 0.4,
        n_levels: int | None = None,
        point_estimate: str = "median",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.estimator = estimator
        self.calibration_fraction = calibration_fraction
        self.n_levels = n_levels
        self.point_estimate = point_estimate
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the estimator on a part of the rows, the map on the others, and the estimator again on all.

        Parameters
        ----------
        X
            Features, n rows, as the estimator takes them.
        y
            Outcome (n,), finite numbers. A constant outcome gives the estimator's own answer to it.
        sample_weight
            Weights (n,) that act as repetitions; None is 1 each.
        """
        table = Table.read(self, X, y, sample_weight)
        recalibration = Recalibration.identity()
        if not table.outcome.constant:
            fitted, held = self._split(table)
            if not len(held) or Outcome.fit(table.values[fitted], table.weight[fitted]).constant:
                warnings.warn(
                    f"{len(table.values)} distinct rows are too few to hold some out and learn from the others; "
                    "the distributions are not calibrated.",
                    UserWarning,
                    stacklevel=3,
                )
            else:
                dist = self._fitted(table, fitted).predict_dist(_rows(table.rows, held))
                at = table.values[held, None]
                recalibration = Recalibration.learn(
                    dist.cdf(at)[:, 0], dist.ccdf(at)[:, 0], table.weight[held], self.n_levels
                )
        self.estimator_ = self._fitted(table)
        self.predicted_levels_, self.empirical_levels_ = recalibration
        return self

    def predict_dist(self, X: Any) -> PredictiveDistribution:
        """Predictive distribution of every row of X; columns in another order than at fit are refused."""
        check_is_fitted(self)
        align(X, getattr(self, "feature_names_in_", None), estimator_name=type(self).__name__, reorder=False)
        with warnings.catch_warnings():  # what was just said for this estimator is not said again for the inner one
            warnings.filterwarnings("ignore", "X (has|does not have valid) feature names", UserWarning)
            dist = self.estimator_.predict_dist(X)
        if isinstance(dist, PointMass):
            return dist
        return CalibratedDistribution(dist, Recalibration(self.predicted_levels_, self.empirical_levels_))

    def _split(self, table: Table) -> tuple[np.ndarray, np.ndarray]:
        """Rows for the fit and rows for the map, in canonical order; the former carry at least their share."""
        order = np.random.default_rng(table.seed).permutation(len(table.values))
        share = np.cumsum(table.weight[order]) / table.weight.sum()
        # a share that is met but for rounding is met
        first = 1 + int(np.searchsorted(share, 1.0 - self.calibration_fraction - 1e-9))
        other = np.flatnonzero(table.values[order] != table.values[order[0]])[0]
        if other >= first:  # the fit needs an outcome that varies
            order[[first - 1, other]] = order[[other, first - 1]]
        return np.sort(order[:first]), np.sort(order[first:])

    def _fitted(self, table: Table, index: np.ndarray | None = None) -> Any:
        """A copy of the estimator, fitted on some rows of a table or on all."""
        model = CollaboratingRegressor() if self.estimator is None else clone(self.estimator)
        parameters = model.get_params()
        seedless = [k for k, v in parameters.items() if k.split("__")[-1] == "random_state" and v is None]
        model.set_params(**dict.fromkeys(seedless, table.seed))
        if index is not None and parameters.get("checkpoint") is not None:
            model.set_params(checkpoint=Path(f"{parameters['checkpoint']}.part"))  # two fits, two files
        if index is None:
            index = np.arange(len(table.values))
        X, y, weight = _rows(table.rows, index), table.values[index], table.weight[index]
        if np.all(weight == weight[0]):
            return model.fit(X, y)
        if not has_fit_parameter(model, "sample_weight"):
            raise ValueError(
                f"{type(model).__name__}.fit takes no sample_weight, which weights and repeated rows need; leave "
                "them out, or calibrate another estimator."
            )
        return model.fit(X, y, sample_weight=weight)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _rows(X: Any, index: np.ndarray) -> Any:
    return X.iloc[index] if hasattr(X, "columns") else X[index]
