"""MC dropout: one network whose dropout stays on at prediction, with a constant noise."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from numbers import Integral, Real
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats
from sklearn.utils._param_validation import Interval, StrOptions

from collabnets.baselines import perceptron, selection
from collabnets.baselines.blocks import by_blocks
from collabnets.baselines.descent import Loss, Rows, Trained, adam, descend
from collabnets.baselines.perceptron import Layers, fan_ins, hidden_widths, respond, sums_of_squares
from collabnets.distribution import PredictiveDistribution, ScipyDistribution
from collabnets.estimator import POINT_ESTIMATES, Table, TableRegressor
from collabnets.networks import ACTIVATIONS
from collabnets.training import mix

# Steps of about a factor of sqrt(2), which is 20 % of the noise's standard deviation.
PRECISIONS = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 11.0, 16.0, 22.0, 32.0, 45.0, 64.0, 90.0)
BLOCK_ROWS = 64
PASSES_AT_ONCE = 8


class MCDropoutRegressor(TableRegressor):
    """MC dropout [1]_ (DP in the paper): a network with dropout also at prediction, read as a Gaussian process.

    Predictions with many random dropout masks are averaged; their variance is what the network does not know, and a
    precision tau, the same for all rows, is the noise. The predictive distribution of a row is the Gaussian with the
    mean of the passes and their variance + 1 / tau. Dropout stands before every layer, the inputs included.

    Parameters
    ----------
    precisions
        Values of tau to choose from; a single one is taken as it is. They are those of the outcome divided by its
        standard deviation, or of the outcome as it is with ``standardize=False``. By default 16 from 0.5 to 90.
    dropout_rates
        Dropout rates to choose from.
    lengthscale
        Prior length scale l; the squared weights are penalised by l^2 (1 - rate) / (2 n tau).
    hidden_layer_sizes
        Widths of the hidden layers.
    activation
        ``"elu"`` as in the paper, whose competitors have the hidden layers of g; ``"relu"`` is that of the method's
        reference code. Any that ``CollaboratingRegressor`` knows.
    drop_inputs
        Whether dropout also stands before the first layer.
    n_passes
        Random masks at prediction.
    max_iter
        Epochs, passes over the training rows.
    batch_size
        Rows of a mini-batch.
    learning_rate_init
        Step size of Adam.
    validation_fraction
        Share of the training rows held out, at most 5,000 of them, to choose tau and the dropout rate by gof; the
        network is then trained again on all of them.
    standardize
        Train on features and outcome of mean 0 and variance 1. False trains in the units of the data, which is how the
        paper's synthetic experiments were run; tau is then in units of 1 / y^2.
    point_estimate
        What ``predict`` returns: ``"median"`` or ``"mean"``, which are equal here.
    random_state
        Seed. The same seed gives the same model, whatever the order of the rows.
    verbose
        0 for silence; 1 shows a progress bar if on a terminal.

    Attributes
    ----------
    tau_ : float
        The chosen precision.
    dropout_rate_ : float
        The chosen dropout rate.
    search_ : dict
        Candidates (``tau``, ``dropout_rate``), their ``gof`` on ``n_held_out`` rows after learning from ``n_train``.
    network_ : tuple
        Weights and biases of each layer.
    pass_seed_ : int
        Seed of the masks at prediction, the same for all rows (see ``dropout_masks``).
    loss_curve_ : ndarray
        Loss of every mini-batch of the final training.
    n_iter_ : int
        Epochs run.
    columns_, outcome_, n_features_in_, feature_names_in_
        As in ``CollaboratingRegressor``.

    References
    ----------
    .. [1] Y. Gal and Z. Ghahramani, "Dropout as a Bayesian approximation: representing model uncertainty in deep
       learning", ICML 2016.

    Examples
    --------
    >>> from collabnets.baselines import MCDropoutRegressor
    >>> from collabnets.datasets import heteroskedastic_gaussian
    >>> data = heteroskedastic_gaussian(300)
    >>> model = MCDropoutRegressor(precisions=2.0, dropout_rates=0.05, max_iter=20, random_state=0)
    >>> model.fit(data.X, data.y).predict_interval(data.X, coverage=0.9).shape
    (300, 2)
    """

    _parameter_constraints: dict = {  # noqa: RUF012  (the name and type scikit-learn asks for)
        "precisions": ["array-like", Interval(Real, 0, None, closed="neither")],
        "dropout_rates": ["array-like", Interval(Real, 0, 1, closed="left")],
        "lengthscale": [Interval(Real, 0, None, closed="left")],
        "hidden_layer_sizes": ["array-like", Interval(Integral, 1, None, closed="left")],
        "activation": [StrOptions(set(ACTIVATIONS))],
        "drop_inputs": ["boolean"],
        "n_passes": [Interval(Integral, 2, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate_init": [Interval(Real, 0, None, closed="neither")],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "standardize": ["boolean"],
        "point_estimate": [StrOptions(set(POINT_ESTIMATES))],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }
    _learnt = (
        "tau_",
        "dropout_rate_",
        "search_",
        "network_",
        "pass_seed_",
        "loss_curve_",
        "n_iter_",
    )

    def __init__(
        self,
        *,
        precisions: float | Sequence[float] = PRECISIONS,
        dropout_rates: float | Sequence[float] = (0.005, 0.01, 0.05, 0.1),
        lengthscale: float = 1e-2,
        hidden_layer_sizes: int | Sequence[int] = (100, 80),
        activation: str = "elu",
        drop_inputs: bool = True,
        n_passes: int = 1000,
        max_iter: int = 300,
        batch_size: int = 128,
        learning_rate_init: float = 1e-3,
        validation_fraction: float = 0.2,
        standardize: bool = True,
        point_estimate: str = "median",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 1,
    ) -> None:
        self.precisions = precisions
        self.dropout_rates = dropout_rates
        self.lengthscale = lengthscale
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.drop_inputs = drop_inputs
        self.n_passes = n_passes
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate_init = learning_rate_init
        self.validation_fraction = validation_fraction
        self.standardize = standardize
        self.point_estimate = point_estimate
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, table: Table) -> None:
        self.pass_seed_ = int(np.random.SeedSequence([table.seed, 2]).generate_state(1)[0])
        best, self.search_ = selection.search(table, self._grid(), self._trial, float(self.validation_fraction))
        self.tau_, self.dropout_rate_ = best["tau"], best["dropout_rate"]
        trained = self._train(table, {k: np.array([v]) for k, v in best.items()}, "fit")
        self.network_ = jax.tree.map(lambda a: a[0], trained.parameters)
        self.loss_curve_, self.n_iter_ = trained.losses[:, 0], int(self.max_iter)

    def _distribution(self, features: np.ndarray) -> PredictiveDistribution:
        return self._gaussian(self.network_, self.dropout_rate_, self.tau_, features)

    # ---------------------------------------------------------------- parts of a fit

    def _grid(self) -> dict[str, Sequence[float]]:
        tau = selection.grid_values("precisions", self.precisions, lambda a: (a > 0) & (a < np.inf), "numbers > 0")
        rate = selection.grid_values(
            "dropout_rates", self.dropout_rates, lambda a: (a >= 0) & (a < 1), "numbers >= 0 and < 1"
        )
        return {"tau": tau, "dropout_rate": rate}

    def _trial(
        self, part: Table, candidates: selection.Candidates, features: np.ndarray
    ) -> list[PredictiveDistribution]:
        networks = self._train(part, candidates, "grid search", some_may_diverge=True).parameters
        return [
            self._gaussian(jax.tree.map(lambda a, i=i: a[i], networks), rate, tau, features)
            for i, (tau, rate) in enumerate(zip(candidates["tau"], candidates["dropout_rate"], strict=True))
        ]

    def _train(
        self, table: Table, candidates: selection.Candidates, description: str, some_may_diverge: bool = False
    ) -> Trained:
        """Networks of all candidates, stacked; they start alike and see the same batches and draws."""
        count = len(candidates["tau"])
        widths = (table.features.shape[1], *hidden_widths(self.hidden_layer_sizes))
        first = perceptron.start([table.seed, 0], widths, init="glorot")
        hyper = {
            "tau": candidates["tau"].astype(np.float32),
            "rate": candidates["dropout_rate"].astype(np.float32),
            "lengthscale": np.full(count, self.lengthscale, np.float32),
        }
        return descend(
            _loss(self.activation, bool(self.drop_inputs)),
            adam(float(self.learning_rate_init)),
            perceptron.stack([first] * count),
            hyper,
            Rows.of(table.features, table.y, table.weight.astype(np.float32)),
            seeds=np.random.SeedSequence([table.seed, 1]).generate_state(1).repeat(count),
            epochs=int(self.max_iter),
            batch_size=int(self.batch_size),
            some_may_diverge=some_may_diverge,
            progress=bool(self.verbose),
            description=description,
        )

    def _gaussian(self, network: Layers, rate: float, tau: float, features: np.ndarray) -> PredictiveDistribution:
        def moments(x: np.ndarray):
            at = np.float32(rate), np.uint32(self.pass_seed_), x
            return _moments(network, *at, self.activation, bool(self.drop_inputs), int(self.n_passes))

        mean, variance = (a.astype(float) for a in by_blocks(moments, features, BLOCK_ROWS))
        loc, scale = self.outcome_.loc, self.outcome_.scale
        return ScipyDistribution(stats.norm, loc=loc + scale * mean, scale=scale * np.sqrt(variance + 1.0 / tau))


def draws(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Uniform draws in (0, 1): a hash of the key and the position, six times as fast on a CPU as JAX's own."""
    words = jax.random.key_data(key).astype(jnp.uint32)
    bits = mix(mix(jnp.arange(int(np.prod(shape)), dtype=jnp.uint32) ^ words[0]) ^ words[1])
    return ((bits >> 9).astype(jnp.float32) + 0.5).reshape(shape) * jnp.float32(2.0**-23)


def dropout_masks(
    key: jax.Array, rate: Any, widths: Sequence[int], count: int, *, drop_inputs: bool = True
) -> list[jax.Array]:
    """What the inputs of each layer are multiplied by in ``count`` passes: 0 with probability ``rate``, or 1/(1-rate).

    The masks of a fitted model's passes are those of ``jax.random.key(model.pass_seed_)``.

    Parameters
    ----------
    key
        Decides the draws.
    rate
        Dropout rate.
    widths
        Number of inputs of each layer.
    count
        Number of masks.
    drop_inputs
        Whether the first layer has any.
    """
    keep = (draws(key, (count, sum(widths))) >= rate) / (1.0 - rate)
    masks = jnp.split(keep, np.cumsum(widths)[:-1], axis=1)
    return masks if drop_inputs else [jnp.ones_like(masks[0]), *masks[1:]]


@lru_cache
def _loss(activation: str, drop_inputs: bool) -> Loss:
    """Weighted squared error under dropout and the penalty on the weights; one object for the same settings."""

    def loss(layers, hyper, batch, key, n):
        x, y, weight = batch
        masks = dropout_masks(key, hyper["rate"], fan_ins(layers), len(y), drop_inputs=drop_inputs)
        mean = jax.vmap(lambda row, mask: respond(layers, row, activation=activation, masks=mask)[0])(x, masks)
        decay = hyper["lengthscale"] ** 2 * (1.0 - hyper["rate"]) / (2.0 * n * hyper["tau"])
        return jnp.mean(weight * (y - mean) ** 2) + decay * jnp.sum(sums_of_squares(layers))

    return loss


@partial(jax.jit, static_argnames=("activation", "drop_inputs", "n_passes"))
def _moments(layers, rate, seed, x, activation: str, drop_inputs: bool, n_passes: int):
    """Mean and variance over the passes of each row."""
    masks = dropout_masks(jax.random.key(seed), rate, fan_ins(layers), n_passes, drop_inputs=drop_inputs)

    def one_pass(mask):
        return jax.vmap(lambda row: respond(layers, row, activation=activation, masks=mask)[0])(x)

    passes = jax.lax.map(one_pass, masks, batch_size=PASSES_AT_ONCE)
    return passes.mean(0), passes.var(0)
