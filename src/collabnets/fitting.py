"""From tables to trained members and back: what ``CollaboratingRegressor.fit`` does, for one model or several."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from collabnets import queries, training
from collabnets.estimator import Table, warn_of_constant
from collabnets.inversion import coarse_points
from collabnets.networks import QueryNetwork

if TYPE_CHECKING:
    from collabnets.regressor import CollaboratingRegressor


class Task(NamedTuple):
    """A table, and the levels and thresholds that its rows are asked for.

    Attributes
    ----------
    table
        The rows.
    levels
        Quantiles of p(q).
    thresholds
        Quantiles of p(Z) in network units, one row for all or one each.
    """

    table: Table
    levels: np.ndarray
    thresholds: np.ndarray

    @staticmethod
    def of(model: CollaboratingRegressor, table: Table) -> Task:
        """Read p(Z) of a model for a table."""
        if table.outcome.constant:
            return Task(table, np.empty(0), np.empty((1, 0)))
        quantiles = queries.threshold_quantiles(
            model.z_distribution, table.values, table.rows, margin=float(model.z_margin), weight=table.weight
        )
        levels = queries.level_quantiles(model.q_distribution)
        return Task(table, levels, (quantiles - table.outcome.loc) / table.outcome.scale)

    def fingerprint(self, description: str) -> str:
        """A digest of the data, the seed and the parameters."""
        digest = hashlib.sha256(description.encode())
        for part in (self.table.features, self.table.y, self.table.weight, self.levels, self.thresholds):
            digest.update(np.ascontiguousarray(part).tobytes())
        digest.update(str((self.table.seed, jax.__version__, eqx.__version__)).encode())
        return digest.hexdigest()


def fit_together(
    models: Sequence[CollaboratingRegressor], tables: Sequence[tuple], *, progress: bool = False
) -> list[CollaboratingRegressor]:
    """Fit models with the same parameters (but for ``random_state``) to tables of the same width, all at once.

    Each is fitted as its own ``fit(*table)`` would, up to rounding, if no table has fewer rows than a batch (the
    batches of all are as long as the shortest table) and no loss becomes infinite or NaN (the step is then cut for
    all). Together they take less time than one after the other. For replications of an experiment, splits or bootstrap
    rounds.

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
    return fit_tables(list(models), [Table.read(m, *t) for m, t in zip(models, tables, strict=True)], progress)


def fit_tables(
    models: list[CollaboratingRegressor], tables: list[Table], progress: bool
) -> list[CollaboratingRegressor]:
    """Train models on tables that were read, all at once, and write what they learnt onto them."""
    for model, table in zip(models, tables, strict=True):
        model.columns_, model.outcome_ = table.columns, table.outcome
        if table.outcome.constant:
            warn_of_constant(table.outcome, stacklevel=4)
            model._learn_constant()
    varied = [(m, Task.of(m, t)) for m, t in zip(models, tables, strict=True) if not t.outcome.constant]
    if not varied:
        return models
    lead = varied[0][0]
    widths = {t.table.features.shape[1] for _, t in varied}
    if len(widths) > 1:
        raise ValueError(f"tables that are fitted together need the same number of coded features; got {widths}.")
    parts = [_members(m, t.table, which) for which, (m, t) in enumerate(varied)]
    shortest = min(int(p.n_rows.min()) for p in parts)
    by_row = varied[0][1].thresholds.shape[0] > 1
    data = _data([t for _, t in varied], by_row)
    members = _stack_members(parts)
    pairs = zip((t for _, t in varied), parts, strict=True)
    start_keys = np.concatenate([member_keys(t.table.seed, len(p.n_rows), of="start") for t, p in pairs])
    plan = lead._plan(shortest, by_row)
    g, f = lead._networks(widths.pop(), start_keys)
    state = training.State.create(g, f, plan)
    digest = hashlib.sha256("".join(t.fingerprint(lead._describe()) for _, t in varied).encode()).hexdigest()
    state, losses = training.train(plan, lead._schedule(digest, progress), state, data, members)
    # as NumPy's arrays, so that pickles and copies are plain; from an accelerator all at once, not one by one
    g, f = (jax.tree.map(lambda a: np.asarray(a) if eqx.is_array(a) else a, net) for net in (state.g, state.f))
    first = 0
    for (model, task), part in zip(varied, parts, strict=True):
        mine = slice(first, first + len(part.n_rows))
        first = mine.stop
        _settle(model, task, g, f, losses, mine)
    return models


def _settle(
    model: CollaboratingRegressor, task: Task, g: QueryNetwork, f: QueryNetwork, losses: training.Losses, mine: slice
) -> None:
    """Write what the members ``mine`` learnt onto a model."""

    def own(net: QueryNetwork) -> QueryNetwork:
        return jax.tree.map(lambda a: a[mine].copy() if isinstance(a, np.ndarray) else a, net)

    model.g_, model.f_ = own(g), own(f)
    model.history_ = losses._replace(
        **{k: getattr(losses, k)[:, mine] for k in ("pretrain", "joint_g", "joint_f", "held_out")}
    )
    model.n_iter_ = len(losses.pretrain) + len(losses.joint_g)
    table = task.table
    likely = queries.empirical_quantiles(table.y.astype(float), np.linspace(0.01, 0.99, 17), table.weight)
    margin = max(float(model.z_margin), 0.05) * float(np.ptp(table.y))
    low = min(float(table.y.min()) - margin, float(task.thresholds.min()))
    high = max(float(table.y.max()) + margin, float(task.thresholds.max()))
    model._start = coarse_points(low, high, likely)
    loc, scale = model.outcome_.loc, model.outcome_.scale
    model.search_range_ = (loc + scale * low, loc + scale * high)


def _members(model: CollaboratingRegressor, table: Table, which: int) -> training.Member:
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
        member_keys(table.seed, m, of="draws"),
        np.full(m, which, np.int32),
        np.array([np.pad(np.sort(r), (0, size - len(r))) for r in rows], np.int32),
        np.array([len(r) for r in rows], np.int32),
        padded,
        weights.reshape(m, longest),
    )


def _stack_members(parts: list[training.Member]) -> training.Member:
    def stacked(name: str) -> jax.Array:
        arrays = [getattr(p, name) for p in parts]
        if arrays[0].ndim == 2 and name != "key":
            width = bucket(max(a.shape[1] for a in arrays)) if arrays[0].shape[1] else 1
            arrays = [np.pad(a, ((0, 0), (0, width - a.shape[1]))) for a in arrays]
        return jnp.asarray(np.concatenate(arrays))

    return training.Member(*(stacked(name) for name in training.Member._fields))


def _data(tasks: list[Task], by_row: bool) -> training.Data:
    n = bucket(max(len(t.table.y) for t in tasks))

    def padded(a: np.ndarray) -> np.ndarray:
        return np.pad(np.asarray(a, np.float32), ((0, n - len(a)),) + ((0, 0),) * (a.ndim - 1))

    thresholds = [padded(t.thresholds) if by_row else t.thresholds for t in tasks]
    return training.Data(
        jnp.asarray(np.stack([padded(t.table.features) for t in tasks])),
        jnp.asarray(np.stack([padded(t.table.y) for t in tasks])),
        jnp.asarray(np.stack([padded(t.table.weight) for t in tasks])),
        _table(tasks[0].levels[None]),
        _table(np.concatenate(thresholds)),
    )


def _table(values: np.ndarray) -> queries.QuantileTable:
    return queries.QuantileTable(jnp.asarray(queries.LEVELS, jnp.float32), jnp.asarray(values, jnp.float32))


def member_keys(seed: int, n_members: int, *, of: str) -> np.ndarray:
    """JAX keys (n_members, 2) of the members' starts or draws; member k has the same ones in any ensemble."""
    purpose = {"start": 0, "draws": 1}[of]
    return np.array([np.random.SeedSequence([seed, k, purpose]).generate_state(2) for k in range(n_members)], np.uint32)


def bucket(n: int) -> int:
    """The length to pad n rows to: at most an eighth more, so that few lengths are ever compiled for."""
    step = max(64, 1 << max(0, n.bit_length() - 4))
    return -(-n // step) * step
