"""CollaboratingRegressor: from a table to one predictive distribution a row."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from numbers import Integral, Real
from pathlib import Path
from types import FunctionType
from typing import Any

import equinox as eqx
import jax
import numpy as np
import optax
from sklearn.utils._param_validation import Interval, StrOptions

from collabnets import queries, training
from collabnets.distribution import NetworkDistribution, PredictiveDistribution, Source
from collabnets.estimator import POINT_ESTIMATES, Table, TableRegressor
from collabnets.fitting import fit_tables, member_keys
from collabnets.networks import ACTIVATIONS, MomentMatching, QueryNetwork, stack

METHODS = ("cn-g", "cn-f", "g-only")
MEMBER_ROWS = ("all", "bootstrap", "folds")
OPTIMIZERS: dict[str, Callable[[float], optax.GradientTransformation]] = {
    "adam": optax.adam,
    "adamw": optax.adamw,
    "nadam": optax.nadam,
    "rmsprop": optax.rmsprop,
    "sgd": optax.sgd,
}


class CollaboratingRegressor(TableRegressor):
    """Collaborating Networks: a calibrated predictive distribution for every row of a table.

    One network g(z, x) learns the conditional CDF P(Y < z | x), a second, f(q, x), its inverse. g is pre-trained with
    thresholds z from a fixed distribution; then both train together, f showing g where to look and g telling f where
    it is wrong. The defaults are the paper's settings.

    Parameters
    ----------
    method
        ``"cn-g"``: the distribution of g after joint training, the paper's recommendation. ``"cn-f"``: that of f, the
        fastest to sample, weaker in the tails. ``"g-only"``: g alone, pre-trained for ``pretrain_iter + max_iter``
        iterations.
    hidden_layer_sizes, hidden_layer_sizes_f
        Widths of the hidden layers of g and of f.
    activation
        ``"elu"``, ``"relu"``, ``"gelu"``, ``"silu"``, ``"softplus"`` or ``"tanh"``.
    init
        ``"tiny"`` starts hidden weights at N(0, 0.001^2), as the authors' code does, which guards small data against
        overfitting; ``"ordinary"`` at N(0, 1 / fan-in), which learns smooth functions of many rows faster.
    normalization
        After each hidden layer: ``"scale"``, a learnt scale and shift (batch normalisation in inference mode, which is
        what the authors ran); ``"batch"``, real batch normalisation; ``"none"``.
    moment_matching
        What holds the logits of g to the moments of logit(q): ``"fixed"``, the factor that the authors' code used;
        ``"batch"``, real batch moments in the joint phase, as the paper's text asks; ``"none"``. For ``"g-only"`` with
        a function as ``z_distribution``, ``"batch"`` takes that function for the true quantiles and matches throughout.
    standardize
        Train on features and outcome of mean 0 and variance 1. False trains in the units of the data, which is how the
        paper's synthetic experiments were run; the answer then depends on the units, and numbers
        beyond a million are cut there.
    encoder
        ``encoder(n_features, key=key)`` returning an ``eqx.Module`` that maps the features of one row to a vector; g
        and f each get one of their own, trained with them. A class with such a constructor will do.
    q_distribution
        p(q): ``"uniform"``, ``("beta", a, b)`` (with .5, .5 for more weight on the tails), or an object with ``ppf``.
    z_distribution
        p(Z): ``"uniform"`` on [min - K, max + K]; ``"marginal"``, the outcomes themselves; an object with ``ppf`` in
        the units of y; or a function ``(q, X) -> (n, len(q))`` that gives each row its own, a fixed f.
    z_margin
        K as a fraction of the range of y.
    n_draws
        Thresholds (or levels) a row and iteration, stratified.
    pretrain_iter, max_iter
        Iterations of the pre-training and of the joint phase, at most.
    batch_size
        Rows of a mini-batch, drawn without replacement.
    learning_rate_init, learning_rate_init_f
        Step sizes for g and for f.
    optimizer
        ``"adam"``, ``"adamw"``, ``"nadam"``, ``"rmsprop"``, ``"sgd"``, or a function from a step size to an Optax
        transformation.
    g_steps, f_steps, f_first
        Steps of each network in a joint iteration, and their order. The paper's algorithm lists one f step, then one
        g step; its code runs one g step, then two f steps, the default.
    consistency
        Weight lambda of (q - g(f(q, x), x))^2 in the loss of g (second lemma of Appendix B).
    n_members
        Networks with different seeds that train at once; their CDFs are averaged.
    member_rows
        Rows of each member: ``"all"``; ``"bootstrap"``, drawn with replacement; ``"folds"``, member k leaves out fold
        k and, with ``early_stopping``, stops by it.
    early_stopping
        Watch the loss on held-out rows, end a phase when it stops falling, and keep the best weights.
    validation_fraction
        Share of rows held out for that (with ``member_rows="folds"`` the folds are).
    n_iter_no_change, tol
        A phase ends after this many looks (one every 250 iterations) without the loss falling by ``tol``.
    point_estimate
        What ``predict`` returns: ``"median"`` or ``"mean"``.
    checkpoint
        File where a running fit is saved every few seconds and from which the same fit resumes, to the same bits on a
        CPU. It stays after the fit; the same fit then returns at once.
    random_state
        Seed. The same seed gives the same model, whatever the order of the rows.
    verbose
        0 for silence; 1 shows a progress bar if on a terminal.

    Attributes
    ----------
    history_ : Losses
        Loss of every iteration and look.
    columns_ : Columns
        How columns became features.
    outcome_ : Outcome
        Location and scale of y.
    g_, f_ : QueryNetwork or None
        The fitted networks, members stacked on the first axis; None for a constant outcome.
    search_range_ : tuple of float
        Where g was searched, in units of y; beyond it the tails are logistic.
    n_iter_ : int
        Iterations run, both phases together.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    ``score`` is R^2 of the point prediction, as for every regressor of scikit-learn; for a proper score pass
    ``scoring=collabnets.metrics.crps_scorer`` to whatever searches or validates. Weights act as repetitions: rows with
    equal X and y are merged and a weight of 0 is as good as absence.

    Examples
    --------
    >>> from collabnets import CollaboratingRegressor
    >>> from collabnets.datasets import heteroskedastic_gaussian
    >>> data = heteroskedastic_gaussian(300)
    >>> model = CollaboratingRegressor(pretrain_iter=500, max_iter=500, random_state=0).fit(data.X, data.y)
    >>> model.predict_interval(data.X, coverage=0.9).shape
    (300, 2)
    """

    _parameter_constraints: dict = {  # noqa: RUF012  (the name and type scikit-learn asks for)
        "method": [StrOptions(set(METHODS))],
        "hidden_layer_sizes": ["array-like", Interval(Integral, 1, None, closed="left")],
        "hidden_layer_sizes_f": ["array-like", Interval(Integral, 1, None, closed="left")],
        "activation": [StrOptions(set(ACTIVATIONS))],
        "init": [StrOptions({"tiny", "ordinary"})],
        "normalization": [StrOptions({"none", "scale", "batch"})],
        "moment_matching": [StrOptions({"none", "fixed", "batch"})],
        "standardize": ["boolean"],
        "encoder": [callable, None],
        "q_distribution": "no_validation",
        "z_distribution": "no_validation",
        "z_margin": [Interval(Real, 0, None, closed="left")],
        "n_draws": [Interval(Integral, 1, None, closed="left")],
        "pretrain_iter": [Interval(Integral, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 0, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate_init": [Interval(Real, 0, None, closed="neither")],
        "learning_rate_init_f": [Interval(Real, 0, None, closed="neither")],
        "optimizer": [StrOptions(set(OPTIMIZERS)), callable],
        "g_steps": [Interval(Integral, 1, None, closed="left")],
        "f_steps": [Interval(Integral, 1, None, closed="left")],
        "f_first": ["boolean"],
        "consistency": [Interval(Real, 0, None, closed="left")],
        "n_members": [Interval(Integral, 1, None, closed="left")],
        "member_rows": [StrOptions(set(MEMBER_ROWS))],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "point_estimate": [StrOptions(set(POINT_ESTIMATES))],
        "checkpoint": [str, Path, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        *,
        method: str = "cn-g",
        hidden_layer_sizes: Sequence[int] = (100, 80),
        hidden_layer_sizes_f: Sequence[int] = (100, 80, 60),
        activation: str = "elu",
        init: str = "tiny",
        normalization: str = "scale",
        moment_matching: str = "fixed",
        standardize: bool = True,
        encoder: Callable[..., eqx.Module] | None = None,
        q_distribution: object = "uniform",
        z_distribution: object = "uniform",
        z_margin: float = 0.1,
        n_draws: int = 1,
        pretrain_iter: int = 20_000,
        max_iter: int = 20_000,
        batch_size: int = 128,
        learning_rate_init: float = 1e-4,
        learning_rate_init_f: float = 5e-4,
        optimizer: str | Callable[[float], optax.GradientTransformation] = "adam",
        g_steps: int = 1,
        f_steps: int = 2,
        f_first: bool = False,
        consistency: float = 0.0,
        n_members: int = 1,
        member_rows: str = "all",
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        tol: float = 1e-5,
        point_estimate: str = "median",
        checkpoint: str | Path | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 1,
    ) -> None:
        self.method = method
        self.hidden_layer_sizes = hidden_layer_sizes
        self.hidden_layer_sizes_f = hidden_layer_sizes_f
        self.activation = activation
        self.init = init
        self.normalization = normalization
        self.moment_matching = moment_matching
        self.standardize = standardize
        self.encoder = encoder
        self.q_distribution = q_distribution
        self.z_distribution = z_distribution
        self.z_margin = z_margin
        self.n_draws = n_draws
        self.pretrain_iter = pretrain_iter
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate_init = learning_rate_init
        self.learning_rate_init_f = learning_rate_init_f
        self.optimizer = optimizer
        self.g_steps = g_steps
        self.f_steps = f_steps
        self.f_first = f_first
        self.consistency = consistency
        self.n_members = n_members
        self.member_rows = member_rows
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.point_estimate = point_estimate
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, table: Table) -> None:
        fit_tables([self], [table], bool(self.verbose))

    def _learn_constant(self) -> None:
        empty = np.empty((0, 0), np.float32)
        self.g_: Any = None
        self.f_: Any = None
        self.history_ = training.Losses(empty, empty, empty, empty, np.empty(0, int))
        self.n_iter_, self._start = 0, np.zeros(0)
        self.search_range_ = (self.outcome_.loc, self.outcome_.loc)

    def _distribution(self, features: np.ndarray) -> PredictiveDistribution:
        return NetworkDistribution(self._source(), features)

    # ---------------------------------------------------------------- model files

    def _state(self) -> dict[str, Any]:
        state = {
            "start": self._start,
            "history": {k: np.asarray(v) for k, v in self.history_._asdict().items()},
            "search_range": list(self.search_range_),
            "n_iter": self.n_iter_,
        }
        if self.g_ is not None:
            # the moments of p(q), of which a file may know nothing, are part of how g answers
            output = self.g_.output
            state["logit_moments"] = None if output is None else [output.mean, output.deviation]
            state |= {k: jax.tree.leaves(eqx.filter(net, eqx.is_array)) for k, net in (("g", self.g_), ("f", self.f_))}
        return state

    def _set_state(self, state: dict[str, Any]) -> None:
        self._learn_constant()
        self._start, self.history_ = state["start"], training.Losses(**state["history"])
        self.search_range_, self.n_iter_ = tuple(state["search_range"]), state["n_iter"]
        if "g" in state:
            width = len(self.columns_.feature_names_out)
            moments = state.get("logit_moments")  # files of format 2 have none: there p(q) is always known
            templates = self._networks(width, member_keys(0, int(self.n_members), of="start"), moments)
            self.g_, self.f_ = (_filled(net, state[name], name) for net, name in zip(templates, "gf", strict=True))

    # ---------------------------------------------------------------- parts of a fit

    def _source(self) -> Source:
        return Source(self.g_, self.f_, self.method == "cn-f", self._start, self.outcome_.loc, self.outcome_.scale)

    def _networks(
        self, n_features: int, keys: np.ndarray, logit_moments: Sequence[float] | None = None
    ) -> tuple[QueryNetwork, QueryNetwork]:
        """Start members, one a key; their arrays are stacked on a first axis. No moments are those of p(q)."""
        shared: dict[str, Any] = {
            "activation": self.activation,
            "normalization": self.normalization,
            "encoder": self.encoder,
        }
        tiny = self.init == "tiny"
        output = None
        if self.moment_matching != "none":
            mean, deviation = logit_moments or queries.logit_moments(self.q_distribution)
            output = MomentMatching(mean, deviation, self.moment_matching == "batch")
        g_widths = _sizes(self.hidden_layer_sizes, "hidden_layer_sizes")
        f_widths = _sizes(self.hidden_layer_sizes_f, "hidden_layer_sizes_f")
        g_options = {"init": self.init, "readout_init": "glorot" if tiny else "ordinary", "output": output, **shared}
        f_options = {"init": self.init, "readout_init": self.init, **shared}
        pairs = []
        for key in keys:
            g_key, f_key = np.random.SeedSequence(key.tolist()).generate_state(4).reshape(2, 2)
            g = QueryNetwork(n_features, g_widths, key=g_key, **g_options)
            pairs.append((g, QueryNetwork(n_features, f_widths, key=f_key, **f_options)))
        g, f = (stack(nets) for nets in zip(*pairs, strict=True))
        return g, f

    def _plan(self, n_rows: int, thresholds_by_row: bool) -> training.Plan:
        return training.Plan(
            _optimizer(self.optimizer, float(self.learning_rate_init)),
            _optimizer(self.optimizer, float(self.learning_rate_init_f)),
            batch_size=min(int(self.batch_size), n_rows),
            n_draws=int(self.n_draws),
            g_steps=int(self.g_steps),
            f_steps=int(self.f_steps),
            f_first=bool(self.f_first),
            consistency=float(self.consistency),
            thresholds_by_row=thresholds_by_row,
            matched=self.moment_matching == "batch",
            matched_pretrain=self.moment_matching == "batch" and self.method == "g-only" and thresholds_by_row,
        )

    def _schedule(self, fingerprint: str, progress: bool) -> training.Schedule:
        alone = self.method == "g-only"
        return training.Schedule(
            n_pretrain=int(self.pretrain_iter + (self.max_iter if alone else 0)),
            n_joint=0 if alone else int(self.max_iter),
            patience=int(self.n_iter_no_change) if self.early_stopping else None,
            tolerance=float(self.tol),
            judge_f=self.method == "cn-f",
            checkpoint=None if self.checkpoint is None else Path(self.checkpoint),
            fingerprint=fingerprint,
            progress=progress,
        )

    def _describe(self) -> str:
        """The parameters that decide what a fit computes, as text."""
        ignored = {"checkpoint", "verbose", "point_estimate", "random_state"}

        return json.dumps({k: _text(v) for k, v in sorted(self.get_params(deep=False).items()) if k not in ignored})


def _text(value: Any) -> str:
    """A parameter as text that is the same in every process, and another for another value."""
    if isinstance(value, np.ndarray | np.generic):
        return repr(value.tolist())
    if isinstance(value, partial):
        named = [f"{name}={_text(v)}" for name, v in sorted(value.keywords.items())]
        return f"partial({', '.join([_text(value.func), *map(_text, value.args), *named])})"
    if isinstance(value, FunctionType):
        code = value.__code__
        constants = [c for c in code.co_consts if isinstance(c, str | int | float | None)]
        around = [_text(cell.cell_contents) for cell in value.__closure__ or ()]
        does = repr((code.co_code, code.co_names, constants, list(map(_text, value.__defaults__ or ())), around))
        return f"{value.__qualname__}:{hashlib.sha256(does.encode()).hexdigest()[:16]}"
    if hasattr(value, "dist") and hasattr(value, "args"):  # a frozen distribution of SciPy
        return f"{value.dist.name}{value.args}{sorted(value.kwds.items())}"
    plain = isinstance(value, str | int | float | bool | tuple | list | None)
    return repr(value) if plain else getattr(value, "__qualname__", type(value).__qualname__)


def _filled(template: QueryNetwork, leaves: Sequence[np.ndarray], name: str) -> QueryNetwork:
    """Put arrays in the places of a network's."""
    arrays, rest = eqx.partition(template, eqx.is_array)
    places, structure = jax.tree.flatten(arrays)
    for i, (place, leaf) in enumerate(zip(places, leaves, strict=True)):
        if leaf.shape != place.shape or leaf.dtype != place.dtype:
            raise TypeError(f"part {name}.{i} does not fit the network")
    return eqx.combine(jax.tree.unflatten(structure, list(leaves)), rest)


def _sizes(value: Any, name: str) -> tuple[int, ...]:
    sizes = tuple(int(v) for v in np.atleast_1d(np.asarray(value)))
    if not sizes or min(sizes) < 1:
        raise ValueError(f"{name} lists the widths of one or more hidden layers, such as (100, 80); got {value!r}.")
    return sizes


def _optimizer(spec: str | Callable[[float], optax.GradientTransformation], step: float):
    """The same object for the same request, so that a second fit finds what the first one compiled."""
    return _named_optimizer(spec, step) if isinstance(spec, str) else _own_optimizer(spec, step)


@lru_cache(maxsize=256)
def _named_optimizer(name: str, step: float) -> optax.GradientTransformation:
    # all weights as one vector: one fused update instead of one a layer, and half the compile time
    return optax.flatten(OPTIMIZERS[name](step))


@lru_cache(maxsize=256)
def _own_optimizer(factory: Callable[[float], optax.GradientTransformation], step: float):
    return factory(step)
