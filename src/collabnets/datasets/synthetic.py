"""The paper's synthetic data, each with the true distribution of y given X: "TH" is just another model.

Section 5.2 (`sinusoid`), 5.3.1 (`heteroskedastic_gaussian`), 5.3.2 (`weibull`) and the two cases with two
outputs of Appendix E (`bivariate_gaussian`, `circular`). The random draws come in the order of the authors'
notebooks, so seed 2020 gives the very rows behind their Tables 1 and 2.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from collabnets.distribution import BYTE_BUDGET, PredictiveDistribution, ScipyDistribution, Support

Truth = TypeVar("Truth")
Joint = TypeVar("Joint", bound="TwoOutputDistribution")
Seed = int | np.integer | np.random.RandomState | None

_HALF_PI = 0.5 * np.pi


@dataclass(frozen=True)
class Synthetic(Generic[Truth]):
    """Rows of one synthetic experiment and what is true about them.

    Attributes
    ----------
    X
        Features (n, p), float64.
    y
        Outcome (n,), or (n, 2) for the cases with two outputs.
    truth_at
        Gives the true distributions of y for the rows of any X; of a DataFrame it takes the columns by name.
    feature_names
        Names of the columns of X.
    """

    X: np.ndarray
    y: np.ndarray
    truth_at: Callable[[ArrayLike], Truth]
    feature_names: tuple[str, ...]

    @property
    def truth(self) -> Truth:
        """The true distributions of y given X, one a row."""
        return self.truth_at(self.X)


# ------------------------------------------------------------------------------------------------- one output
def sinusoid(
    n: int = 100, *, random_state: Seed = 2020, equally_spaced: bool = True
) -> Synthetic[PredictiveDistribution]:
    """Section 5.2: y ~ N(sin 4 pi x, (0.5 + 0.3 sin 4 pi x)^2) for x in [-0.5, 0.5].

    Parameters
    ----------
    n
        Number of rows.
    random_state
        Seed or generator of NumPy's legacy kind.
    equally_spaced
        The grid of Figure 2; False draws x uniformly, as for the test rows behind Figure 3.
    """
    rng = _legacy_generator(random_state)
    n = _rows(n)
    x = np.linspace(-0.5, 0.5, n) if equally_spaced else rng.uniform(-0.5, 0.5, n)
    mean = np.sin(4 * np.pi * x)
    y = rng.normal(mean, 0.5 + 0.3 * mean)
    return Synthetic(x[:, None], y, sinusoid_truth, _SINUSOID)


def sinusoid_truth(X: ArrayLike) -> PredictiveDistribution:
    """True distributions of the sinusoid at the rows of X."""
    (x,) = _columns(X, _SINUSOID)
    mean = np.sin(4 * np.pi * x)
    return ScipyDistribution(stats.norm, loc=mean, scale=0.5 + 0.3 * mean)


def heteroskedastic_gaussian(n: int = 1000, *, random_state: Seed = 2020) -> Synthetic[PredictiveDistribution]:
    """Section 5.3.1: y ~ N(mu, sigma^2) with mu ~ N(0, 4), sigma ~ U(0.5, 2.5) and x = [mu, sigma].

    The 4 is a variance. The paper prints the range of sigma as "Unif(0.5,2,5)", a comma for the point.
    """
    rng = _legacy_generator(random_state)
    n = _rows(n)
    mu = rng.normal(scale=2.0, size=n)
    sigma = rng.uniform(0.5, 2.5, n)
    y = rng.normal(mu, sigma)
    return Synthetic(np.column_stack([mu, sigma]), y, gaussian_truth, _GAUSSIAN)


def gaussian_truth(X: ArrayLike) -> PredictiveDistribution:
    """True distributions of the heteroskedastic Gaussian at the rows of X."""
    mu, sigma = _columns(X, _GAUSSIAN)
    _check_positive(sigma=sigma)
    return ScipyDistribution(stats.norm, loc=mu, scale=sigma)


def weibull(n: int = 1000, *, random_state: Seed = 2020) -> Synthetic[PredictiveDistribution]:
    """Section 5.3.2: y ~ Weibull with scale ~ U(0.5, 2), shape ~ U(1, 5) and x = [scale, shape]."""
    rng = _legacy_generator(random_state)
    n = _rows(n)
    shape = rng.uniform(1.0, 5.0, n)  # the authors draw the shape first
    scale = rng.uniform(0.5, 2.0, n)
    y = scale * rng.weibull(shape)
    return Synthetic(np.column_stack([scale, shape]), y, weibull_truth, _WEIBULL)


def weibull_truth(X: ArrayLike) -> PredictiveDistribution:
    """True distributions of the Weibull data at the rows of X."""
    scale, shape = _columns(X, _WEIBULL)
    _check_positive(scale=scale, shape=shape)
    return ScipyDistribution(stats.weibull_min, c=shape, scale=scale)


# ------------------------------------------------------------------------------------------------ two outputs
def bivariate_gaussian(n: int = 2000, *, rho: float = 0.5, random_state: Seed = 2020) -> Synthetic[BivariateGaussian]:
    """Appendix E, first case: two correlated Gaussian outputs, x = [mu_1, mu_2, sigma_1, sigma_2].

    mu_k ~ N(0, 2) and sigma_k ~ U(1, 2). The 2 is a standard deviation here, unlike in Section 5.3.1: the
    example the paper draws, x = [2.977, 1.352, 1.139, 1.312], is what the legacy generator gives from seed
    2021 with standard deviation 2 (with variance 2 it would begin with 2.105, 0.956).
    """
    rng = _legacy_generator(random_state)
    n = _rows(n)
    mu = [rng.normal(scale=2.0, size=n) for _ in range(2)]
    sigma = [rng.uniform(1.0, 2.0, n) for _ in range(2)]
    X = np.column_stack([*mu, *sigma])
    truth_at = partial(bivariate_gaussian_truth, rho=rho)
    y = truth_at(X)._transform(rng.normal(size=(n, 2)))
    return Synthetic(X, y, truth_at, _BIVARIATE)


def bivariate_gaussian_truth(X: ArrayLike, *, rho: float = 0.5) -> BivariateGaussian:
    """True joint distributions of the bivariate Gaussian at the rows of X."""
    mu1, mu2, sigma1, sigma2 = _columns(X, _BIVARIATE)
    return BivariateGaussian(np.column_stack([mu1, mu2]), np.column_stack([sigma1, sigma2]), rho)


def circular(n: int = 5000, *, random_state: Seed = 2021) -> Synthetic[CircularAverage]:
    """Appendix E, second case: the average of two points on the unit circle, x = [kappa_1, kappa_2].

    kappa_k ~ U(0.5, 2), psi_k ~ von Mises(0, kappa_k), y_1 = (cos psi_1 + cos psi_2) / 2 and
    y_2 = (sin psi_1 + sin psi_2) / 2. The paper's "p_2 = (cos psi_2, sin psi_1)" is a misprint, as its next
    line shows. The authors' seed is 2021.
    """
    rng = _legacy_generator(random_state)
    n = _rows(n)
    kappa = rng.uniform(0.5, 2.0, 2 * n).reshape(2, n)
    psi = rng.vonmises(0.0, kappa.ravel()).reshape(2, n)
    y = np.column_stack([np.cos(psi).mean(axis=0), np.sin(psi).mean(axis=0)])
    return Synthetic(np.ascontiguousarray(kappa.T), y, circular_truth, _CIRCULAR)


def circular_truth(X: ArrayLike) -> CircularAverage:
    """True joint distributions of the circular case at the rows of X."""
    kappa1, kappa2 = _columns(X, _CIRCULAR)
    return CircularAverage(np.column_stack([kappa1, kappa2]))


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
        _check_positive(sigma=sigma)
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
        k = _check_output(output)
        return ScipyDistribution(stats.norm, loc=self.mu[:, k], scale=self.sigma[:, k])

    def conditional(self, output: int, given: ArrayLike) -> PredictiveDistribution:
        """Distributions of one output when the other is ``given``: Gaussian."""
        k = _check_output(output)
        other = (_each_row(given, len(self)) - self.mu[:, 1 - k]) / self.sigma[:, 1 - k]
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


# Average of two points on the circle. With a = (psi_1 + psi_2) / 2 and d = (psi_1 - psi_2) / 2 the average is
# y = cos(d) (cos a, sin a), so |y| = R = |cos d|, each y comes from two pairs of angles, and the change of
# variables gives, with s = kappa_1 + kappa_2 and t = kappa_1 - kappa_2,
#   p(y) = exp(s y_1) cosh(t y_2 sqrt(1 - R^2) / R) / (pi^2 I0(kappa_1) I0(kappa_2) R sqrt(1 - R^2)).
# Along one coordinate, the other fixed at c, dy / (R sqrt(1 - R^2)) is an elliptic differential:
# y = b cn(w | b^2) with b^2 = 1 - c^2 makes it -dw, with R = dn(w) and sqrt(1 - R^2) = b sn(w). What is left
# is smooth and even about both ends of 0 <= w <= 2K, so a cosine series in w gives marginal densities and
# conditional cdfs almost to rounding.
_SEGMENT_NODES = 32
_SEGMENTS = 14


class CircularAverage(TwoOutputDistribution):
    """Average of two points on the unit circle with von Mises(0, kappa) angles.

    The density is in closed form; the joint cdf is one integral over the first angle (the second angle's arc
    has its probability from the von Mises cdf), split where that arc changes, good to about 1e-10.

    Parameters
    ----------
    kappa
        Concentrations (n, 2).
    """

    def __init__(self, kappa: np.ndarray) -> None:
        _check_positive(kappa=kappa)
        self.kappa = kappa

    def __len__(self) -> int:
        return len(self.kappa)

    def _take(self, index: np.ndarray) -> CircularAverage:
        return type(self)(self.kappa[index])

    def _cdf(self, z1: np.ndarray, z2: np.ndarray) -> np.ndarray:
        return _in_blocks(_circular_cdf, 8 * _SEGMENTS * _SEGMENT_NODES, *_with_kappa(self.kappa, z1, z2))

    def _logpdf(self, z1: np.ndarray, z2: np.ndarray) -> np.ndarray:
        kappa1, kappa2 = self.kappa[:, :1], self.kappa[:, 1:]
        R = np.hypot(z1, z2)
        inside = (R > 0) & (R < 1)
        R = np.where(inside, R, 0.5)
        root = np.sqrt((1.0 - R) * (1.0 + R))
        t = np.abs((kappa1 - kappa2) * z2 * root / R)
        log_cosh = t + np.log1p(np.exp(-2 * t)) - np.log(2.0)
        value = (kappa1 + kappa2) * z1 + log_cosh - _log_norm(kappa1, kappa2) - np.log(R * root)
        return np.where(inside, value, np.where(np.hypot(z1, z2) > 1, -np.inf, np.inf))

    def _draw(self, size: int, rng: np.random.Generator) -> np.ndarray:
        psi = rng.vonmises(0.0, self.kappa, size=(size, len(self), 2))
        return np.stack([np.cos(psi).mean(axis=-1), np.sin(psi).mean(axis=-1)], axis=-1)

    def marginal(self, output: int) -> PredictiveDistribution:
        """Distributions of one output (0 or 1), numerically to about 1e-10."""
        return _CircularMarginal(self.kappa, _check_output(output))

    def conditional(self, output: int, given: ArrayLike) -> PredictiveDistribution:
        """Distributions of one output when the other is ``given``, strictly between -1 and 1 and not 0.

        At 0 all probability sits at 0: the two points can then be opposite wherever they are.
        """
        c = _each_row(given, len(self))
        if not np.all((np.abs(c) < 1) & (np.abs(c) > 1e-100)):
            raise ValueError("a given output of the circular case lies strictly between -1 and 1 and is not 0.")
        return _CircularConditional(self.kappa, _check_output(output), c)

    def mean(self) -> np.ndarray:
        """Means, shape (n, 2)."""
        first = (special.ive(1, self.kappa) / special.ive(0, self.kappa)).mean(axis=1)
        return np.column_stack([first, np.zeros(len(self))])

    def covariance(self) -> np.ndarray:
        """Covariance matrices, shape (n, 2, 2)."""
        i0 = special.ive(0, self.kappa)
        first, second = special.ive(1, self.kappa) / i0, special.ive(2, self.kappa) / i0
        out = np.zeros((len(self), 2, 2))
        out[:, 0, 0] = (0.5 * (1 + second) - first**2).sum(axis=1) / 4
        out[:, 1, 1] = (0.5 * (1 - second)).sum(axis=1) / 4
        return out


class _CircularMarginal(PredictiveDistribution):
    """One output of `CircularAverage`."""

    def __init__(self, kappa: np.ndarray, output: int) -> None:
        self.kappa, self.output = kappa, output

    def __len__(self) -> int:
        return len(self.kappa)

    def _take(self, index: np.ndarray) -> _CircularMarginal:
        return type(self)(self.kappa[index], self.output)

    def _cdf(self, z: np.ndarray) -> np.ndarray:
        free = np.full(z.shape, np.inf)
        pair = (z, free) if self.output == 0 else (free, z)
        return _in_blocks(_circular_cdf, 8 * _SEGMENTS * _SEGMENT_NODES, *_with_kappa(self.kappa, *pair))

    def _icdf(self, q: np.ndarray) -> np.ndarray:
        kappa1, kappa2, level = _with_kappa(self.kappa, q)
        flat = type(self)(np.column_stack([kappa1.ravel(), kappa2.ravel()]), self.output)

        def cdf_and_pdf(z: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            part = flat._take(rows)
            return part._cdf(z[:, None])[:, 0], np.exp(part._logpdf(z[:, None])[:, 0])

        ends = np.full(level.size, -1.0), np.full(level.size, 1.0)
        return _solve(cdf_and_pdf, level.ravel(), *ends).reshape(q.shape)

    def _logpdf(self, z: np.ndarray) -> np.ndarray:
        return _in_blocks(partial(_circular_marginal_logpdf, self.output), 8 * 256, *_with_kappa(self.kappa, z))

    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        joint = CircularAverage(self.kappa)
        return joint.mean()[:, self.output], joint.covariance()[:, self.output, self.output]

    def _support(self) -> Support:
        return Support(np.full(len(self), -1.0), np.full(len(self), 1.0))


class _CircularConditional(PredictiveDistribution):
    """One output of `CircularAverage` when the other is known; the cosine series of each row is kept."""

    def __init__(self, kappa: np.ndarray, output: int, given: np.ndarray) -> None:
        self.kappa, self.output, self.given = kappa, output, given
        self.bound = np.sqrt((1.0 - given) * (1.0 + given))
        self.period = 2 * special.ellipkm1(given**2)
        modes = _modes(self.period)
        middle = (np.arange(modes) + 0.5) / modes
        h = np.exp(_circular_log_h(output, kappa[:, :1], kappa[:, 1:], given[:, None], middle * self.period[:, None]))
        self.series = h @ np.cos(np.pi * np.outer(middle, np.arange(modes))) * (2.0 / modes)
        self.series[:, 0] *= 0.5

    def __len__(self) -> int:
        return len(self.given)

    def _take(self, index: np.ndarray) -> _CircularConditional:
        return type(self)(self.kappa[index], self.output, self.given[index])

    def _cdf(self, z: np.ndarray) -> np.ndarray:
        y = np.clip(z / self.bound[:, None], -1.0, 1.0)
        # the incomplete elliptic integral in Carlson's form keeps its digits when the given output is near 0
        w = np.sqrt((1.0 - y) * (1.0 + y))
        w *= special.elliprf(y * y, y * y + (self.given**2)[:, None] * (1.0 - y) * (1.0 + y), 1.0)
        w = np.where(y < 0, self.period[:, None] - w, w)
        return np.clip(self._above(w / self.period[:, None]), 0.0, 1.0)

    def _above(self, v: np.ndarray) -> np.ndarray:
        """Share of the probability at w beyond v periods, that is at outcomes below b cn(w)."""
        ratio = self.series / self.series[:, :1]
        out = 1.0 - v
        for j in range(1, self.series.shape[1]):
            out -= ratio[:, j : j + 1] * np.sin(np.pi * j * v) / (np.pi * j)
        return out

    def _icdf(self, q: np.ndarray) -> np.ndarray:
        rows = np.repeat(np.arange(len(self)), q.shape[1])
        ratio = self.series / self.series[:, :1]
        j = np.arange(1, self.series.shape[1])

        def share_and_slope(v: np.ndarray, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            angle, r = np.pi * np.outer(v, j), ratio[rows[index], 1:]
            return v + (r * np.sin(angle) / (np.pi * j)).sum(1), 1.0 + (r * np.cos(angle)).sum(1)

        v = _solve(share_and_slope, 1.0 - q.ravel(), np.zeros(q.size), np.ones(q.size)).reshape(q.shape)
        return self.bound[:, None] * np.cos(_amplitude(v * self.period[:, None], self.given[:, None]))

    def _logpdf(self, z: np.ndarray) -> np.ndarray:
        pair = (z, self.given[:, None]) if self.output == 0 else (self.given[:, None], z)
        joint = CircularAverage(self.kappa)._logpdf(*np.broadcast_arrays(*pair))
        total = np.log(self.series[:, 0] * self.period) - _log_norm(self.kappa[:, 0], self.kappa[:, 1])
        return joint - total[:, None]

    def _support(self) -> Support:
        return Support(-self.bound, self.bound.copy())


def _log_norm(kappa1: np.ndarray, kappa2: np.ndarray) -> np.ndarray:
    """Logarithm of pi^2 I0(kappa_1) I0(kappa_2)."""
    return 2 * np.log(np.pi) + sum(np.log(special.ive(0, k)) + k for k in (kappa1, kappa2))


def _circular_log_h(
    output: int, kappa1: np.ndarray, kappa2: np.ndarray, given: np.ndarray, w: np.ndarray
) -> np.ndarray:
    """The smooth factor of the density along one output, the other given, at the elliptic coordinate w."""
    b2 = (1.0 - given) * (1.0 + given)
    angle = _amplitude(w, given)
    along, root = np.sqrt(b2) * np.cos(angle), np.sqrt(b2) * np.sin(angle)
    y1, y2 = (along, given) if output == 0 else (given, along)
    t = np.abs((kappa1 - kappa2) * y2 * root / np.hypot(along, given))
    return (kappa1 + kappa2) * y1 + t + np.log1p(np.exp(-2 * t)) - np.log(2.0)


def _amplitude(w: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Jacobi's amplitude am(w | 1 - given^2), by arithmetic-geometric means from the complement itself."""
    a, b = np.ones_like(given), np.abs(given)
    ratios = []
    while np.max((a - b) / a) > 1e-12:
        ratios.append((a - b) / (a + b))
        a, b = 0.5 * (a + b), np.sqrt(a * b)
    angle = 2.0 ** len(ratios) * a * w
    for ratio in reversed(ratios):
        angle = 0.5 * (angle + np.arcsin(ratio * np.sin(angle)))
    return angle


def _modes(period: np.ndarray) -> int:
    """Terms a cosine series over 2K needs: its coefficients fall like exp(-pi^2 j / 4K) or faster."""
    return int(32 + 6 * np.max(period))


def _circular_marginal_logpdf(output: int, kappa1: np.ndarray, kappa2: np.ndarray, z: np.ndarray) -> np.ndarray:
    inside, regular = np.abs(z) < 1, np.abs(z) > 1e-100
    c = np.where(inside & regular, z, 0.5)[..., None]
    period = 2 * special.ellipkm1(c * c)
    modes = _modes(period)
    w = period * (np.arange(modes) + 0.5) / modes
    log_h = _circular_log_h(1 - output, kappa1[..., None], kappa2[..., None], c, w)
    value = special.logsumexp(log_h, axis=-1) + np.log(period[..., 0] / modes) - _log_norm(kappa1, kappa2)
    return np.where(inside & regular, value, np.where(inside, np.inf, -np.inf))


def _circular_cdf(kappa1: np.ndarray, kappa2: np.ndarray, z1: np.ndarray, z2: np.ndarray) -> np.ndarray:
    """P(cos psi_1 + cos psi_2 <= 2 z_1, sin psi_1 + sin psi_2 <= 2 z_2) of flat arrays."""
    z1, z2 = np.clip(z1, -1.0, 1.0), np.clip(z2, -1.0, 1.0)
    ends = np.sort(_arc_changes(z1, z2), axis=1)
    width = np.diff(ends, axis=1)[:, :, None]
    u, weight = _smooth_rule()
    psi = ends[:, :-1, None] + width * u
    c = np.arccos(np.clip(2 * z1[:, None, None] - np.cos(psi), -1.0, 1.0))
    s = np.arcsin(np.clip(2 * z2[:, None, None] - np.sin(psi), -1.0, 1.0))
    # P(cos psi_2 <= cos c, sin psi_2 <= sin s): all but the arcs (-c, c) and (s, pi - s), overlap only once
    k2 = kappa2[:, None, None]
    right, low, high = (stats.vonmises.cdf(a, k2) for a in (c, s, np.pi - s))
    left = 1.0 - right
    overlap = np.maximum(np.minimum(right, high) - np.maximum(left, low), 0.0)
    overlap += np.maximum(np.minimum(1.0 + right, high) - np.maximum(1.0 + left, low), 0.0)
    inner = 1.0 - (right - left) - (high - low) + overlap
    k1 = kappa1[:, None, None]
    density = np.exp(k1 * (np.cos(psi) - 1.0)) / (2 * np.pi * special.ive(0, k1))
    return np.clip((width * density * inner * weight).sum(axis=(1, 2)), 0.0, 1.0)


def _arc_changes(z1: np.ndarray, z2: np.ndarray) -> np.ndarray:
    """Angles psi_1 in [-pi, pi] where the arc allowed to psi_2 starts, ends, or touches another: (m, 15).

    The quarters of the circle are among them, for an arc that only just starts or ends does so there.
    """

    def real_or_end(angle: np.ndarray, real: np.ndarray) -> np.ndarray:
        return np.where(real, (angle + np.pi) % (2 * np.pi) - np.pi, np.pi)

    out: list[np.ndarray] = [np.full(z1.shape, quarter * _HALF_PI) for quarter in range(-2, 3)]
    for shift in (-1.0, 1.0):
        at = 2 * z1 + shift
        angle = np.arccos(np.clip(at, -1, 1))
        out += [real_or_end(a, np.abs(at) <= 1) for a in (angle, -angle)]
        at = 2 * z2 + shift
        angle = np.arcsin(np.clip(at, -1, 1))
        out += [real_or_end(a, np.abs(at) <= 1) for a in (angle, np.pi - angle)]
    R = np.hypot(z1, z2)
    angle, apart = np.arctan2(z2, z1), np.arccos(np.clip(R, 0, 1))
    out += [real_or_end(a, R <= 1) for a in (angle + apart, angle - apart)]
    return np.stack(out, axis=1)


def _smooth_rule() -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on (0, 1) that also integrate functions with square roots at the two ends."""
    x, w = np.polynomial.legendre.leggauss(_SEGMENT_NODES)
    angle = _HALF_PI * 0.5 * (x + 1.0)
    return np.sin(angle) ** 2, 0.5 * w * _HALF_PI * np.sin(2 * angle)


# ---------------------------------------------------------------------------------------------------- helpers
def _solve(
    value_and_slope: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
    target: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
) -> np.ndarray:
    """Where increasing functions reach their targets: Newton, or bisection if that leaves the bracket."""
    x = 0.5 * (low + high)
    open_ = np.flatnonzero((target > 0) & (target < 1))
    x = np.where(target <= 0, low, np.where(target >= 1, high, x))
    for _ in range(100):
        if not len(open_):
            break
        value, slope = value_and_slope(x[open_], open_)
        off = value - target[open_]
        wrong = np.abs(off) > 1e-15
        value, slope, off, open_ = value[wrong], slope[wrong], off[wrong], open_[wrong]
        low[open_] = np.where(off < 0, x[open_], low[open_])
        high[open_] = np.where(off > 0, x[open_], high[open_])
        with np.errstate(divide="ignore", invalid="ignore"):
            new = x[open_] - off / slope
        middle = 0.5 * (low[open_] + high[open_])
        new = np.where((new > low[open_]) & (new < high[open_]) & np.isfinite(new), new, middle)
        step = np.abs(new - x[open_])
        x[open_] = new
        open_ = open_[step > 1e-14]
    return x


def _with_kappa(kappa: np.ndarray, *values: np.ndarray) -> list[np.ndarray]:
    return list(np.broadcast_arrays(kappa[:, :1], kappa[:, 1:], *values))


def _in_blocks(function: Callable[..., np.ndarray], floats_each: int, *arrays: np.ndarray) -> np.ndarray:
    """Apply a function of flat arrays in blocks that stay inside the byte budget."""
    flat = [a.ravel() for a in arrays]
    out = np.empty(flat[0].size)
    step = max(1, BYTE_BUDGET // (8 * floats_each))
    for start in range(0, len(out), step):
        out[start : start + step] = function(*(a[start : start + step] for a in flat))
    return out.reshape(arrays[0].shape)


def _columns(X: Any, names: Sequence[str]) -> list[np.ndarray]:
    """The named columns of a DataFrame, or the columns of an array in that order."""
    if hasattr(X, "columns"):
        missing = [name for name in names if name not in X.columns]
        if missing:
            raise ValueError(f"X has no column {', '.join(missing)}; the truth needs {', '.join(names)}.")
        X = X[list(names)]
    a = np.array(X, dtype=float)
    if a.ndim != 2 or a.shape[1] != len(names):
        raise ValueError(f"X has the columns {', '.join(names)}, shape (n, {len(names)}), not {a.shape}.")
    if not np.isfinite(a).all():
        raise ValueError("X contains NaN or infinite values; drop or fill them first.")
    return list(a.T)


def _check_positive(**parameters: np.ndarray) -> None:
    for name, value in parameters.items():
        if np.any(value <= 0):
            raise ValueError(f"{name} is positive, but one of its values is {np.min(value)}.")


def _check_output(output: int) -> int:
    if output not in (0, 1):
        raise ValueError(f"output is 0 or 1, not {output!r}.")
    return output


def _each_row(value: ArrayLike, n: int) -> np.ndarray:
    a = np.asarray(value, float)
    if a.ndim > 1 or (a.ndim == 1 and len(a) != n):
        raise ValueError(f"the given output is a number or has one value for each of the {n} rows, not {a.shape}.")
    return np.broadcast_to(a, n)


def _rows(n: int) -> int:
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise ValueError(f"n is the number of rows, a whole number of at least 1, not {n!r}.")
    return int(n)


def _legacy_generator(random_state: Seed) -> np.random.RandomState:
    if isinstance(random_state, np.random.RandomState):
        return random_state
    return np.random.RandomState(random_state)


# ----------------------------------------------------------------------------------------------------- splits
def paper_splits(
    n: int, n_splits: int = 10, *, train: float = 0.7, seed: Seed = 2021
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Random splits as the authors make them, as (train, test) row numbers.

    Each split is one permutation by NumPy's legacy generator: the first rows of it are the test set, the rest
    the training set. In the authors' notebooks training draws from the same generator between splits, so only
    their first split is ours too.

    Parameters
    ----------
    n
        Number of rows.
    n_splits
        Number of splits.
    train
        Share of the rows to train on.
    seed
        Seed or generator of NumPy's legacy kind.
    """
    n = _rows(n)
    if not 0.0 < train < 1.0:
        raise ValueError(f"train is the share of rows to train on, between 0 and 1, not {train}.")
    n_test = int(np.floor((1.0 - train) * n + 1e-9))  # 1 - 0.7 is a little more than 0.3
    if not 0 < n_test < n:
        raise ValueError(f"{n} rows cannot be split with {train:.0%} of them to train on; take more rows.")
    rng = _legacy_generator(seed)

    def splits() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for _ in range(n_splits):
            order = rng.permutation(n)
            yield order[n_test:], order[:n_test]

    return splits()


_SINUSOID = ("x",)
_GAUSSIAN = ("mu", "sigma")
_WEIBULL = ("scale", "shape")
_BIVARIATE = ("mu_1", "mu_2", "sigma_1", "sigma_2")
_CIRCULAR = ("kappa_1", "kappa_2")
