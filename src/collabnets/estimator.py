"""The face that every probabilistic regressor of the library has; only ``predict_dist`` differs."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin

from collabnets.distribution import PredictiveDistribution

POINT_ESTIMATES = ("median", "mean")


class DistributionRegressor(RegressorMixin, BaseEstimator):
    """A regressor whose prediction is a distribution.

    To implement one, write ``__init__`` (with ``point_estimate`` among its parameters), ``fit`` and ``predict_dist``.
    """

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
