"""The paper's synthetic data, each with the true distribution of y given X: "TH" is just another model.

Section 5.2 (`sinusoid`), 5.3.1 (`heteroskedastic_gaussian`), 5.3.2 (`weibull`) and the two cases with two
outputs of Appendix E (`bivariate_gaussian`, `circular`). The random draws come in the order of the authors'
notebooks, so seed 2020 gives the very rows behind their Tables 1 and 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from collabnets.datasets.circle import CircularAverage
from collabnets.datasets.two_outputs import BivariateGaussian, check_positive
from collabnets.distribution import PredictiveDistribution, ScipyDistribution

Truth = TypeVar("Truth")
Seed = int | np.integer | np.random.RandomState | None


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
    check_positive(sigma=sigma)
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
    check_positive(scale=scale, shape=shape)
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


# ---------------------------------------------------------------------------------------------------- helpers
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


def _rows(n: int) -> int:
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise ValueError(f"n is the number of rows, a whole number of at least 1, not {n!r}.")
    return int(n)


def _legacy_generator(random_state: Seed) -> np.random.RandomState:
    if isinstance(random_state, np.random.RandomState):
        return random_state
    return np.random.RandomState(random_state)


_SINUSOID = ("x",)
_GAUSSIAN = ("mu", "sigma")
_WEIBULL = ("scale", "shape")
_BIVARIATE = ("mu_1", "mu_2", "sigma_1", "sigma_2")
_CIRCULAR = ("kappa_1", "kappa_2")
