"""Exact Gaussian process regression: a constant mean, a scaled RBF kernel and Gaussian noise."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import ArrayLike
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions
from tqdm.auto import tqdm

from collabnets.baselines.blocks import by_blocks
from collabnets.baselines.descent import adam, in_float64
from collabnets.baselines.kernel import (
    COLUMNS,
    NOISE_FLOOR,
    START,
    Hyperparameters,
    condition,
    constrained,
    free,
    log_marginal_likelihood,
    moments,
    padded,
)
from collabnets.distribution import PredictiveDistribution, ScipyDistribution
from collabnets.estimator import POINT_ESTIMATES, Table, TableRegressor
from collabnets.fitting import bucket
from collabnets.training import interruptible


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
    Hyperparameters maximise the marginal likelihood, by Adam. A predictive distribution has the variance of
    the function plus that of the noise. Hyperparameters are in units of the standardised features and outcome.

    Parameters
    ----------
    length_scale, signal_variance, noise_variance
        Hyperparameters where the search starts; with ``max_iter=0`` they are used as they are.
    ard
        Learn one length scale a feature; else one for all.
    max_iter
        Steps of Adam, each on all rows, or on ``search_rows``. 0 leaves the hyperparameters alone, and the mean at that
        of the outcomes.
    learning_rate_init
        Step size of Adam.
    max_rows
        Distinct rows that a fit takes at most: its memory goes with their square and its time with their cube.
    too_many_rows
        What to do with more rows: ``"error"`` refuses them, ``"subsample"`` fits a random ``max_rows`` of them, with a
        warning.
    search_rows
        Rows, drawn at random, by which the hyperparameters are searched, where there are more; the process is then
        conditioned on all rows. A step costs as much as that one conditioning. None searches by all rows.
    standardize
        Learn from features and outcome of mean 0 and variance 1. False learns in the units of the data; the answer then
        depends on the units.
    point_estimate
        What ``predict`` returns: ``"median"`` or ``"mean"``, which are the same here.
    random_state
        Seed of the subsamples.
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
        Minus the logarithm of the marginal likelihood of the rows that the search takes, an observation, before each
        step.
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
        "search_rows": [None, Interval(Integral, 1, None, closed="left")],
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
        search_rows: int | None = None,
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
        self.search_rows = search_rows
        self.standardize = standardize
        self.point_estimate = point_estimate
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, table: Table) -> None:
        chosen = self._chosen(len(table.values), table.seed)
        features = table.features[chosen]
        values = (table.values[chosen] - table.outcome.loc) / table.outcome.scale
        weight = self._observations(table)[chosen]
        n, p = features.shape
        every = part = _bucketed(features, values, weight)
        if self.max_iter and self.search_rows is not None and n > self.search_rows:
            rng = np.random.default_rng([table.seed, 1])
            some = np.sort(rng.choice(n, self.search_rows, replace=False))
            part = _bucketed(features[some], values[some], weight[some])
        with in_float64():
            h, losses = self._search(*part)
            posterior = jax.tree.map(np.asarray, condition(h, *every))
            reached = (posterior if part is every else condition(h, *part)).log_marginal_likelihood.item()
        if not np.isfinite(posterior.log_marginal_likelihood):
            raise FloatingPointError(
                "the marginal likelihood became infinite or NaN; try a larger noise_variance or a smaller "
                "learning_rate_init, or look for extreme values in X or y."
            )
        self.loss_curve_, self.n_iter_ = losses, len(losses)
        if self.max_iter and reached < -losses[0] * part[2].sum():
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

            def of_outcomes(block: np.ndarray) -> tuple[jax.Array, jax.Array]:
                mean, variance = moments(*given, block)
                return mean, variance + self.noise_variance_

            return self._normal(of_outcomes, features)

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

    def _search(self, x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple[Hyperparameters, np.ndarray]:
        """Climb the marginal likelihood of rows; the start itself when there is no step to take."""
        length = np.full(x.shape[1] if self.ard else 1, self.length_scale)
        start = Hyperparameters.of(length, self.signal_variance, self.noise_variance, 0.0)
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


def _bucketed(features: np.ndarray, values: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, ...]:
    """Rows with padding of weight 0, so that few shapes are ever compiled for."""
    n = len(features)
    pad = bucket(n) - n
    return padded(features, n + pad), np.pad(values, (0, pad)), np.pad(weight, (0, pad))
