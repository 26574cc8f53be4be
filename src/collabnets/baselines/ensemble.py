"""Deep ensembles: several networks, each with a mean and a variance for every row."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from numbers import Integral, Real

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats
from sklearn.utils._param_validation import Interval, StrOptions

from collabnets.baselines import perceptron, selection
from collabnets.baselines.blocks import by_blocks
from collabnets.baselines.descent import Loss, Rows, Trained, adam, adam_with_inverse_time_decay, descend
from collabnets.baselines.mixture import MixtureDistribution
from collabnets.baselines.perceptron import Layers, hidden_widths, respond
from collabnets.distribution import PredictiveDistribution, ScipyDistribution
from collabnets.estimator import POINT_ESTIMATES, Table, TableRegressor
from collabnets.networks import ACTIVATIONS

# The least standard deviation a network may give, in its units.
SMALLEST_DEVIATION = 1e-3
# The step of Adam falls with time measured in this many epochs.
DECAY_EPOCHS = 100


class DeepEnsembleRegressor(TableRegressor):
    """Deep ensemble [1]_ (EN in the paper): several heteroskedastic networks with different starts, combined.

    Each network gives a mean and a standard deviation of a Gaussian for every row and is trained by maximum
    likelihood. The deviation is softplus(damping * t) + 0.001 of the network's second output t: the smaller the
    damping, the less the deviation strays from a constant.

    Parameters
    ----------
    combine
        ``"moments"``: the Gaussian with the mixture's mean and variance, as in Section 2.4 of [1]_. ``"mixture"``:
        the mixture of the networks' Gaussians itself.
    dampings
        Values of the damping to choose from; a single one is taken as it is.
    n_members
        Number of networks.
    hidden_layer_sizes
        Widths of the hidden layers.
    activation
        ``"elu"`` as in the paper, whose competitors have the hidden layers of g, or any that
        ``CollaboratingRegressor`` knows.
    max_iter
        Epochs, passes over the training rows.
    batch_size
        Rows of a mini-batch.
    learning_rate_init
        Step size of Adam at the start.
    decay_rate
        The step at epoch e is ``learning_rate_init / (1 + decay_rate * e / 100)``.
    validation_fraction
        Share of the training rows held out, at most 5,000 of them, to choose the damping by gof; the networks are then
        trained again on all of them.
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
    damping_ : float
        The chosen damping.
    search_ : dict
        Candidates (``damping``), their ``gof`` on ``n_held_out`` rows after learning from ``n_train``.
    networks_ : tuple
        Weights and biases of each layer, the networks stacked on the first axis.
    loss_curve_ : ndarray
        Loss of every mini-batch of the final training, one column a network.
    n_iter_ : int
        Epochs run.
    columns_, outcome_, n_features_in_, feature_names_in_
        As in ``CollaboratingRegressor``.

    Notes
    -----
    The adversarial examples of [1]_ are left out, as in the paper.

    References
    ----------
    .. [1] B. Lakshminarayanan, A. Pritzel and C. Blundell, "Simple and scalable predictive uncertainty estimation
       using deep ensembles", NeurIPS 2017.

    Examples
    --------
    >>> from collabnets.baselines import DeepEnsembleRegressor
    >>> from collabnets.datasets import heteroskedastic_gaussian
    >>> data = heteroskedastic_gaussian(300)
    >>> model = DeepEnsembleRegressor(dampings=0.1, max_iter=20, random_state=0).fit(data.X, data.y)
    >>> model.predict_interval(data.X, coverage=0.9).shape
    (300, 2)
    """

    _parameter_constraints: dict = {  # noqa: RUF012  (the name and type scikit-learn asks for)
        "combine": [StrOptions({"moments", "mixture"})],
        "dampings": ["array-like", Interval(Real, 0, None, closed="neither")],
        "n_members": [Interval(Integral, 1, None, closed="left")],
        "hidden_layer_sizes": ["array-like", Interval(Integral, 1, None, closed="left")],
        "activation": [StrOptions(set(ACTIVATIONS))],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate_init": [Interval(Real, 0, None, closed="neither")],
        "decay_rate": [Interval(Real, 0, None, closed="left")],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "standardize": ["boolean"],
        "point_estimate": [StrOptions(set(POINT_ESTIMATES))],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }
    _learnt = ("damping_", "search_", "networks_", "loss_curve_", "n_iter_")

    def __init__(
        self,
        *,
        combine: str = "moments",
        dampings: float | Sequence[float] = (0.01, 0.03, 0.1, 0.3, 1.0),
        n_members: int = 5,
        hidden_layer_sizes: int | Sequence[int] = (100, 80),
        activation: str = "elu",
        max_iter: int = 300,
        batch_size: int = 128,
        learning_rate_init: float = 1e-3,
        decay_rate: float = 1.0,
        validation_fraction: float = 0.2,
        standardize: bool = True,
        point_estimate: str = "median",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 1,
    ) -> None:
        self.combine = combine
        self.dampings = dampings
        self.n_members = n_members
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate_init = learning_rate_init
        self.decay_rate = decay_rate
        self.validation_fraction = validation_fraction
        self.standardize = standardize
        self.point_estimate = point_estimate
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, table: Table) -> None:
        grid = {
            "damping": selection.grid_values("dampings", self.dampings, lambda a: (a > 0) & (a < np.inf), "numbers > 0")
        }
        best, self.search_ = selection.search(table, grid, self._trial, float(self.validation_fraction))
        self.damping_ = best["damping"]
        trained = self._train(table, np.array([self.damping_]), "fit")
        self.networks_, self.loss_curve_, self.n_iter_ = trained.parameters, trained.losses, int(self.max_iter)

    def _distribution(self, features: np.ndarray) -> PredictiveDistribution:
        return self._combined(self.networks_, self.damping_, features)

    # ---------------------------------------------------------------- parts of a fit

    def _trial(
        self, part: Table, candidates: selection.Candidates, features: np.ndarray
    ) -> list[PredictiveDistribution]:
        networks = self._train(part, candidates["damping"], "grid search", some_may_diverge=True).parameters
        m = int(self.n_members)
        return [
            self._combined(jax.tree.map(lambda a, i=i: a[i * m : (i + 1) * m], networks), damping, features)
            for i, damping in enumerate(candidates["damping"])
        ]

    def _train(self, table: Table, dampings: np.ndarray, description: str, some_may_diverge: bool = False) -> Trained:
        """Networks of all candidates, one ensemble after the other; member k starts alike in each of them."""
        m = int(self.n_members)
        widths = (table.features.shape[1], *hidden_widths(self.hidden_layer_sizes))
        members = [perceptron.start([table.seed, 0, k], widths, outputs=2, init="glorot") for k in range(m)]
        size = min(int(self.batch_size), len(table.y))
        optimizer = adam(float(self.learning_rate_init))
        if self.decay_rate > 0:
            steps = DECAY_EPOCHS * (len(table.y) // size)
            optimizer = adam_with_inverse_time_decay(float(self.learning_rate_init), float(self.decay_rate), steps)
        return descend(
            _loss(self.activation),
            optimizer,
            perceptron.stack(members * len(dampings)),
            np.repeat(dampings, m).astype(np.float32),
            Rows.of(table.features, table.y, table.weight.astype(np.float32)),
            seeds=np.tile(np.random.SeedSequence([table.seed, 1]).generate_state(m), len(dampings)),
            epochs=int(self.max_iter),
            batch_size=size,
            some_may_diverge=some_may_diverge,
            progress=bool(self.verbose),
            description=description,
        )

    def _combined(self, networks: Layers, damping: float, features: np.ndarray) -> PredictiveDistribution:
        mean, deviation = by_blocks(lambda x: _members(networks, np.float32(damping), x, self.activation), features)
        mean = self.outcome_.loc + self.outcome_.scale * mean.astype(float)
        deviation = self.outcome_.scale * deviation.astype(float)
        mixture = MixtureDistribution(
            [ScipyDistribution(stats.norm, loc=m, scale=s) for m, s in zip(mean.T, deviation.T, strict=True)]
        )
        if self.combine == "mixture":
            return mixture
        return ScipyDistribution(stats.norm, loc=mixture.mean(), scale=mixture.standard_deviation())


def mean_and_deviation(
    layers: Layers, x: jax.Array, damping: jax.Array, activation: str
) -> tuple[jax.Array, jax.Array]:
    """Mean and standard deviation that one network gives for one row x (p,)."""
    mean, t = respond(layers, x, activation=activation)
    return mean, jax.nn.softplus(damping * t) + SMALLEST_DEVIATION


@lru_cache
def _loss(activation: str) -> Loss:
    """Weighted negative log likelihood, up to a constant; one object for the same settings."""

    def loss(layers, damping, batch, key, n):
        x, y, weight = batch
        mean, deviation = jax.vmap(lambda row: mean_and_deviation(layers, row, damping, activation))(x)
        return jnp.mean(weight * (0.5 * ((y - mean) / deviation) ** 2 + jnp.log(deviation)))

    return loss


@partial(jax.jit, static_argnames="activation")
def _members(networks, damping, x, activation: str):
    """Means and standard deviations of each row (rows, members)."""
    each = jax.vmap(lambda layers, row: mean_and_deviation(layers, row, damping, activation), (0, None))
    return jax.vmap(lambda row: each(networks, row))(x)
