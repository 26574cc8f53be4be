"""The face that every probabilistic regressor of the library has, and the table that most of them learn from."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin, _fit_context
from sklearn.utils import check_array, check_random_state, column_or_1d
from sklearn.utils.validation import _check_n_features, _check_sample_weight, check_is_fitted, validate_data

from collabnets.distribution import PointMass, PredictiveDistribution
from collabnets.preprocessing import Columns, Outcome, align, canonical_rows, feature_names, frame_or_array

POINT_ESTIMATES = ("median", "mean")


class DistributionRegressor(RegressorMixin, BaseEstimator):
    """A regressor whose prediction is a distribution.

    To implement one, write ``__init__`` (with ``point_estimate`` among its parameters), ``fit`` and ``predict_dist``.
    What ``fit`` leaves on the model for ``predict_dist`` is plain data (numbers, texts, NumPy arrays, fitted estimators
    of this library, and lists and dicts of them) in attributes that ``_learnt`` names; then pickles, copies and
    ``save`` work by themselves.
    """

    _learnt: ClassVar[tuple[str, ...]] = ()
    point_estimate: str = "median"

    @abstractmethod
    def predict_dist(self, X: Any) -> PredictiveDistribution:
        """Predictive distribution of every row of X."""

    def predict(self, X: Any) -> np.ndarray:
        """Point prediction (n,): the conditional median, or with ``point_estimate="mean"`` the mean.

        An array also for a DataFrame, as scikit-learn's meta-estimators expect.
        """
        dist = self.predict_dist(X)
        return dist.mean() if self.point_estimate == "mean" else dist.median()

    def predict_quantiles(self, X: Any, levels: ArrayLike) -> np.ndarray | pd.DataFrame | pd.Series:
        """Conditional quantiles, (n, L) for a vector of levels and (n,) for a single one.

        A DataFrame gives a DataFrame with its index and a column a level (a Series for a single level).
        """
        levels = np.asarray(levels)
        if levels.ndim > 1:
            raise ValueError(f"levels is a number or a vector of numbers, not an array of shape {levels.shape}.")
        values = self.predict_dist(X).icdf(levels)
        if not isinstance(X, pd.DataFrame):
            return values
        if levels.ndim == 0:
            return pd.Series(values, index=X.index, name=float(levels))
        return pd.DataFrame(values, index=X.index, columns=pd.Index(levels.astype(float), name="quantile"))

    def predict_interval(self, X: Any, coverage: ArrayLike = 0.9) -> np.ndarray | pd.DataFrame:
        """Equal-tailed prediction intervals, (n, 2) for one coverage and (n, 2, L), nested, for several.

        A DataFrame gives a DataFrame with its index and columns ``lower`` and ``upper``, under each coverage if there
        are several.
        """
        ends = self.predict_dist(X).interval(coverage)
        if not isinstance(X, pd.DataFrame):
            return ends
        bounds = ["lower", "upper"]
        if ends.ndim == 2:
            return pd.DataFrame(ends, index=X.index, columns=bounds)
        columns = pd.MultiIndex.from_product([np.asarray(coverage, float), bounds], names=["coverage", "bound"])
        return pd.DataFrame(np.swapaxes(ends, 1, 2).reshape(len(ends), -1), index=X.index, columns=columns)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file that holds data only; ``load_model`` reads it and predicts the same.

        What only a fit needs and is code (an optimizer, p(q) or p(Z) of your own) is left out.
        """
        from collabnets import modelfile

        check_is_fitted(self)
        modelfile.save(self, Path(path))

    def _state(self) -> dict[str, Any]:
        """What a fit left, as plain data."""
        return {name: getattr(self, name) for name in self._learnt if hasattr(self, name)}

    def _set_state(self, state: dict[str, Any]) -> None:
        """Take over what ``_state`` of a fitted model gave."""
        for name, value in state.items():
            setattr(self, name, value)


class Table(NamedTuple):
    """A checked table in canonical order: as it was given, and in the units of a network.

    Attributes
    ----------
    columns, outcome
        How columns became features, and location and scale of the outcome.
    rows, values
        Distinct rows of X as they were given, and their outcomes in float64.
    features, y
        The same in network units, float32: (n, p) and (n,).
    weight
        How often each row counts, float64, mean 1.
    seed
        Drawn from ``random_state``.
    """

    columns: Columns
    outcome: Outcome
    rows: Any
    values: np.ndarray
    features: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    seed: int

    @staticmethod
    def read(model: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Table:
        """Check a table and put it into canonical order; sets what scikit-learn wants to see on the model."""
        if y is None:
            raise ValueError(
                f"This {type(model).__name__} estimator requires y to be passed, but the target y is None."
            )
        X = frame_or_array(X)
        if hasattr(X, "columns"):
            feature_names(X)  # refuses names that are not clear, in our own words
            validate_data(model, X, skip_check_array=True)
            outcome = column_or_1d(y, warn=True)
        else:
            X, outcome = validate_data(model, X, y, dtype=None, ensure_all_finite=False, y_numeric=False)
            outcome = column_or_1d(outcome, warn=True)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        index, weight = canonical_rows(X, outcome, sample_weight)
        X = X.iloc[index] if hasattr(X, "columns") else X[index]
        values = np.asarray(outcome)[index].astype(float)
        standardize = bool(getattr(model, "standardize", True))
        columns = Columns.fit(X, weight, standardize=standardize)
        scale = Outcome.fit(values, weight, standardize=standardize)
        seed = int(check_random_state(model.random_state).randint(2**31 - 1))
        features = columns.transform(X)
        return Table(columns, scale, X, values, features, scale.transform(values), weight / weight.mean(), seed)


class TableRegressor(DistributionRegressor):
    """A regressor that learns from a `Table`; the checks, the units and the constant outcome are dealt with here.

    To implement one, write ``__init__`` (which only stores; ``point_estimate`` and ``random_state`` among its
    parameters), ``_parameter_constraints``, ``_learn`` and ``_distribution``, and list in ``_learnt`` what the one
    leaves for the other.
    """

    random_state: int | np.random.RandomState | None = None

    @abstractmethod
    def _learn(self, table: Table) -> None:
        """Learn from a table whose outcome varies."""

    @abstractmethod
    def _distribution(self, features: np.ndarray) -> PredictiveDistribution:
        """Distributions, in the units of y, of rows in network units (n, p)."""

    def _learn_constant(self) -> None:
        """Leave on the model what it needs besides the point mass, for an outcome that never varied."""

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from a table X, a DataFrame (categories and missing values included) or an array, and an outcome y.

        Parameters
        ----------
        X
            Features, n rows.
        y
            Outcome (n,), finite numbers. A constant outcome gives a point mass, with a warning.
        sample_weight
            Weights (n,) that act as repetitions; None is 1 each.
        """
        table = Table.read(self, X, y, sample_weight)
        self.columns_, self.outcome_ = table.columns, table.outcome
        if table.outcome.constant:
            warn_of_constant(table.outcome, stacklevel=4)
            self._learn_constant()
        else:
            self._learn(table)
        return self

    def predict_dist(self, X: Any) -> PredictiveDistribution:
        """Predictive distribution of every row of X; columns in another order than at fit are refused."""
        check_is_fitted(self)
        X = frame_or_array(X)
        X = align(X, self.columns_.feature_names_in, estimator_name=type(self).__name__, reorder=False)
        if not hasattr(X, "columns"):
            X = check_array(X, dtype=None, ensure_all_finite=False, estimator=self)
            _check_n_features(self, X, reset=False)
        features = self.columns_.transform(X)
        if self.outcome_.constant:
            return PointMass(np.full(len(features), self.outcome_.loc))
        return self._distribution(features)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def warn_of_constant(outcome: Outcome, stacklevel: int) -> None:
    """Say that an outcome does not vary."""
    warnings.warn(
        f"the outcome is constant ({outcome.loc:g}); every prediction is a point mass there.",
        UserWarning,
        stacklevel=stacklevel,
    )
