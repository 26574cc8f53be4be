"""Concrete dropout: a network that learns a dropout rate for each of its layers, and a noise for each row."""

from __future__ import annotations

from collections.abc import Sequence
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
from collabnets.baselines.dropout import BLOCK_ROWS, PASSES_AT_ONCE, draws
from collabnets.baselines.perceptron import Layers, fan_ins, hidden_widths, respond, sums_of_squares
from collabnets.distribution import PredictiveDistribution, ScipyDistribution
from collabnets.estimator import POINT_ESTIMATES, Table, TableRegressor
from collabnets.networks import ACTIVATIONS, AnyArray

HEADS = 2  # the mean and the logarithm of the variance
# The log variances of a prediction are kept finite, however far from the data a row is.
LARGEST_LOG_VARIANCE = 60.0


class ConcreteDropoutRegressor(TableRegressor):
    """Concrete dropout [1]_ (CDP in the paper): MC dropout with learnt rates and a variance of each row's own.

    Two heads give the mean and the log variance of a Gaussian; each hidden layer and each head has its own dropout
    rate, learnt by gradients through a continuous relaxation of the mask. The predictive distribution of a row is the
    Gaussian with the mean of the means of many passes, and the mean of their variances + the variance of their means
    (see ``model_variance``).

    Parameters
    ----------
    lengthscale
        Prior length scale l.
    temperature
        Of the relaxation; towards 0 the masks become 0 or 1.
    initial_rate
        Dropout rate that every layer starts at.
    hidden_layer_sizes
        Widths of the hidden layers.
    activation
        ``"elu"`` as in the paper, whose competitors have the hidden layers of g; ``"relu"`` is that of the method's
        reference code. Any that ``CollaboratingRegressor`` knows.
    n_passes
        Random masks at prediction.
    model_variance
        Add the variance of the means of the passes, which is what the network does not know, to the mean of their
        variances, the noise. The sum is the second moment of the passes, as the paper's text has it; False leaves the
        noise alone, as its authors' code does, and gives narrower intervals.
    max_iter
        Epochs, passes over the training rows.
    batch_size
        Rows of a mini-batch.
    learning_rate_init
        Step size of Adam.
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
    dropout_rates_ : ndarray
        The learnt rates: of the inputs of each hidden layer, of the mean and of the log variance.
    network_ : tuple
        Weights and biases of each layer, the two heads last.
    pass_seed_ : int
        Seed of the masks at prediction, the same for all rows.
    loss_curve_ : ndarray
        Loss of every mini-batch.
    n_iter_ : int
        Epochs run.
    columns_, outcome_, n_features_in_, feature_names_in_
        As in ``CollaboratingRegressor``.

    Notes
    -----
    The loss is that of the reference code: the mean over rows of (y - mean)^2 / variance + log variance, which is twice
    the negative log likelihood, plus ``concrete_penalty``.

    References
    ----------
    .. [1] Y. Gal, J. Hron and A. Kendall, "Concrete dropout", NeurIPS 2017.

    Examples
    --------
    >>> from collabnets.baselines import ConcreteDropoutRegressor
    >>> from collabnets.datasets import heteroskedastic_gaussian
    >>> data = heteroskedastic_gaussian(300)
    >>> model = ConcreteDropoutRegressor(max_iter=20, random_state=0).fit(data.X, data.y)
    >>> model.predict_interval(data.X, coverage=0.9).shape
    (300, 2)
    """

    _parameter_constraints: dict = {  # noqa: RUF012  (the name and type scikit-learn asks for)
        "lengthscale": [Interval(Real, 0, None, closed="left")],
        "temperature": [Interval(Real, 0, None, closed="neither")],
        "initial_rate": [Interval(Real, 0, 1, closed="neither")],
        "hidden_layer_sizes": ["array-like", Interval(Integral, 1, None, closed="left")],
        "activation": [StrOptions(set(ACTIVATIONS))],
        "n_passes": [Interval(Integral, 2, None, closed="left")],
        "model_variance": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate_init": [Interval(Real, 0, None, closed="neither")],
        "standardize": ["boolean"],
        "point_estimate": [StrOptions(set(POINT_ESTIMATES))],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }
    _learnt = ("dropout_rates_", "network_", "pass_seed_", "loss_curve_", "n_iter_")

    def __init__(
        self,
        *,
        lengthscale: float = 1e-4,
        temperature: float = 0.1,
        initial_rate: float = 0.1,
        hidden_layer_sizes: int | Sequence[int] = (100, 80),
        activation: str = "elu",
        n_passes: int = 1000,
        model_variance: bool = True,
        max_iter: int = 300,
        batch_size: int = 128,
        learning_rate_init: float = 1e-3,
        standardize: bool = True,
        point_estimate: str = "median",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 1,
    ) -> None:
        self.lengthscale = lengthscale
        self.temperature = temperature
        self.initial_rate = initial_rate
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.n_passes = n_passes
        self.model_variance = model_variance
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate_init = learning_rate_init
        self.standardize = standardize
        self.point_estimate = point_estimate
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, table: Table) -> None:
        start_seed, draw_seed, pass_seed = np.random.SeedSequence(table.seed).generate_state(3).tolist()
        widths = (table.features.shape[1], *hidden_widths(self.hidden_layer_sizes))
        layers = perceptron.start([start_seed], widths, heads=HEADS, init="uniform")
        trained = descend(
            _loss(self.activation),
            adam(float(self.learning_rate_init)),
            {
                "layers": perceptron.stack([layers]),
                "rate_logits": np.full((1, len(layers)), logit(self.initial_rate), np.float32),
            },
            {
                "lengthscale": np.full(1, self.lengthscale, np.float32),
                "temperature": np.full(1, self.temperature, np.float32),
            },
            Rows.of(table.features, table.y, table.weight.astype(np.float32)),
            seeds=np.array([draw_seed]),
            epochs=int(self.max_iter),
            batch_size=int(self.batch_size),
            progress=bool(self.verbose),
            description="fit",
        )
        learnt = jax.tree.map(lambda a: a[0], trained.parameters)
        self.network_, self.dropout_rates_ = learnt["layers"], expit(learnt["rate_logits"].astype(float))
        self.loss_curve_, self.n_iter_ = trained.losses[:, 0], int(self.max_iter)
        self.pass_seed_ = pass_seed

    def _distribution(self, features: np.ndarray) -> PredictiveDistribution:
        rate_logits = logit(self.dropout_rates_).astype(np.float32)

        def moments(x: np.ndarray):
            at = rate_logits, np.float32(self.temperature), np.uint32(self.pass_seed_), x
            return _moments(self.network_, *at, self.activation, int(self.n_passes))

        mean, noise, of_means = (a.astype(float) for a in by_blocks(moments, features, BLOCK_ROWS))
        variance = noise + of_means if self.model_variance else noise
        loc, scale = self.outcome_.loc, self.outcome_.scale
        return ScipyDistribution(stats.norm, loc=loc + scale * mean, scale=scale * np.sqrt(variance))


def concrete_masks(u: AnyArray, rate_logit: Any, temperature: Any) -> jax.Array:
    """What inputs are multiplied by: relaxed Bernoulli variables, 0 with probability p as the temperature falls to 0.

    (1 - sigmoid((logit(p) + logit(u)) / temperature)) / (1 - p) for uniform u.

    Parameters
    ----------
    u
        Uniform draws in (0, 1).
    rate_logit
        logit(p) of the dropout rate p.
    temperature
        Of the relaxation.
    """
    kept = jax.nn.sigmoid(-(rate_logit + jnp.log(u) - jnp.log1p(-jnp.asarray(u))) / temperature)
    return kept / jax.nn.sigmoid(-rate_logit)


def concrete_penalty(layers: Layers, rate_logits: jax.Array, lengthscale: Any, n: Any) -> jax.Array:
    """The penalty on weights W and rates p, summed over the layers.

    l^2 / n sum W^2 / (1 - p) + 2 / n (number of inputs) (p log p + (1 - p) log(1 - p)); biases are not counted.

    Parameters
    ----------
    layers
        The network.
    rate_logits
        logit(p) of each layer.
    lengthscale
        Prior length scale l.
    n
        Number of training rows.
    """
    p, q = jax.nn.sigmoid(rate_logits), jax.nn.sigmoid(-rate_logits)
    negative_entropy = p * jax.nn.log_sigmoid(rate_logits) + q * jax.nn.log_sigmoid(-rate_logits)
    inputs = jnp.array(fan_ins(layers), jnp.float32)
    return jnp.sum(lengthscale**2 / n * sums_of_squares(layers) / q + 2.0 / n * inputs * negative_entropy)


def _masks(key: jax.Array, layers: Layers, rate_logits: jax.Array, temperature: Any, count: int) -> list[jax.Array]:
    widths = fan_ins(layers)
    u = jnp.split(draws(key, (count, sum(widths))), np.cumsum(widths)[:-1], axis=1)
    return [concrete_masks(part, rate_logits[k], temperature) for k, part in enumerate(u)]


@lru_cache
def _loss(activation: str) -> Loss:
    """Twice the weighted negative log likelihood and the penalty; one object for the same settings."""

    def loss(parameters, hyper, batch, key, n):
        x, y, weight = batch
        layers, rate_logits = parameters["layers"], parameters["rate_logits"]
        masks = _masks(key, layers, rate_logits, hyper["temperature"], len(y))
        both = jax.vmap(lambda row, mask: respond(layers, row, activation=activation, heads=HEADS, masks=mask))
        mean, log_variance = both(x, masks).T
        misfit = (y - mean) ** 2 * jnp.exp(-log_variance) + log_variance
        return jnp.mean(weight * misfit) + concrete_penalty(layers, rate_logits, hyper["lengthscale"], n)

    return loss


@partial(jax.jit, static_argnames=("activation", "n_passes"))
def _moments(layers, rate_logits, temperature, seed, x, activation: str, n_passes: int):
    """Mean of the means, mean of the variances, and variance of the means, of each row."""
    masks = _masks(jax.random.key(seed), layers, rate_logits, temperature, n_passes)

    def one_pass(mask):
        return jax.vmap(lambda row: respond(layers, row, activation=activation, heads=HEADS, masks=mask))(x)

    passes = jax.lax.map(one_pass, masks, batch_size=PASSES_AT_ONCE)
    mean, log_variance = passes[:, :, 0], passes[:, :, 1]
    log_variance = jnp.clip(log_variance, -LARGEST_LOG_VARIANCE, LARGEST_LOG_VARIANCE)
    return mean.mean(0), jnp.exp(log_variance).mean(0), mean.var(0)
