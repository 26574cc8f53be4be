"""Exact Gaussian process regression: a constant mean, a scaled RBF kernel and Gaussian noise.

The maths is in the units of a standardised table and in float64: the matrices of a Gaussian process are too near to
singular for float32. A row of weight w is w observations with one outcome, so its noise variance is divided by w.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.linalg import solve_triangular
from numpy.typing import ArrayLike
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions
from tqdm.auto import tqdm

from collabnets.baselines.blocks import by_blocks
from collabnets.baselines.descent import adam, in_float64
from collabnets.distribution import PredictiveDistribution, ScipyDistribution
from collabnets.estimator import POINT_ESTIMATES, Table, TableRegressor
from collabnets.fitting import bucket
from collabnets.networks import AnyArray
from collabnets.training import interruptible

# Where the search for hyperparameters starts: softplus(0), as in gpytorch.
START = math.log(2.0)
# Features are padded to a multiple of this.
COLUMNS = 8
# A learnt noise variance stays above this; the outcome has variance 1.
NOISE_FLOOR = 1e-4
# Added to the diagonal, relative to its mean, when a matrix is not positive definite: the first try and the last.
FIRST_JITTER, LAST_JITTER = 1e-12, 1e-2


class Hyperparameters(NamedTuple):
    """What a Gaussian process with an RBF kernel is made of, in network units.

    Attributes
    ----------
    length_scale
        One for all features (1,), or one a feature (p,).
    signal_variance, noise_variance
        Variances of the function and of an outcome around it.
    mean
        The constant mean of the function.
    """

    length_scale: AnyArray
    signal_variance: AnyArray
    noise_variance: AnyArray
    mean: AnyArray

    @staticmethod
    def of(length_scale: Any, signal_variance: Any, noise_variance: Any, mean: Any) -> Hyperparameters:
        """Make them from numbers and arrays."""
        values = (np.asarray(v, np.float64) for v in (length_scale, signal_variance, noise_variance, mean))
        return Hyperparameters(*values)


def padded(features: np.ndarray, rows: int) -> np.ndarray:
    """Features in float64 with more rows, and columns, of zeros, so that few shapes are ever compiled for.

    A column of zeros adds nothing to a distance, and its length scale has no gradient.
    """
    n, p = features.shape
    return np.pad(features.astype(np.float64), ((0, rows - n), (0, -p % COLUMNS)))


def free(h: Hyperparameters, floor: float) -> Hyperparameters:
    """Give the numbers on the whole real line that ``constrained`` maps to ``h``."""

    def inverse_softplus(v):
        return v + np.log(-np.expm1(-v))

    return Hyperparameters(
        inverse_softplus(h.length_scale),
        inverse_softplus(h.signal_variance),
        inverse_softplus(h.noise_variance - floor),
        h.mean,
    )


def constrained(raw: Hyperparameters, floor: Any) -> Hyperparameters:
    """Hyperparameters from free numbers: positive by softplus, the noise variance above ``floor``."""
    return Hyperparameters(
        jax.nn.softplus(raw.length_scale),
        jax.nn.softplus(raw.signal_variance),
        floor + jax.nn.softplus(raw.noise_variance),
        raw.mean,
    )


def kernel(h: Hyperparameters, a: Any, b: Any) -> jax.Array:
    """Covariances s exp(-|(a - b) / l|^2 / 2) of the function at rows a (n, p) and b (m, p), (n, m)."""
    a, b = a / h.length_scale[None, :], b / h.length_scale[None, :]
    squared = jnp.sum(a * a, axis=1)[:, None] + jnp.sum(b * b, axis=1)[None, :] - 2.0 * (a @ b.T)
    return jnp.asarray(h.signal_variance * jnp.exp(-0.5 * jnp.maximum(squared, 0.0)))


def factor(covariance: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Lower Cholesky factor of a matrix plus a jitter on its diagonal, and that jitter: 0 where it is not needed."""
    n = len(covariance)
    scale = jnp.trace(covariance) / n

    def attempt(jitter):
        return jnp.linalg.cholesky(covariance + jitter * scale * jnp.eye(n), symmetrize_input=False)

    def fails(carry):
        jitter, lower = carry
        return ~jnp.all(jnp.isfinite(lower)) & (jitter < LAST_JITTER)

    def more(carry):
        jitter = jnp.where(carry[0] == 0.0, FIRST_JITTER, 10.0 * carry[0])
        return jitter, attempt(jitter)

    none = jnp.zeros_like(scale)
    jitter, lower = jax.lax.while_loop(fails, more, (none, attempt(none)))
    return lower, jitter * scale


@jax.custom_vjp
def _log_normal(covariance: jax.Array, residual: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Log density of N(0, covariance) at a residual but for its constant, and the jitter."""
    return _log_normal_forward(covariance, residual)[0]


def _log_normal_forward(covariance, residual):
    lower, jitter = factor(covariance)
    white = solve_triangular(lower, residual, lower=True)
    value = -0.5 * jnp.sum(white**2) - jnp.sum(jnp.log(jnp.diagonal(lower)))
    return (value, jitter), (lower, white)


def _log_normal_backward(kept, cotangent):
    lower, white = kept
    dual = solve_triangular(lower, white, lower=True, trans=1)
    inverse = solve_triangular(lower, jnp.eye(len(lower)), lower=True)
    slope = cotangent[0]
    return 0.5 * slope * (dual[:, None] * dual[None, :] - inverse.T @ inverse), -slope * dual


_log_normal.defvjp(_log_normal_forward, _log_normal_backward)


def _evidence(h: Hyperparameters, x: Any, weight: Any) -> tuple[jax.Array, jax.Array]:
    """Covariance of the outcomes, and the constant of their log density; rows of weight 0 are padding, and N(0, 1)."""
    real = weight > 0
    w = jnp.where(real, weight, 1.0)
    noise = jnp.where(real, h.noise_variance / w, 1.0)
    covariance = jnp.where(real[:, None] & real[None, :], kernel(h, x, x), 0.0) + jnp.diag(noise)
    # w normal densities of one outcome are one with its noise variance divided by w, times this constant
    repeated = jnp.where(real, (w - 1.0) * jnp.log(2.0 * jnp.pi * h.noise_variance) + jnp.log(w), 0.0)
    return covariance, -0.5 * (jnp.sum(real) * jnp.log(2.0 * jnp.pi) + jnp.sum(repeated))


def log_marginal_likelihood(h: Hyperparameters, x: Any, y: Any, weight: Any) -> tuple[jax.Array, jax.Array]:
    """Log density of outcomes (n,) of rows (n, p) that stand for ``weight`` (n,) observations each, and the jitter."""
    covariance, constant = _evidence(h, x, weight)
    value, jitter = _log_normal(covariance, jnp.where(weight > 0, y - h.mean, 0.0))
    return value + constant, jitter


class Posterior(NamedTuple):
    """A Gaussian process given its training rows.

    Attributes
    ----------
    factor
        Lower Cholesky factor of the covariance of the outcomes (n, n).
    dual
        That covariance's inverse times the outcomes less the mean (n,).
    log_marginal_likelihood, jitter
        As ``log_marginal_likelihood`` gives them.
    """

    factor: AnyArray
    dual: AnyArray
    log_marginal_likelihood: AnyArray
    jitter: AnyArray


@jax.jit
def condition(h: Hyperparameters, x: Any, y: Any, weight: Any) -> Posterior:
    """Condition a Gaussian process on rows; those of weight 0 are padding."""
    covariance, constant = _evidence(h, x, weight)
    lower, jitter = factor(covariance)
    white = solve_triangular(lower, jnp.where(weight > 0, y - h.mean, 0.0), lower=True)
    value = constant - 0.5 * jnp.sum(white**2) - jnp.sum(jnp.log(jnp.diagonal(lower)))
    return Posterior(lower, solve_triangular(lower, white, lower=True, trans=1), value, jitter)


@jax.jit
def _moments(h: Hyperparameters, x: Any, real: Any, lower: Any, dual: Any, new: Any) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of the function at new rows (m, p)."""
    covariance = jnp.where(real[:, None], kernel(h, x, new), 0.0)
    white = solve_triangular(lower, covariance, lower=True)
    variance = h.signal_variance - jnp.sum(white**2, axis=0)
    return h.mean + dual @ covariance, jnp.maximum(variance, 0.0)


@eqx.filter_jit
def _step(optimizer: optax.GradientTransformation, raw, state, floor, x, y, weight):
    """One step up the marginal likelihood; the loss is minus its logarithm an observation, before the step."""

    def loss(raw):
        value, jitter = log_marginal_likelihood(constrained(raw, floor), x, y, weight)
        return -value / jnp.sum(weight), jitter

    (value, jitter), gradient = jax.value_and_grad(loss, has_aux=True)(raw)
    update, state = optimizer.update(gradient, state, raw)
    return optax.apply_updates(raw, update), state, value, jitter


class CountingRegressor(TableRegressor):
    """A `TableRegressor` whose fit depends on how many observations there are, and not only on their shares.

    To implement one, do as for a `TableRegressor`, and take weights from ``_observations(table)``.
    """

    ard: bool
    length_scale_: np.ndarray
    signal_variance_: float
    noise_variance_: float
    mean_: float

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
        self._given = y, sample_weight
        try:
            return super().fit(X, y, sample_weight)
        finally:
            del self._given

    def _observations(self, table: Table) -> np.ndarray:
        """How many observations each row of a table stands for, (n,)."""
        y, weight = self._given
        n = len(np.asarray(y))
        total = n if weight is None else math.fsum(np.broadcast_to(np.asarray(weight, np.float64), n))
        return table.weight * (total / len(table.weight))

    def _hyperparameters(self) -> Hyperparameters:
        """What was learnt, for padded features."""
        length = self.length_scale_
        if self.ard:
            length = np.pad(length, (0, -len(length) % COLUMNS), constant_values=1.0)
        return Hyperparameters.of(length, self.signal_variance_, self.noise_variance_, self.mean_)

    def _normal(self, moments: Callable[[np.ndarray], Any], features: np.ndarray) -> PredictiveDistribution:
        """Normal distributions, in the units of y, from the mean and variance in network units of blocks of rows."""
        mean, variance = by_blocks(moments, padded(features, len(features)))
        deviation = np.sqrt(variance) * self.outcome_.scale
        return ScipyDistribution(stats.norm, loc=self.outcome_.inverse(mean), scale=deviation)


class GaussianProcessRegressor(CountingRegressor):
    """Exact Gaussian process regression (GPR): normal distributions whose mean is a smooth function of the row.

    The function has a constant mean and a scaled RBF kernel; outcomes have normal noise of one variance around it.
    Hyperparameters maximise the marginal likelihood, by Adam on all rows. A predictive distribution has the variance of
    the function plus that of the noise. Hyperparameters are in units of the standardised features and outcome.

    Parameters
    ----------
    length_scale, signal_variance, noise_variance
        Hyperparameters where the search starts; with ``max_iter=0`` they are used as they are.
    ard
        Learn one length scale a feature; else one for all.
    max_iter
        Steps of Adam, each on all rows. 0 leaves the hyperparameters alone, and the mean at that of the outcomes.
    learning_rate_init
        Step size of Adam.
    max_rows
        Distinct rows that a fit takes at most: its memory goes with their square and its time with their cube.
    too_many_rows
        What to do with more rows: ``"error"`` refuses them, ``"subsample"`` fits a random ``max_rows`` of them, with a
        warning.
    standardize
        Learn from features and outcome of mean 0 and variance 1. False learns in the units of the data; the answer then
        depends on the units.
    point_estimate
        What ``predict`` returns: ``"median"`` or ``"mean"``, which are the same here.
    random_state
        Seed of the subsample.
    verbose
        0 for silence; 1 shows a progress bar if on a terminal.

    Attributes
    ----------
    length_scale_ : ndarray
        Learnt length scale (1,), or one a feature (p,) with ``ard``.
    signal_variance_, noise_variance_, mean_ : float
        Learnt variances and constant mean. A learnt noise variance stays above 1e-4, or half of where it started.
    log_marginal_likelihood_ : float
        Logarithm of the marginal likelihood of the standardised outcomes at these hyperparameters.
    loss_curve_ : ndarray
        Minus that logarithm, an observation, before each step.
    n_iter_ : int
        Steps taken.
    jitter_ : float
        What was added to the diagonal of the covariance to make it positive definite; usually 0.
    rows_, dual_, factor_ : ndarray
        Training rows (n, p), the covariance's inverse times the centred outcomes (n,), and its Cholesky factor (n, n).
    columns_, outcome_, n_features_in_, feature_names_in_
        As in ``CollaboratingRegressor``.

    Notes
    -----
    Weights act as repetitions: a row of weight w has its noise variance divided by w, and the marginal likelihood is
    that of the repeated table.

    Examples
    --------
    >>> from collabnets.baselines import GaussianProcessRegressor
    >>> from collabnets.datasets import heteroskedastic_gaussian
    >>> data = heteroskedastic_gaussian(100)
    >>> model = GaussianProcessRegressor(max_iter=20).fit(data.X, data.y)
    >>> model.predict_interval(data.X, coverage=0.9).shape
    (100, 2)
    """

    _learnt = (
        "length_scale_",
        "signal_variance_",
        "noise_variance_",
        "mean_",
        "log_marginal_likelihood_",
        "loss_curve_",
        "n_iter_",
        "jitter_",
        "rows_",
        "dual_",
        "factor_",
    )
    _parameter_constraints: dict = {  # noqa: RUF012 (scikit-learn reads it from the class)
        "length_scale": [Interval(Real, 0, None, closed="neither")],
        "signal_variance": [Interval(Real, 0, None, closed="neither")],
        "noise_variance": [Interval(Real, 0, None, closed="neither")],
        "ard": ["boolean"],
        "max_iter": [Interval(Integral, 0, None, closed="left")],
        "learning_rate_init": [Interval(Real, 0, None, closed="neither")],
        "max_rows": [Interval(Integral, 1, None, closed="left")],
        "too_many_rows": [StrOptions({"error", "subsample"})],
        "standardize": ["boolean"],
        "point_estimate": [StrOptions(set(POINT_ESTIMATES))],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        *,
        length_scale: float = START,
        signal_variance: float = START,
        noise_variance: float = START,
        ard: bool = False,
        max_iter: int = 100,
        learning_rate_init: float = 0.1,
        max_rows: int = 5_000,
        too_many_rows: str = "error",
        standardize: bool = True,
        point_estimate: str = "median",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 1,
    ) -> None:
        self.length_scale = length_scale
        self.signal_variance = signal_variance
        self.noise_variance = noise_variance
        self.ard = ard
        self.max_iter = max_iter
        self.learning_rate_init = learning_rate_init
        self.max_rows = max_rows
        self.too_many_rows = too_many_rows
        self.standardize = standardize
        self.point_estimate = point_estimate
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, table: Table) -> None:
        chosen = self._chosen(len(table.values), table.seed)
        features = table.features[chosen]
        n, p = features.shape
        pad = bucket(n) - n
        x = padded(features, n + pad)
        y = np.pad((table.values[chosen] - table.outcome.loc) / table.outcome.scale, (0, pad))
        weight = np.pad(self._observations(table)[chosen], (0, pad))
        start = Hyperparameters.of(
            np.full(x.shape[1] if self.ard else 1, self.length_scale), self.signal_variance, self.noise_variance, 0.0
        )
        with in_float64():
            h, losses = self._search(start, x, y, weight)
            posterior = jax.tree.map(np.asarray, condition(h, x, y, weight))
        if not np.isfinite(posterior.log_marginal_likelihood):
            raise FloatingPointError(
                "the marginal likelihood became infinite or NaN; try a larger noise_variance or a smaller "
                "learning_rate_init, or look for extreme values in X or y."
            )
        self.loss_curve_, self.n_iter_ = losses, len(losses)
        if self.max_iter and posterior.log_marginal_likelihood < -losses[0] * weight.sum():
            warnings.warn(
                "the marginal likelihood ended below where it started; try a smaller learning_rate_init.",
                ConvergenceWarning,
                stacklevel=5,
            )
        self.jitter_ = float(posterior.jitter)
        if self.jitter_ > 0.0:
            warnings.warn(
                f"the covariance of the outcomes was not positive definite in float64: {self.jitter_:.1e} was added to "
                "its diagonal. A larger noise_variance, or fewer rows that are nearly the same, avoids this.",
                RuntimeWarning,
                stacklevel=5,
            )
        self.length_scale_ = np.asarray(h.length_scale)[:p]
        self.signal_variance_, self.noise_variance_ = float(h.signal_variance), float(h.noise_variance)
        self.mean_ = float(h.mean)
        self.log_marginal_likelihood_ = float(posterior.log_marginal_likelihood)
        self.rows_, self.dual_ = features, posterior.dual[:n].copy()
        self.factor_ = posterior.factor[:n, :n].copy()

    def _distribution(self, features: np.ndarray) -> PredictiveDistribution:
        n = len(self.rows_)
        pad = bucket(n) - n  # the same padding as in the fit, so that few shapes are ever compiled
        lower = np.eye(n + pad)
        lower[:n, :n] = self.factor_
        with in_float64():
            given = jax.tree.map(
                jnp.asarray,
                (
                    self._hyperparameters(),
                    padded(self.rows_, n + pad),
                    np.arange(n + pad) < n,
                    lower,
                    np.pad(self.dual_, (0, pad)),
                ),
            )

            def moments(block: np.ndarray) -> tuple[jax.Array, jax.Array]:
                mean, variance = _moments(*given, block)
                return mean, variance + self.noise_variance_

            return self._normal(moments, features)

    def _chosen(self, n: int, seed: int) -> np.ndarray:
        """Rows that the fit takes."""
        if n <= self.max_rows:
            return np.arange(n)
        if self.too_many_rows == "error":
            raise ValueError(
                f"an exact Gaussian process takes at most max_rows={self.max_rows} distinct rows, but the table has "
                f"{n}; pass too_many_rows='subsample' for a random part of them, a larger max_rows if memory and time "
                "allow, or use ParametricGPRegressor."
            )
        warnings.warn(
            f"the table has {n} distinct rows; the Gaussian process is fitted to a random max_rows={self.max_rows} of "
            "them.",
            UserWarning,
            stacklevel=6,
        )
        return np.sort(np.random.default_rng(seed).choice(n, self.max_rows, replace=False))

    def _search(
        self, start: Hyperparameters, x: np.ndarray, y: np.ndarray, weight: np.ndarray
    ) -> tuple[Hyperparameters, np.ndarray]:
        """Climb the marginal likelihood from a start; the start itself when there is no step to take."""
        if not self.max_iter:
            return start, np.empty(0)
        floor = min(NOISE_FLOOR, float(start.noise_variance) / 2.0)
        optimizer = adam(float(self.learning_rate_init))
        raw = jax.tree.map(jnp.asarray, free(start, floor))
        state, losses = optimizer.init(raw), []
        data = tuple(jnp.asarray(a) for a in (floor, x, y, weight))
        bar = tqdm(total=self.max_iter, desc="GPR", disable=None if self.verbose else True, unit="it", leave=False)
        with bar, interruptible() as interrupted:
            for _ in range(self.max_iter):
                raw, state, loss, _ = _step(optimizer, raw, state, *data)
                losses.append(float(loss))
                bar.update()
                if interrupted.is_set():
                    raise KeyboardInterrupt
        return jax.tree.map(np.asarray, constrained(raw, floor)), np.array(losses)
