"""The smallest estimator with the face of the library: least squares and one standard deviation."""

from numbers import Real

import numpy as np
from scipy import stats
from sklearn.utils._param_validation import Interval

from collabnets.distribution import ScipyDistribution
from collabnets.estimator import TableRegressor


class LinearGaussian(TableRegressor):
    """A Gaussian around a ridge regression; ``widen`` makes it as badly calibrated as a test needs it."""

    _parameter_constraints: dict = {  # noqa: RUF012  (the name and type scikit-learn asks for)
        "ridge": [Interval(Real, 0, None, closed="left")],
        "widen": [Interval(Real, 0, None, closed="neither")],
        "random_state": ["random_state"],
    }
    _learnt = ("coefficients_", "deviation_")

    def __init__(self, *, ridge=1e-6, widen=1.0, random_state=None):
        self.ridge = ridge
        self.widen = widen
        self.random_state = random_state

    def _learn(self, table):
        A = self._design(table.features)
        y = (table.values - table.outcome.loc) / table.outcome.scale
        normal = (A * table.weight[:, None]).T @ A + self.ridge * len(y) * np.eye(A.shape[1])
        self.coefficients_ = np.linalg.solve(normal, A.T @ (table.weight * y))
        residual = y - A @ self.coefficients_
        self.deviation_ = float(np.sqrt(np.mean(table.weight * residual**2)) + 1e-3)

    def _distribution(self, features):
        mean = (self._design(features) * self.coefficients_).sum(axis=1)
        scale = self.outcome_.scale
        return ScipyDistribution(
            stats.norm, loc=self.outcome_.loc + scale * mean, scale=self.widen * scale * self.deviation_
        )

    @staticmethod
    def _design(features):
        return np.column_stack([np.ones(len(features)), features.astype(float)])
