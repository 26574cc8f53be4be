"""Joint distributions of two outputs, as Appendix E of the paper needs them: the face, and the Gaussian one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from collabnets.distribution import PredictiveDistribution, ScipyDistribution

Joint = TypeVar("Joint", bound="TwoOutputDistribution")


class TwoOutputDistribution(ABC):
    """A joint distribution of two outputs a row; the last axis of every point is the output.

    A point (2,) gives (n,), points (T, 2) give (n, T), and (n, T, 2) is read row by row. To evaluate each row
    at its own point, pass ``y[:, None, :]``.

    To implement one, write ``__len__``, ``_take``, ``_cdf`` and ``_logpdf`` of two float64 matrices (n, T),
    ``_draw``, ``marginal``, ``conditional``, ``mean`` and ``covariance``.
    """

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _take(self: Joint, index: np.ndarray) -> Joint: ...

    @abstractmethod
    def _cdf(self, z1: np.ndarray, z2: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _logpdf(self, z1: np.ndarray, z2: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _draw(self, size: int, rng: np.random.Generator) -> np.ndarray: ...

    @abstractmethod
    def marginal(self, output: int) -> PredictiveDistribution:
        """Distributions of one output (0 or 1), whatever the other is."""

    @abstractmethod
    def conditional(self, output: int, given: ArrayLike) -> PredictiveDistribution:
        """Distributions of one output when the other is ``given``, a number or one a row."""

    @abstractmethod
    def mean(self) -> np.ndarray:
        """Means, shape (n, 2)."""

    @abstractmethod
    def covariance(self) -> np.ndarray:
        """Covariance matrices, shape (n, 2, 2)."""

    def cdf(self, z: ArrayLike) -> np.ndarray:
        """P(Y_1 <= z_1 and Y_2 <= z_2)."""
        return self._at_points(self._cdf, z)

    def logpdf(self, z: ArrayLike) -> np.ndarray:
        """Logarithm of the joint density."""
        return self._at_points(self._logpdf, z)

    def pdf(self, z: ArrayLike) -> np.ndarray:
        """Joint density."""
        return np.exp(self.logpdf(z))

    def sample(self, size: int = 1, *, rng: int | np.random.Generator | None = 0) -> np.ndarray:
        """Draw ``size`` independent pairs a row, shape (size, n, 2); the same seed gives the same draws."""
        return self._draw(size, np.random.default_rng(rng))

    def __getitem__(self: Joint, index: int | slice | np.ndarray | list) -> Joint:
        return self._take(np.atleast_1d(np.arange(len(self))[index]))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} rows)"

    def _at_points(self, function: Callable[[np.ndarray, np.ndarray], np.ndarray], z: ArrayLike) -> np.ndarray:
        a = np.asarray(z, float)
        if a.ndim not in (1, 2, 3) or a.shape[-1] != 2 or (a.ndim == 3 and a.shape[0] != len(self)):
            raise ValueError(
                f"points have shape (2,), (T, 2) or (n, T, 2) with n = {len(self)} rows, not {a.shape}; to "
                "evaluate each row at its own point, pass y[:, None, :]."
            )
        if np.isnan(a).any():
            raise ValueError("the points contain NaN; drop or fill them first.")
        shape = (len(self), 1 if a.ndim == 1 else a.shape[-2], 2)
        points = np.broadcast_to(a, shape)
        out = function(points[..., 0], points[..., 1])
        return out[:, 0] if a.ndim == 1 else out


class BivariateGaussian(TwoOutputDistribution):
    """Two Gaussian outputs with one correlation.

    Parameters
    ----------
    mu, sigma
        Means and standard deviations (n, 2).
    rho
        Correlation, strictly between -1 and 1.
    """

    def __init__(self, mu: np.ndarray, sigma: np.ndarray, rho: float) -> None:
        if not -1.0 < rho < 1.0:
            raise ValueError(f"rho is a correlation strictly between -1 and 1, not {rho}.")
        check_positive(sigma=sigma)
        self.mu, self.sigma, self.rho = mu, sigma, rho

    def __len__(self) -> int:
        return len(self.mu)

    def _take(self, index: np.ndarray) -> BivariateGaussian:
        return type(self)(self.mu[index], self.sigma[index], self.rho)

    def _cdf(self, z1: np.ndarray, z2: np.ndarray) -> np.ndarray:
        h = np.clip((z1 - self.mu[:, :1]) / self.sigma[:, :1], -40.0, 40.0)
        k = np.clip((z2 - self.mu[:, 1:]) / self.sigma[:, 1:], -40.0, 40.0)
        # Plackett: d Phi_2 / d rho is the density; with rho = sin(theta) the integrand is smooth
        x, w = np.polynomial.legendre.leggauss(64)
        half = 0.5 * np.arcsin(self.rho)
        out = special.ndtr(h) * special.ndtr(k)
        for node, weight in zip(half * (x + 1.0), half * w, strict=True):
            sine = np.sin(node)
            out += weight / (2 * np.pi) * np.exp(-0.5 * (h * h + k * k - 2 * h * k * sine) / (1 - sine * sine))
        return np.clip(out, 0.0, 1.0)

    def _logpdf(self, z1: np.ndarray, z2: np.ndarray) -> np.ndarray:
        h = (z1 - self.mu[:, :1]) / self.sigma[:, :1]
        k = (z2 - self.mu[:, 1:]) / self.sigma[:, 1:]
        rest = 1.0 - self.rho**2
        scale = np.log(2 * np.pi * np.sqrt(rest) * self.sigma.prod(axis=1))[:, None]
        return -0.5 * (h * h + k * k - 2 * self.rho * h * k) / rest - scale

    def _draw(self, size: int, rng: np.random.Generator) -> np.ndarray:
        return self._transform(rng.standard_normal((size, len(self), 2)))

    def _transform(self, e: np.ndarray) -> np.ndarray:
        """Turn independent standard normals (..., n, 2) into outcomes."""
        second = self.rho * e[..., 0] + np.sqrt(1.0 - self.rho**2) * e[..., 1]
        return self.mu + self.sigma * np.stack([e[..., 0], second], axis=-1)

    def marginal(self, output: int) -> PredictiveDistribution:
        """Distributions of one output (0 or 1): Gaussian."""
        k = check_output(output)
        return ScipyDistribution(stats.norm, loc=self.mu[:, k], scale=self.sigma[:, k])

    def conditional(self, output: int, given: ArrayLike) -> PredictiveDistribution:
        """Distributions of one output when the other is ``given``: Gaussian."""
        k = check_output(output)
        other = (each_row(given, len(self)) - self.mu[:, 1 - k]) / self.sigma[:, 1 - k]
        return ScipyDistribution(
            stats.norm,
            loc=self.mu[:, k] + self.rho * self.sigma[:, k] * other,
            scale=self.sigma[:, k] * np.sqrt(1.0 - self.rho**2),
        )

    def mean(self) -> np.ndarray:
        """Means, shape (n, 2)."""
        return self.mu.copy()

    def covariance(self) -> np.ndarray:
        """Covariance matrices, shape (n, 2, 2)."""
        correlation = np.array([[1.0, self.rho], [self.rho, 1.0]])
        return self.sigma[:, :, None] * self.sigma[:, None, :] * correlation


def check_positive(**parameters: np.ndarray) -> None:
    """Refuse parameters that are not positive, by name."""
    for name, value in parameters.items():
        if np.any(value <= 0):
            raise ValueError(f"{name} is positive, but one of its values is {np.min(value)}.")


def check_output(output: int) -> int:
    """Refuse an output that is neither 0 nor 1."""
    if output not in (0, 1):
        raise ValueError(f"output is 0 or 1, not {output!r}.")
    return output


def each_row(value: ArrayLike, n: int) -> np.ndarray:
    """One value for each of the n rows, from a number or a vector."""
    a = np.asarray(value, float)
    if a.ndim > 1 or (a.ndim == 1 and len(a) != n):
        raise ValueError(f"the given output is a number or has one value for each of the {n} rows, not {a.shape}.")
    return np.broadcast_to(a, n)
