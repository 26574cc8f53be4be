"""CollaboratingRegressor: from a table to one predictive distribution a row."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import ArrayLike
from sklearn.base import _fit_context
from sklearn.utils import check_array, check_random_state, column_or_1d
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_n_features, _check_sample_weight, check_is_fitted, validate_data

from collabnets import modelfile, queries, training
from collabnets.distribution import NetworkDistribution, PointMass, PredictiveDistribution, Source
from collabnets.estimator import POINT_ESTIMATES, DistributionRegressor
from collabnets.inversion import coarse_points
from collabnets.networks import ACTIVATIONS, MomentMatching, QueryNetwork, stack
from collabnets.preprocessing import Columns, Outcome, align, canonical_rows

METHODS = ("cn-g", "cn-f", "g-only")
MEMBER_ROWS = ("all", "bootstrap", "folds")
OPTIMIZERS: dict[str, Callable[[float], optax.GradientTransformation]] = {
    "adam": optax.adam,
    "adamw": optax.adamw,
    "nadam": optax.nadam,
    "rmsprop": optax.rmsprop,
    "sgd": optax.sgd,
}


class CollaboratingRegressor(DistributionRegressor):
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
        ``"batch"``, real batch moments in the joint phase, as the paper's text asks; ``"none"``.
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

    # ---------------------------------------------------------------- the public face

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> CollaboratingRegressor:
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
        _fit_together([self], [_Table.read(self, X, y, sample_weight)])
        return self

    def predict_dist(self, X: Any) -> PredictiveDistribution:
        """Predictive distribution of every row of X; columns in another order than at fit are refused."""
        check_is_fitted(self)
        X = align(X, self.columns_.feature_names_in, estimator_name=type(self).__name__, reorder=False)
        if not hasattr(X, "columns"):
            X = check_array(X, dtype=None, ensure_all_finite=False, estimator=self)
            _check_n_features(self, X, reset=False)
        features = self.columns_.transform(X)
        if self.g_ is None:
            return PointMass(np.full(len(features), self.outcome_.loc))
        return NetworkDistribution(self._source(), features)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file that holds data only; ``load_model`` reads it."""
        check_is_fitted(self)
        modelfile.save(self, Path(path))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    # ---------------------------------------------------------------- parts of a fit

    def _source(self) -> Source:
        return Source(self.g_, self.f_, self.method == "cn-f", self._start, self.outcome_.loc, self.outcome_.scale)

    def _networks(self, n_features: int, key) -> tuple[QueryNetwork, QueryNetwork]:
        """Start one member."""
        g_key, f_key = jax.random.split(key)
        shared = {"activation": self.activation, "normalization": self.normalization, "encoder": self.encoder}
        tiny = self.init == "tiny"
        output = None
        if self.moment_matching != "none":
            mean, deviation = queries.logit_moments(self.q_distribution)
            output = MomentMatching(mean, deviation, self.moment_matching == "batch")
        g = QueryNetwork(
            n_features,
            _sizes(self.hidden_layer_sizes, "hidden_layer_sizes"),
            init=self.init,
            readout_init="glorot" if tiny else "ordinary",
            output=output,
            key=g_key,
            **shared,
        )
        f = QueryNetwork(
            n_features,
            _sizes(self.hidden_layer_sizes_f, "hidden_layer_sizes_f"),
            init=self.init,
            readout_init=self.init,
            key=f_key,
            **shared,
        )
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
        )

    def _schedule(self, fingerprint: str) -> training.Schedule:
        alone = self.method == "g-only"
        return training.Schedule(
            n_pretrain=int(self.pretrain_iter + (self.max_iter if alone else 0)),
            n_joint=0 if alone else int(self.max_iter),
            patience=int(self.n_iter_no_change) if self.early_stopping else None,
            tolerance=float(self.tol),
            judge_f=self.method == "cn-f",
            checkpoint=None if self.checkpoint is None else Path(self.checkpoint),
            fingerprint=fingerprint,
            progress=bool(self.verbose),
        )

    def _describe(self) -> str:
        """The parameters that decide what a fit computes, as text."""
        ignored = {"checkpoint", "verbose", "point_estimate", "random_state"}
        named = {k: getattr(v, "__qualname__", repr(v)) for k, v in self.get_params(deep=False).items()}
        return json.dumps({k: v for k, v in sorted(named.items()) if k not in ignored})


class _Table(NamedTuple):
    """A table ready for training: canonical rows, in network units."""

    columns: Columns
    outcome: Outcome
    features: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    thresholds: np.ndarray | None
    seed: int

    @staticmethod
    def read(model: CollaboratingRegressor, X: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> _Table:
        """Check a table and put it into canonical order; sets what scikit-learn wants to see on the model."""
        if y is None:
            raise ValueError(
                f"This {type(model).__name__} estimator requires y to be passed, but the target y is None."
            )
        X = X if hasattr(X, "columns") else np.asarray(X) if isinstance(X, list | tuple) else X
        if hasattr(X, "columns"):
            validate_data(model, X, skip_check_array=True)
            outcome = column_or_1d(y, warn=True)
        else:
            X, outcome = validate_data(model, X, y, dtype=None, ensure_all_finite=False, y_numeric=False)
            outcome = column_or_1d(outcome, warn=True)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        index, weight = canonical_rows(X, outcome, sample_weight)
        X = X.iloc[index] if hasattr(X, "columns") else X[index]
        outcome = np.asarray(outcome)[index].astype(float)
        columns = Columns.fit(X, weight)
        scale = Outcome.fit(outcome, weight)
        thresholds = None
        if not scale.constant:
            table = queries.threshold_quantiles(
                model.z_distribution, outcome, X, margin=float(model.z_margin), weight=weight
            )
            thresholds = (table - scale.loc) / scale.scale
        seed = int(check_random_state(model.random_state).randint(2**31 - 1))
        return _Table(
            columns,
            scale,
            columns.transform(X),
            scale.transform(outcome),
            weight / weight.mean(),
            thresholds,
            seed,
        )

    def fingerprint(self, description: str) -> str:
        """A digest of the data, the seed and the parameters."""
        digest = hashlib.sha256(description.encode())
        for part in (self.features, self.y, self.weight, self.thresholds):
            digest.update(np.ascontiguousarray(part).tobytes())
        digest.update(str((self.seed, jax.__version__, eqx.__version__)).encode())
        return digest.hexdigest()


def fit_together(
    models: Sequence[CollaboratingRegressor], tables: Sequence[tuple], *, progress: bool = False
) -> list[CollaboratingRegressor]:
    """Fit models with the same parameters (but for ``random_state``) to tables of the same width, all at once.

    Each is fitted as its own ``fit(*table)`` would, up to rounding; together they take much less time than one after
    the other. For replications of an experiment, splits or bootstrap rounds.

    Parameters
    ----------
    models
        Estimators, one a table.
    tables
        ``(X, y)`` or ``(X, y, sample_weight)`` each.
    progress
        Show one bar for all.
    """
    if len(models) != len(tables) or not models:
        raise ValueError(f"as many models as tables are needed, at least one; got {len(models)} and {len(tables)}.")
    same = {k: v for k, v in models[0].get_params(deep=False).items() if k not in ("random_state", "verbose")}
    for model in models:
        other = model.get_params(deep=False)
        different = [k for k, v in same.items() if other[k] is not v and other[k] != v]
        if different:
            raise ValueError(f"models that are fitted together have the same parameters; these differ: {different}.")
        model._validate_params()
    return _fit_together(list(models), [_Table.read(m, *t) for m, t in zip(models, tables, strict=True)])


def _fit_together(models: list[CollaboratingRegressor], tables: list[_Table]) -> list[CollaboratingRegressor]:
    for model, table in zip(models, tables, strict=True):
        model.columns_, model.outcome_ = table.columns, table.outcome
    varied = [(m, t) for m, t in zip(models, tables, strict=True) if not t.outcome.constant]
    for model, table in zip(models, tables, strict=True):
        if table.outcome.constant:
            _settle_constant(model)
    if not varied:
        return models
    lead = varied[0][0]
    widths = {t.features.shape[1] for _, t in varied}
    if len(widths) > 1:
        raise ValueError(f"tables that are fitted together need the same number of coded features; got {widths}.")
    parts = [_members(m, t, which) for which, (m, t) in enumerate(varied)]
    shortest = min(int(p.n_rows.min()) for p in parts)
    by_row = varied[0][1].thresholds.shape[0] > 1
    data = _data(lead, [t for _, t in varied], by_row)
    members = _stack_members(parts)
    start_keys = np.concatenate([_keys(t.seed, len(p.n_rows), of="start") for (_, t), p in zip(varied, parts, strict=True)])
    plan = lead._plan(shortest, by_row)
    width = widths.pop()
    g, f = (stack(nets) for nets in zip(*(lead._networks(width, key) for key in start_keys), strict=True))
    state = training.State.create(g, f, plan)
    digest = hashlib.sha256("".join(t.fingerprint(lead._describe()) for _, t in varied).encode()).hexdigest()
    state, losses = training.train(plan, lead._schedule(digest), state, data, members)
    first = 0
    for (model, table), part in zip(varied, parts, strict=True):
        mine = slice(first, first + len(part.n_rows))
        first = mine.stop
        _settle(model, table, state, losses, mine)
    return models


def _settle(model, table: _Table, state: training.State, losses: training.Losses, mine: slice) -> None:
    """Write what was learnt onto a model; arrays as NumPy's, so that pickles and copies are plain."""

    def own(net):
        return jax.tree.map(lambda a: np.asarray(a[mine]) if eqx.is_array(a) else a, net)

    model.g_, model.f_ = own(state.g), own(state.f)
    model.history_ = losses._replace(
        **{k: getattr(losses, k)[:, mine] for k in ("pretrain", "joint_g", "joint_f", "held_out")}
    )
    model.n_iter_ = len(losses.pretrain) + len(losses.joint_g)
    likely = queries.empirical_quantiles(table.y.astype(float), np.linspace(0.01, 0.99, 17), table.weight)
    margin = max(float(model.z_margin), 0.05) * float(np.ptp(table.y))
    low = min(float(table.y.min()) - margin, float(table.thresholds.min()))
    high = max(float(table.y.max()) + margin, float(table.thresholds.max()))
    model._start = coarse_points(low, high, likely)
    loc, scale = model.outcome_.loc, model.outcome_.scale
    model.search_range_ = (loc + scale * low, loc + scale * high)


def _settle_constant(model) -> None:
    warnings.warn(
        f"the outcome is constant ({model.outcome_.loc:g}); every prediction is a point mass there.",
        UserWarning,
        stacklevel=4,
    )
    model.g_ = model.f_ = None
    empty = np.empty((0, 0), np.float32)
    model.history_ = training.Losses(empty, empty, empty, empty, np.empty(0, int))
    model.n_iter_, model._start = 0, np.zeros(0)
    model.search_range_ = (model.outcome_.loc, model.outcome_.loc)


def _members(model: CollaboratingRegressor, table: _Table, which: int) -> training.Member:
    """Seeds and rows of a model's members, as NumPy arrays with a leading axis."""
    n, m = len(table.y), int(model.n_members)
    rng = np.random.default_rng(table.seed)
    order = rng.permutation(n)
    if model.member_rows == "folds":
        if not 2 <= m <= n:
            raise ValueError(f"member_rows='folds' needs between 2 and {n} (the distinct rows) members, not {m}.")
        folds = np.array_split(order, m)
        rows = [np.concatenate(folds[:k] + folds[k + 1 :]) for k in range(m)]
        held = folds
    else:
        n_held = int(np.ceil(n * model.validation_fraction)) if model.early_stopping else 0
        if model.early_stopping and n_held >= n:
            raise ValueError(f"early_stopping holds out {n_held} of {n} distinct rows and leaves none to train on.")
        rows, held = [order[n_held:]] * m, [order[:n_held]] * m
        if model.member_rows == "bootstrap":
            rows = [rng.choice(r, len(r)) for r in rows]
    longest = max(len(h) for h in held)
    padded = np.array([np.pad(h, (0, longest - len(h))) for h in held], np.int32).reshape(m, longest)
    weights = np.array([np.pad(table.weight[h], (0, longest - len(h))) for h in held], np.float32)
    size = max(len(r) for r in rows)
    return training.Member(
        _keys(table.seed, m, of="draws"),
        np.full(m, which, np.int32),
        np.array([np.pad(np.sort(r), (0, size - len(r))) for r in rows], np.int32),
        np.array([len(r) for r in rows], np.int32),
        padded,
        weights.reshape(m, longest),
    )


def _stack_members(parts: list[training.Member]) -> training.Member:
    def stacked(name: str):
        arrays = [getattr(p, name) for p in parts]
        if arrays[0].ndim == 2 and name != "key":
            width = _bucket(max(a.shape[1] for a in arrays)) if arrays[0].shape[1] else 1
            arrays = [np.pad(a, ((0, 0), (0, width - a.shape[1]))) for a in arrays]
        return jnp.asarray(np.concatenate(arrays))

    return training.Member(*(stacked(name) for name in training.Member._fields))


def _data(model: CollaboratingRegressor, tables: list[_Table], by_row: bool) -> training.Data:
    n = _bucket(max(len(t.y) for t in tables))

    def padded(a: np.ndarray) -> np.ndarray:
        return np.pad(np.asarray(a, np.float32), ((0, n - len(a)),) + ((0, 0),) * (a.ndim - 1))

    thresholds = [padded(t.thresholds) if by_row else t.thresholds for t in tables]
    return training.Data(
        jnp.asarray(np.stack([padded(t.features) for t in tables])),
        jnp.asarray(np.stack([padded(t.y) for t in tables])),
        jnp.asarray(np.stack([padded(t.weight) for t in tables])),
        _table(queries.level_quantiles(model.q_distribution)[None]),
        _table(np.concatenate(thresholds)),
    )


def _table(values: np.ndarray) -> queries.QuantileTable:
    return queries.QuantileTable(jnp.asarray(queries.LEVELS, jnp.float32), jnp.asarray(values, jnp.float32))


def _keys(seed: int, n_members: int, *, of: str) -> np.ndarray:
    """JAX keys (n_members, 2) of the members' starts or draws; member k has the same ones in any ensemble."""
    purpose = {"start": 0, "draws": 1}[of]
    return np.array([np.random.SeedSequence([seed, k, purpose]).generate_state(2) for k in range(n_members)], np.uint32)


def _bucket(n: int) -> int:
    """The length to pad n rows to: at most an eighth more, so that few lengths are ever compiled for."""
    step = max(64, 1 << max(0, n.bit_length() - 4))
    return -(-n // step) * step


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
