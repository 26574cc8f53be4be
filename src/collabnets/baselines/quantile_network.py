"""Networks for single numbers: conditional quantiles by the pinball loss, the conditional mean by squared error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from numbers import Integral, Real
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats
from scipy.special import expit, logit
from sklearn.utils._param_validation import Interval, StrOptions

from collabnets.baselines import perceptron
from collabnets.baselines.blocks import by_blocks
from collabnets.baselines.descent import Loss, Rows, adam, descend
from collabnets.baselines.perceptron import hidden_widths, respond
from collabnets.distribution import PredictiveDistribution, ScipyDistribution, SplineDistribution
from collabnets.estimator import POINT_ESTIMATES, Table, TableRegressor
from collabnets.inversion import Knots, evaluate_logit
from collabnets.networks import ACTIVATIONS
from collabnets.preprocessing import Outcome

# Quantiles of a row are at least this far apart, in the units of the network: float32's rounding.
SMALLEST_GAP = 1e-6
# The least standard deviation around a mean, as a part of the outcome's.
SMALLEST_DEVIATION = 1e-3
# Knots of a quantile spline between two levels.
CELLS = 8

_NETWORK_CONSTRAINTS: dict[str, Any] = {
    "hidden_layer_sizes": ["array-like", Interval(Integral, 1, None, closed="left")],
    "activation": [StrOptions(set(ACTIVATIONS))],
    "max_iter": [Interval(Integral, 1, None, closed="left")],
    "batch_size": [Interval(Integral, 1, None, closed="left")],
    "learning_rate_init": [Interval(Real, 0, None, closed="neither")],
    "standardize": ["boolean"],
    "point_estimate": [StrOptions(set(POINT_ESTIMATES))],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}


class QuantileNetworkRegressor(TableRegressor):
    """Quantile regression by networks (QR in the paper): one network a level, each with the pinball loss.

    The quantiles of a row are sorted, so that they never cross; between the levels the logit of the CDF is a monotone
    spline, and beyond them it goes on linearly, a logistic tail. Nothing in the data supports these tails: choose
    levels as far out as you will ask.

    Parameters
    ----------
    levels
        Two or more increasing levels inside (0, 1).
    hidden_layer_sizes
        Widths of the hidden layers; two of 1,000 in Section 5.2.
    activation
        ``"relu"`` as in Section 5.2, or any that ``CollaboratingRegressor`` knows.
    max_iter
        Epochs, passes over the training rows.
    batch_size
        Rows of a mini-batch.
    learning_rate_init
        Step size of Adam; 1e-5 in Section 5.2.
    standardize
        Train on features and outcome of mean 0 and variance 1. False trains in the units of the data, which is how the
        paper's synthetic experiments were run; the answer then depends on the units.
    point_estimate
        What ``predict`` returns: ``"median"`` or ``"mean"``.
    random_state
        Seed. The same seed gives the same model, whatever the order of the rows.
    verbose
        0 for silence; 1 shows a progress bar if on a terminal.

    Attributes
    ----------
    levels_ : ndarray
        The levels.
    networks_ : tuple
        Weights and biases of each layer, the networks stacked on the first axis.
    loss_curve_ : ndarray
        Loss of every mini-batch, one column a network.
    n_iter_ : int
        Epochs run.
    columns_, outcome_, n_features_in_, feature_names_in_
        As in ``CollaboratingRegressor``.

    Notes
    -----
    Nothing keeps these networks from overfitting: large ones, trained long enough, pass through every training
    outcome at every level, which is what Section 5.2 shows.

    Examples
    --------
    >>> from collabnets.baselines import QuantileNetworkRegressor
    >>> from collabnets.datasets import heteroskedastic_gaussian
    >>> data = heteroskedastic_gaussian(300)
    >>> model = QuantileNetworkRegressor(levels=[0.25, 0.5, 0.75], max_iter=20, random_state=0).fit(data.X, data.y)
    >>> model.predict_quantiles(data.X, [0.25, 0.75]).shape
    (300, 2)
    """

    _parameter_constraints: dict = {"levels": ["array-like"], **_NETWORK_CONSTRAINTS}  # noqa: RUF012
    _learnt = ("levels_", "networks_", "loss_curve_", "n_iter_")

    def __init__(
        self,
        *,
        levels: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95),
        hidden_layer_sizes: int | Sequence[int] = (100, 80),
        activation: str = "relu",
        max_iter: int = 300,
        batch_size: int = 128,
        learning_rate_init: float = 1e-3,
        standardize: bool = True,
        point_estimate: str = "median",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 1,
    ) -> None:
        self.levels = levels
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate_init = learning_rate_init
        self.standardize = standardize
        self.point_estimate = point_estimate
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, table: Table) -> None:
        self.levels_ = _checked_levels(self.levels)
        _train(self, table, _pinball_loss(self.activation), self.levels_)

    def _distribution(self, features: np.ndarray) -> PredictiveDistribution:
        quantiles = by_blocks(lambda x: _answers(self.networks_, x, self.activation), features).astype(float)
        return SplineDistribution(spline_through(self.levels_, quantiles), self.outcome_.loc, self.outcome_.scale)


class MeanNetworkRegressor(TableRegressor):
    """A network for the conditional mean (MSE in the paper), with a noise that is the same for all rows.

    The predictive distribution is the Gaussian around the network's answer whose variance is the (weighted) mean of
    the squared residuals of the training rows. A network that passes through all of them leaves none; the standard
    deviation is therefore never less than a thousandth of the outcome's.

    Parameters
    ----------
    hidden_layer_sizes
        Widths of the hidden layers; two of 1,000 in Section 5.2.
    activation
        ``"relu"`` as in Section 5.2, or any that ``CollaboratingRegressor`` knows.
    max_iter
        Epochs, passes over the training rows.
    batch_size
        Rows of a mini-batch.
    learning_rate_init
        Step size of Adam; 1e-5 in Section 5.2.
    standardize
        Train on features and outcome of mean 0 and variance 1. False trains in the units of the data, which is how the
        paper's synthetic experiments were run; the answer then depends on the units.
    point_estimate
        What ``predict`` returns: ``"median"`` or ``"mean"``, which are equal here.
    random_state
        Seed. The same seed gives the same model, whatever the order of the rows.
    verbose
        0 for silence; 1 shows a progress bar if on a terminal.

    Attributes
    ----------
    deviation_ : float
        Standard deviation of the noise, in units of y.
    networks_ : tuple
        Weights and biases of each layer, with a first axis of length 1.
    loss_curve_ : ndarray
        Loss of every mini-batch, one column a network.
    n_iter_ : int
        Epochs run.
    columns_, outcome_, n_features_in_, feature_names_in_
        As in ``CollaboratingRegressor``.

    Notes
    -----
    The residuals of training rows are smaller than those of new rows, so the intervals are too narrow, the more so
    the larger the network.

    Examples
    --------
    >>> from collabnets.baselines import MeanNetworkRegressor
    >>> from collabnets.datasets import heteroskedastic_gaussian
    >>> data = heteroskedastic_gaussian(300)
    >>> model = MeanNetworkRegressor(max_iter=20, random_state=0).fit(data.X, data.y)
    >>> model.predict(data.X).shape
    (300,)
    """

    _parameter_constraints: dict = {**_NETWORK_CONSTRAINTS}  # noqa: RUF012
    _learnt = ("deviation_", "networks_", "loss_curve_", "n_iter_")

    def __init__(
        self,
        *,
        hidden_layer_sizes: int | Sequence[int] = (100, 80),
        activation: str = "relu",
        max_iter: int = 300,
        batch_size: int = 128,
        learning_rate_init: float = 1e-3,
        standardize: bool = True,
        point_estimate: str = "median",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 1,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate_init = learning_rate_init
        self.standardize = standardize
        self.point_estimate = point_estimate
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, table: Table) -> None:
        _train(self, table, _squared_loss(self.activation), np.zeros(1))
        residual = table.y - self._mean(table.features)
        deviation = float(np.sqrt(np.average(residual**2, weights=table.weight)))
        least = SMALLEST_DEVIATION * Outcome.fit(table.values, table.weight).scale
        self.deviation_ = max(deviation * self.outcome_.scale, least)

    def _distribution(self, features: np.ndarray) -> PredictiveDistribution:
        mean = self.outcome_.loc + self.outcome_.scale * self._mean(features)
        return ScipyDistribution(stats.norm, loc=mean, scale=self.deviation_)

    def _mean(self, features: np.ndarray) -> np.ndarray:
        """Means (n,) of the standardised outcome."""
        return by_blocks(lambda x: _answers(self.networks_, x, self.activation), features)[:, 0].astype(float)


def spline_through(levels: np.ndarray, quantiles: np.ndarray) -> Knots:
    """The spline of a CDF that has given quantiles (n, K) at increasing levels (K,), after sorting them.

    Its density is continuous: between two levels the logit of the CDF is a monotone rational quadratic whose slope at
    a level is the harmonic mean of those of the chords on both sides; beyond the first and the last it is a line.
    """
    k = np.arange(len(levels))
    z = np.maximum.accumulate(np.sort(quantiles, axis=1) - SMALLEST_GAP * k, axis=1) + SMALLEST_GAP * k
    u = np.broadcast_to(logit(levels), z.shape)
    chord = np.diff(u, axis=1) / np.diff(z, axis=1)
    before, after = (np.concatenate(parts, axis=1) for parts in ((chord[:, :1], chord), (chord, chord[:, -1:])))
    slope = 2.0 / (1.0 / before + 1.0 / after)
    coarse = Knots(z, u, slope, slope[:, [0, -1]], np.zeros(len(z)))
    correction = np.abs(expit(evaluate_logit(coarse, quantiles)[0]) - levels).max(axis=1)
    # more knots on the same curve, for the moments are integrals over the cells
    step = np.arange(CELLS) / CELLS
    inner = (z[:, :-1, None] + np.diff(z, axis=1)[:, :, None] * step).reshape(len(z), -1)
    fine = np.concatenate([inner, z[:, -1:]], axis=1)
    at, d = evaluate_logit(coarse, fine)
    at[:, ::CELLS], d[:, ::CELLS] = u, slope
    return Knots(fine, at, d, coarse.tail, correction)


def _checked_levels(levels: Sequence[float]) -> np.ndarray:
    a = np.asarray(levels)
    if a.dtype.kind not in "iuf" or a.ndim != 1 or len(a) < 2 or np.isnan(a).any():
        raise ValueError(f"levels lists two or more numbers, such as (0.25, 0.5, 0.75); got {levels!r}.")
    if not np.all((a > 0) & (a < 1)):
        bad = a[~((a > 0) & (a < 1))][0]
        raise ValueError(f"a level lies inside (0, 1), got {bad}; write 90 % as 0.9.")
    if not np.all(np.diff(a) > 0):
        raise ValueError(f"levels increase, without repetitions; got {levels!r}. Sort them.")
    return a.astype(float)


def _train(model: Any, table: Table, loss: Loss, hyper: np.ndarray) -> None:
    """Leave on a model one network for each entry of ``hyper``; they start differently and see different batches."""
    count = len(hyper)
    widths = (table.features.shape[1], *hidden_widths(model.hidden_layer_sizes))
    trained = descend(
        loss,
        adam(float(model.learning_rate_init)),
        perceptron.stack([perceptron.start([table.seed, 0, k], widths, init="uniform") for k in range(count)]),
        hyper.astype(np.float32),
        Rows.of(table.features, table.y, table.weight.astype(np.float32)),
        seeds=np.random.SeedSequence([table.seed, 1]).generate_state(count),
        epochs=int(model.max_iter),
        batch_size=int(model.batch_size),
        progress=bool(model.verbose),
        description="fit",
    )
    model.networks_, model.loss_curve_, model.n_iter_ = trained.parameters, trained.losses, int(model.max_iter)


def _row_loss(activation: str, of_row: Callable[[jax.Array, jax.Array], jax.Array]) -> Loss:
    def loss(layers, hyper, batch, key, n):
        x, y, weight = batch
        over = y - jax.vmap(lambda row: respond(layers, row, activation=activation)[0])(x)
        return jnp.mean(weight * of_row(over, hyper))

    return loss


@lru_cache
def _pinball_loss(activation: str) -> Loss:
    """Weighted pinball loss; one object for the same settings."""
    return _row_loss(activation, lambda over, level: jnp.maximum(level * over, (level - 1.0) * over))


@lru_cache
def _squared_loss(activation: str) -> Loss:
    """Weighted squared error; one object for the same settings."""
    return _row_loss(activation, lambda over, _: over**2)


@partial(jax.jit, static_argnames="activation")
def _answers(networks, x, activation: str):
    """What each network says of each row (rows, networks)."""
    each = jax.vmap(lambda layers, row: respond(layers, row, activation=activation)[0], (0, None))
    return jax.vmap(lambda row: each(networks, row))(x)
