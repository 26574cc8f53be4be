"""Parametric Gaussian process regression: inducing points, trained for the density of the outcomes.

The function is a Gaussian process seen through its values u at M inducing points. With L the Cholesky factor of the
kernel matrix of those points, u = mean + L v, and q(v) = N(m, S) stands for the posterior (the prior is N(0, I)). For
a row x, with a(x) = L^-1 k(Z, x), the function has mean c + a(x)'m and variance k(x, x) - a(x)'a(x) + a(x)'S a(x).
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from sklearn.utils._param_validation import Interval, StrOptions

from collabnets.baselines.descent import Loss, Rows, adam, descend, in_float64
from collabnets.baselines.gaussian_process import CountingRegressor
from collabnets.baselines.kernel import NOISE_FLOOR, START, Hyperparameters, constrained, free, kernel, padded
from collabnets.distribution import PredictiveDistribution
from collabnets.estimator import POINT_ESTIMATES, Table
from collabnets.networks import AnyArray

# On the diagonal of the kernel matrix of the inducing points, a fraction of the signal variance.
JITTER = 1e-6


class Variational(NamedTuple):
    """q(v) and where its inducing points are.

    Attributes
    ----------
    inducing
        Inducing points Z (M, p).
    mean
        m (M,).
    factor
        Lower-triangular factor of S (M, M); or standard deviations (M,), for a diagonal S.
    """

    inducing: AnyArray
    mean: AnyArray
    factor: AnyArray


class Parameters(NamedTuple):
    """What descends.

    Attributes
    ----------
    raw
        Hyperparameters on the real line.
    inducing, mean
        As in ``Variational``.
    log_diagonal, lower
        Logarithm of the diagonal of the factor of S (M,), and a matrix (M, M) with what is below it, or None.
    """

    raw: Hyperparameters
    inducing: AnyArray
    mean: AnyArray
    log_diagonal: AnyArray
    lower: AnyArray | None

    @staticmethod
    def start(inducing: np.ndarray, *, ard: bool, full: bool) -> Parameters:
        """Start with q(v) at the prior."""
        m, p = inducing.shape
        start = Hyperparameters.of(np.full(p if ard else 1, START), START, START, 0.0)
        lower = np.zeros((m, m)) if full else None
        return Parameters(free(start, NOISE_FLOOR), inducing, np.zeros(m), np.zeros(m), lower)

    def read(self) -> tuple[Hyperparameters, Variational]:
        """Hyperparameters and q(v)."""
        factor = jnp.exp(self.log_diagonal)
        if self.lower is not None:
            factor = jnp.tril(self.lower, -1) + jnp.diag(factor)
        return constrained(self.raw, NOISE_FLOOR), Variational(self.inducing, self.mean, factor)


class Setting(NamedTuple):
    """What an objective reads besides.

    Attributes
    ----------
    beta
        Weight of the Kullback-Leibler divergence.
    total
        Number of observations.
    jitter
        As ``JITTER``.
    """

    beta: AnyArray
    total: AnyArray
    jitter: AnyArray


def inducing_covariance(h: Hyperparameters, inducing: Any, jitter: Any) -> jax.Array:
    """Covariance of the function's values at the inducing points (M, M)."""
    return kernel(h, inducing, inducing) + jitter * h.signal_variance * jnp.eye(len(inducing))


@jax.custom_vjp
def whiten(covariance: jax.Array, cross: jax.Array) -> jax.Array:
    """L^-1 C with L the Cholesky factor of a covariance; its gradient takes two solves with M right-hand sides."""
    return _whiten_forward(covariance, cross)[0]


def _whiten_forward(covariance, cross):
    lower = jnp.linalg.cholesky(covariance, symmetrize_input=False)
    white = solve_triangular(lower, cross, lower=True)
    return white, (lower, white)


def _whiten_backward(kept, cotangent):
    # with A = L^-1 C and A* its cotangent, that of L is -tril(L^-T A* A'); L cancels inside the rule for a Cholesky
    # factor, which leaves -L^-T P L^-1 with P the lower triangle of A* A', its diagonal halved, made symmetric
    lower, white = kept
    product = cotangent @ white.T
    below = jnp.tril(product, -1)
    symmetric = below + below.T + jnp.diag(jnp.diagonal(product))
    half = solve_triangular(lower, symmetric, lower=True, trans=1)
    both = solve_triangular(lower, half.T, lower=True, trans=1)
    return -0.5 * both, solve_triangular(lower, cotangent, lower=True, trans=1)


whiten.defvjp(_whiten_forward, _whiten_backward)


def _moments_from(h: Hyperparameters, q: Variational, white: jax.Array) -> tuple[jax.Array, jax.Array]:
    spread = q.factor.T @ white if q.factor.ndim == 2 else q.factor[:, None] * white
    variance = h.signal_variance - jnp.sum(white**2, axis=0) + jnp.sum(spread**2, axis=0)
    return jnp.asarray(h.mean + q.mean @ white), jnp.asarray(variance)


def function_moments(h: Hyperparameters, q: Variational, x: Any, jitter: Any = JITTER) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of the function at rows (n, p), (n,) each."""
    covariance = inducing_covariance(h, q.inducing, jitter)
    return _moments_from(h, q, whiten(covariance, kernel(h, q.inducing, x)))


def divergence(q: Variational) -> jax.Array:
    """Kullback-Leibler divergence of q(v) from N(0, I)."""
    diagonal = jnp.diagonal(q.factor) if q.factor.ndim == 2 else q.factor
    squares = jnp.sum(q.factor**2) + jnp.sum(q.mean**2) - len(q.mean)
    return 0.5 * squares - jnp.sum(jnp.log(jnp.abs(diagonal)))


def log_predictive(y: Any, mean: Any, variance: Any, noise: Any) -> jax.Array:
    """Logarithm of the expectation over f ~ N(mean, variance) of N(y; f, noise): what PPGPR adds up."""
    total = variance + noise
    return -0.5 * (jnp.log(2.0 * jnp.pi * total) + (y - mean) ** 2 / total)


def expected_log(y: Any, mean: Any, variance: Any, noise: Any) -> jax.Array:
    """Expectation over f ~ N(mean, variance) of the logarithm of N(y; f, noise): what the evidence bound adds up."""
    return -0.5 * (jnp.log(2.0 * jnp.pi * noise) + ((y - mean) ** 2 + variance) / noise)


def _minus_objective(fit, parameters: Parameters, setting: Setting, batch, n) -> jax.Array:
    """Minus an objective over the whole table, estimated from a batch, an observation."""
    x, y, weight = batch
    h, q = parameters.read()
    mean, variance = function_moments(h, q, x, setting.jitter)
    gain = jnp.sum(weight * fit(y, mean, variance, h.noise_variance)) * n / len(y)
    return (setting.beta * divergence(q) - gain) / setting.total


def predictive_loss(parameters, setting, batch, key, n) -> jax.Array:
    """Jankowiak et al.: sum of w log p(y | x) less beta KL(q, prior), as a loss an observation."""
    return _minus_objective(log_predictive, parameters, setting, batch, n)


def elbo_loss(parameters, setting, batch, key, n) -> jax.Array:
    """Hensman et al.: sum of w E_q log p(y | f(x)) less beta KL(q, prior), as a loss an observation."""
    return _minus_objective(expected_log, parameters, setting, batch, n)


OBJECTIVES: dict[str, Loss] = {"predictive": predictive_loss, "elbo": elbo_loss}


@jax.jit
def _factor(h: Hyperparameters, inducing: Any, jitter: Any) -> jax.Array:
    return jnp.linalg.cholesky(inducing_covariance(h, inducing, jitter), symmetrize_input=False)


@jax.jit
def _predict(h: Hyperparameters, q: Variational, lower: Any, x: Any) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of outcomes at rows (n, p)."""
    white = solve_triangular(lower, kernel(h, q.inducing, x), lower=True)
    mean, variance = _moments_from(h, q, white)
    return mean, jnp.maximum(variance, 0.0) + h.noise_variance


class ParametricGPRegressor(CountingRegressor):
    """Parametric Gaussian process regression (PPGPR): normal distributions whose mean and variance follow the row.

    A sparse variational Gaussian process (constant mean, scaled RBF kernel, normal noise) that is trained for the
    density of the outcomes under the predictive distribution, rather than for a bound on the marginal likelihood
    (Jankowiak, Pleiss and Gardner, 2020). So the variance of the function serves as an input-dependent noise.

    Parameters
    ----------
    n_inducing
        Inducing points at most; they start at random distinct rows and are learnt.
    objective
        ``"predictive"``: the predictive log likelihood. ``"elbo"``: the evidence lower bound, which gives the usual
        sparse variational Gaussian process.
    beta
        Weight of the Kullback-Leibler divergence of the variational distribution from the prior.
    variational
        Covariance of the variational distribution: ``"full"``, or ``"mean-field"``, a diagonal.
    ard
        Learn one length scale a feature; else one for all.
    max_iter
        Epochs.
    batch_size
        Rows of a mini-batch, drawn without replacement.
    learning_rate_init
        Step size of Adam.
    standardize
        Learn from features and outcome of mean 0 and variance 1. False learns in the units of the data; the answer then
        depends on the units.
    point_estimate
        What ``predict`` returns: ``"median"`` or ``"mean"``, which are the same here.
    random_state
        Seed.
    verbose
        0 for silence; 1 shows a progress bar if on a terminal.

    Attributes
    ----------
    length_scale_ : ndarray
        Learnt length scale (1,), or one a feature (p,) with ``ard``, in units of the standardised features.
    signal_variance_, noise_variance_, mean_ : float
        Learnt variances and constant mean, in units of the standardised outcome.
    inducing_ : ndarray
        Inducing points (M, p).
    variational_mean_, variational_factor_ : ndarray
        Whitened variational distribution: its mean (M,), and the Cholesky factor of its covariance (M, M), or its
        standard deviations (M,).
    loss_curve_ : ndarray
        Minus the objective, an observation, estimated in each iteration from its batch.
    n_iter_ : int
        Epochs run.
    columns_, outcome_, n_features_in_, feature_names_in_
        As in ``CollaboratingRegressor``.

    Notes
    -----
    Computed in float64; an iteration costs of the order of n_inducing^3. Weights act as repetitions.

    Examples
    --------
    >>> from collabnets.baselines import ParametricGPRegressor
    >>> from collabnets.datasets import heteroskedastic_gaussian
    >>> data = heteroskedastic_gaussian(200)
    >>> model = ParametricGPRegressor(n_inducing=20, max_iter=20, random_state=0).fit(data.X, data.y)
    >>> model.predict_interval(data.X, coverage=0.9).shape
    (200, 2)
    """

    _learnt = (
        "length_scale_",
        "signal_variance_",
        "noise_variance_",
        "mean_",
        "inducing_",
        "variational_mean_",
        "variational_factor_",
        "loss_curve_",
        "n_iter_",
    )
    _parameter_constraints: dict = {  # noqa: RUF012 (scikit-learn reads it from the class)
        "n_inducing": [Interval(Integral, 1, None, closed="left")],
        "objective": [StrOptions(set(OBJECTIVES))],
        "beta": [Interval(Real, 0, None, closed="left")],
        "variational": [StrOptions({"full", "mean-field"})],
        "ard": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate_init": [Interval(Real, 0, None, closed="neither")],
        "standardize": ["boolean"],
        "point_estimate": [StrOptions(set(POINT_ESTIMATES))],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        *,
        n_inducing: int = 500,
        objective: str = "predictive",
        beta: float = 1.0,
        variational: str = "full",
        ard: bool = False,
        max_iter: int = 200,
        batch_size: int = 128,
        learning_rate_init: float = 0.01,
        standardize: bool = True,
        point_estimate: str = "median",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 1,
    ) -> None:
        self.n_inducing = n_inducing
        self.objective = objective
        self.beta = beta
        self.variational = variational
        self.ard = ard
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate_init = learning_rate_init
        self.standardize = standardize
        self.point_estimate = point_estimate
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, table: Table) -> None:
        places = np.unique(table.features, axis=0)
        if len(places) > self.n_inducing:
            chosen = np.random.default_rng(table.seed).choice(len(places), self.n_inducing, replace=False)
            places = places[np.sort(chosen)]
        weight = self._observations(table)
        y = (table.values - table.outcome.loc) / table.outcome.scale
        p = places.shape[1]
        start = Parameters.start(padded(places, len(places)), ard=self.ard, full=self.variational == "full")
        setting = Setting(*(np.asarray(v, np.float64) for v in (self.beta, weight.sum(), JITTER)))
        with in_float64():
            parameters, setting = jax.tree.map(lambda a: jnp.asarray(a)[None], (start, setting))
            trained = descend(
                OBJECTIVES[self.objective],
                adam(float(self.learning_rate_init)),
                parameters,
                setting,
                Rows.of(padded(table.features, len(y)), y, weight),
                seeds=np.array([table.seed]),
                epochs=int(self.max_iter),
                batch_size=int(self.batch_size),
                progress=bool(self.verbose),
                description="PPGPR",
            )
            learnt = jax.tree.map(lambda a: jnp.asarray(a[0]), trained.parameters)
            h, q = jax.tree.map(np.asarray, learnt.read())
        self.length_scale_ = h.length_scale[:p]
        self.signal_variance_, self.noise_variance_ = float(h.signal_variance), float(h.noise_variance)
        self.mean_ = float(h.mean)
        self.inducing_ = q.inducing[:, :p].copy()
        self.variational_mean_, self.variational_factor_ = q.mean, q.factor
        self.loss_curve_, self.n_iter_ = trained.losses[:, 0], int(self.max_iter)

    def _distribution(self, features: np.ndarray) -> PredictiveDistribution:
        with in_float64():
            inducing = padded(self.inducing_, len(self.inducing_))
            q = Variational(inducing, self.variational_mean_, self.variational_factor_)
            h, q = jax.tree.map(jnp.asarray, (self._hyperparameters(), q))
            lower = _factor(h, q.inducing, JITTER)
            return self._normal(lambda block: _predict(h, q, lower, block), features)
