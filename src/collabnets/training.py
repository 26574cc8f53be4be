"""Algorithm 1 of the paper: pre-train g, then train f and g jointly; many members at once, in compiled chunks.

A *member* is one pair of networks with its own seed and its own training rows. All members stand in arrays with a
leading axis and train together: an ensemble on one data set, or replications on several. A chunk is one
compiled loop of up to ``CHUNK`` iterations; between chunks the host only looks at losses. What an iteration draws
depends on the seed and the iteration's number alone, so the chunk size does not change a bit of the result.
"""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.extend.random import threefry_2x32
from jaxtyping import Array, Float, Int
from tqdm.auto import tqdm

from collabnets import checkpoint as checkpoints
from collabnets.losses import f_loss, g_loss, pinball_loss
from collabnets.networks import AnyArray, MomentsOf, QueryNetwork, respond_rows, store_moments, trainable
from collabnets.queries import QuantileTable, stratified

CHUNK = 500
HELD_OUT_DRAWS = 64
# Batch moments of the logit mean something once f has learnt to be an inverse. At its start f is a constant, the
# logits at f(q, x) hardly vary, and normalising them to unit spread would blow g up.
MATCH_AFTER = 2000
ROUNDS = 6  # of the shuffling cipher
Phase = Literal["pretrain", "joint"]


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a compiled chunk is compiled for.

    Parameters
    ----------
    optimizer_g, optimizer_f
        Optax transformations.
    batch_size
        Rows of a mini-batch, drawn without replacement.
    n_draws
        Queries a row and iteration, stratified.
    g_steps, f_steps
        Steps of each network in an iteration of the joint phase.
    f_first
        Order in the joint phase: f before g, as the paper's Algorithm 1 lists them, or g before f, as its code does.
    consistency
        Weight lambda of the consistency term in the loss of g (second lemma of Appendix B).
    thresholds_by_row
        Whether p(Z) has a table of its own for every row, or one a data set.
    matched
        Whether g matches moments to those of the batch, from iteration ``MATCH_AFTER`` of the joint phase on.
    """

    optimizer_g: optax.GradientTransformation
    optimizer_f: optax.GradientTransformation
    batch_size: int = 128
    n_draws: int = 1
    g_steps: int = 1
    f_steps: int = 2
    f_first: bool = False
    consistency: float = 0.0
    thresholds_by_row: bool = False
    matched: bool = False


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How long to train, and what the host does between chunks.

    Parameters
    ----------
    n_pretrain, n_joint
        Iterations of the two phases at most.
    check_every
        Iterations between two looks at the held-out rows.
    patience
        A phase ends after this many looks without an improvement; None trains to the end of the phase.
    tolerance
        The least decrease of the held-out loss that counts.
    judge_f
        Judge the joint phase by f (pinball loss) instead of by g.
    checkpoint
        File to save to and to resume from.
    fingerprint
        What the checkpoint belongs to; another fingerprint is refused.
    progress
        Show a bar, if on a terminal.
    width
        Members under one ``vmap``; None is 1 on a CPU and all on an accelerator.
    chunk
        Iterations a compiled call at most; results do not depend on it.
    """

    n_pretrain: int
    n_joint: int
    check_every: int = 250
    patience: int | None = None
    tolerance: float = 1e-5
    judge_f: bool = False
    checkpoint: Path | None = None
    fingerprint: str = ""
    progress: bool = False
    width: int | None = None
    chunk: int = CHUNK


class Data(NamedTuple):
    """Everything a compiled chunk reads; it stays on the device.

    Attributes
    ----------
    x, y, weight
        R data sets padded to one length: (R, N, p), (R, N), (R, N); weights have mean 1 over a data set's rows.
    levels, thresholds
        p(q), one table, and p(Z), one table a data set or one a row of all data sets.
    """

    x: Float[Array, "R N p"]
    y: Float[Array, "R N"]
    weight: Float[Array, "R N"]
    levels: QuantileTable
    thresholds: QuantileTable


class Member(NamedTuple):
    """What differs between members; every array has a leading axis of members outside the compiled chunk.

    Attributes
    ----------
    key
        Seed of all its draws.
    which
        Its data set.
    rows, n_rows
        Its training rows, padded, and how many are real.
    held, held_weight
        Its held-out rows, padded with weight 0.
    """

    key: AnyArray
    which: Int[AnyArray, "..."]
    rows: Int[AnyArray, "... S"]
    n_rows: Int[AnyArray, "..."]
    held: Int[AnyArray, "... H"]
    held_weight: Float[AnyArray, "... H"]


class State(eqx.Module):
    """The networks and their optimisers."""

    g: QueryNetwork
    f: QueryNetwork
    opt_g: optax.OptState
    opt_f: optax.OptState

    @staticmethod
    @eqx.filter_jit
    def create(g: QueryNetwork, f: QueryNetwork, plan: Plan) -> State:
        """Start the optimisers of networks that have a leading axis of members."""
        opt_g = eqx.filter_vmap(lambda net: plan.optimizer_g.init(_weights_of(net)[0]))(g)
        opt_f = eqx.filter_vmap(lambda net: plan.optimizer_f.init(_weights_of(net)[0]))(f)
        return State(g, f, opt_g, opt_f)


class Best(eqx.Module):
    """The state of the lowest held-out loss of the current phase, and how long ago that was."""

    state: State
    loss: Float[AnyArray, " members"]
    stale: Int[AnyArray, " members"]


class Losses(NamedTuple):
    """Loss history of a fit; one column a member.

    Attributes
    ----------
    pretrain
        Loss of g in each pre-training iteration (n_pretrain, members).
    joint_g, joint_f
        Losses of g and of f in each joint iteration (n_joint, members).
    held_out
        Held-out losses (looks, members) of both phases, and their iterations, counted from the start of the fit.
    held_out_iteration
        The iterations of ``held_out``.
    """

    pretrain: np.ndarray
    joint_g: np.ndarray
    joint_f: np.ndarray
    held_out: np.ndarray
    held_out_iteration: np.ndarray


# -------------------------------------------------------------------- which rows


def batch_rows(key: AnyArray, iteration: Int[Array, " C"], n: Int[AnyArray, ""], batch_size: int) -> Int[Array, "C B"]:
    """Positions in 0..n-1 of the mini-batches of some iterations: each epoch is a new shuffle, cut into batches.

    The shuffle is a keyed permutation evaluated only where it is needed (a Feistel cipher on the smallest even number
    of bits that holds n, walked until it falls below n), so a batch costs the same for any n and nothing is stored.
    The n mod batch_size rows at the end of a shuffle wait for the next one.
    """
    per_epoch = n // batch_size
    epoch, slot = iteration // per_epoch, iteration % per_epoch
    position = (slot[:, None] * batch_size + jnp.arange(batch_size)[None, :]).astype(jnp.uint32)
    seeds = _mix(key[0] ^ _mix(key[1] ^ epoch.astype(jnp.uint32)))
    round_keys = _mix(seeds[:, None] + jnp.arange(1, ROUNDS + 1, dtype=jnp.uint32)[None, :] * jnp.uint32(0x9E3779B9))
    half = (33 - jax.lax.clz(jnp.maximum(n - 1, 1)).astype(jnp.uint32)) // 2
    mask = (jnp.uint32(1) << half) - 1

    limit = n.astype(jnp.uint32)

    def encipher(v: Array) -> Array:
        def feistel_round(i, halves):
            left, right = halves
            return right, left ^ (_mix(right ^ round_keys[:, i, None]) & mask)

        left, right = jax.lax.fori_loop(0, ROUNDS, feistel_round, (v >> half, v & mask))
        return (left << half) | right

    def walk(carry):
        v, outside = carry
        v = jnp.where(outside, encipher(v), v)
        return v, v >= limit

    walked, _ = jax.lax.while_loop(lambda carry: jnp.any(carry[1]), walk, (position, position >= 0))
    return walked.astype(jnp.int32)


def uniform(key: AnyArray, iteration: Int[Array, " C"], shape: tuple[int, ...]) -> Float[Array, "C ..."]:
    """Uniform draws in (0, 1) of some iterations: Threefry on (iteration, position), whatever the other iterations."""
    size = math.prod(shape)
    high = jnp.repeat(iteration.astype(jnp.uint32), size)
    low = jnp.tile(jnp.arange(size, dtype=jnp.uint32), len(iteration))
    bits = threefry_2x32(key, jnp.concatenate([high, low]))[: len(high)]
    return ((bits >> 9).astype(jnp.float32) + 0.5).reshape(len(iteration), *shape) * jnp.float32(2.0**-23)


def _mix(h: Array) -> Array:
    """The finaliser of MurmurHash3: every bit of the input changes every bit of the output."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = (h ^ (h >> shift)) * jnp.uint32(factor)
    return h ^ (h >> 16)


# -------------------------------------------------------------------- one iteration


def _weights_of(net: QueryNetwork) -> tuple[QueryNetwork, QueryNetwork]:
    return eqx.partition(net, trainable(net))


def _descend(loss, net, opt_state, optimizer, step_scale):
    """One optimiser step of a network on ``loss(net) -> (value, moments seen)``."""
    weights, rest = _weights_of(net)
    (value, seen), gradient = jax.value_and_grad(lambda w: loss(eqx.combine(w, rest)), has_aux=True)(weights)
    update, opt_state = optimizer.update(gradient, opt_state, weights)
    weights = jax.tree.map(lambda w, u: w + step_scale * u, weights, update)
    return store_moments(eqx.combine(weights, rest), seen), opt_state, value


def _g_step(plan: Plan, state: State, batch, z, q, step_scale, match: bool | Array = False):
    """Eq. (pre_loss) where q is None, else Eq. (gloss) at z = f(q, x), with the consistency term if it has a weight."""
    x, y, weight = batch

    def loss(g: QueryNetwork):
        logit, seen = respond_rows(g, z, x, MomentsOf(True, match))
        value = g_loss(logit, y[:, None] < z)
        if q is not None and plan.consistency:
            value = value + plan.consistency * f_loss(logit, q)
        return jnp.mean(weight[:, None] * value), seen

    g, opt_g, value = _descend(loss, state.g, state.opt_g, plan.optimizer_g, step_scale)
    return State(g, state.f, opt_g, state.opt_f), value


def _f_step(plan: Plan, state: State, batch, q, step_scale):
    """Eq. (floss); g is used as it is at prediction."""
    x, _, weight = batch

    def loss(f: QueryNetwork):
        z, seen = respond_rows(f, q, x, MomentsOf(True, True))
        logit, _ = respond_rows(state.g, z, x)
        return jnp.mean(weight[:, None] * f_loss(logit, q)), seen

    f, opt_f, value = _descend(loss, state.f, state.opt_f, plan.optimizer_f, step_scale)
    return State(state.g, f, state.opt_g, opt_f), value


def _joint_step(plan: Plan, state: State, batch, q, step_scale, match: bool | Array):
    def g_steps(state: State):
        value = jnp.zeros(())
        for _ in range(plan.g_steps):
            z, _ = respond_rows(state.f, q, batch[0])
            state, value = _g_step(plan, state, batch, z, q, step_scale, match)
        return state, value

    def f_steps(state: State):
        value = jnp.zeros(())
        for _ in range(plan.f_steps):
            state, value = _f_step(plan, state, batch, q, step_scale)
        return state, value

    if plan.f_first:
        state, of_f = f_steps(state)
        state, of_g = g_steps(state)
    else:
        state, of_g = g_steps(state)
        state, of_f = f_steps(state)
    return state, jnp.stack([of_g, of_f])


# -------------------------------------------------------------------- compiled chunks


@lru_cache
def _compiler_options() -> dict[str, str] | None:
    """Options for small networks on a CPU: XLA's library fusion of sums over a batch costs half the speed there.

    None where the option is unknown, or on another backend.
    """
    if jax.default_backend() != "cpu":
        return None
    options = {"xla_cpu_experimental_ynn_fusion_type": ""}
    try:
        jax.jit(lambda a: a, compiler_options=options).lower(np.float32(0)).compile()
    except (RuntimeError, ValueError):  # an older or newer XLA than this option
        return None
    return options


@eqx.filter_jit
def draw(
    chunk: int, batch_size: int, n_draws: int, members: Member, phase: Any, start: Any
) -> tuple[Int[Array, "members chunk B"], Float[Array, "members chunk B D"]]:
    """Rows of the mini-batches of ``chunk`` iterations from ``start`` of a phase, and their uniform draws."""

    def one_member(member: Member):
        iteration = start + jnp.arange(chunk)
        of_phase = _mix(phase.astype(jnp.uint32) + jnp.arange(4, dtype=jnp.uint32) * 2)
        row_key, query_key = member.key ^ of_phase[:2], member.key ^ of_phase[2:]
        rows = member.rows[batch_rows(row_key, iteration, member.n_rows, batch_size)]
        return rows, stratified(uniform(query_key, iteration, (batch_size, n_draws)))

    return jax.vmap(one_member)(members)


def _run_chunk(
    plan: Plan, phase: Phase, state: State, data: Data, members: Member, rows, u, start, n_steps, step_scale
) -> tuple[State, Float[Array, "members chunk 2"]]:
    """Train all members for the first ``n_steps`` of the drawn iterations."""
    arrays, rest = eqx.partition(state, eqx.is_array)

    def one_member(arrays, member: Member, rows, u):
        if phase == "pretrain":
            query = _thresholds(plan, data, member.which, rows[:, :, None], u)
        else:
            query = data.levels(u, jnp.zeros_like(u, jnp.int32))

        def iterate(i, carry):
            arrays, losses = carry
            state = eqx.combine(arrays, rest)
            at = rows[i]
            batch = data.x[member.which, at], data.y[member.which, at], data.weight[member.which, at]
            if phase == "pretrain":
                state, value = _g_step(plan, state, batch, query[i], None, step_scale)
                value = jnp.stack([value, jnp.zeros(())])
            else:
                match = start + i >= MATCH_AFTER if plan.matched else False
                state, value = _joint_step(plan, state, batch, query[i], step_scale, match)
            return eqx.filter(state, eqx.is_array), losses.at[i].set(value)

        return jax.lax.fori_loop(0, n_steps, iterate, (arrays, jnp.zeros((rows.shape[0], 2))))

    arrays, losses = jax.vmap(one_member)(arrays, members, rows, u)
    return eqx.combine(arrays, rest), losses


@lru_cache
def _compiled_chunk():
    return eqx.filter_jit(compiler_options=_compiler_options())(_run_chunk)  # type: ignore[call-overload]


def run_chunk(
    plan: Plan,
    phase: Phase,
    width: int | None,
    state: State,
    data: Data,
    members: Member,
    rows,
    u,
    start,
    n_steps,
    step_scale,
) -> tuple[State, np.ndarray]:
    """Train all members, ``width`` of them under one ``vmap`` at a time.

    An accelerator takes all at once. On a CPU one member a call is fastest: its networks stay in the cache of a core,
    calls run on all cores at once, and a member's result does not depend, not even in the last bit, on the others.
    """

    def run(group) -> tuple[State, Array]:
        state, members, rows, u = group
        arguments = (state, data, members, rows, u, np.int32(start), np.int32(n_steps), np.float32(step_scale))
        return _compiled_chunk()(plan, phase, *arguments)

    new, losses = over_members(run, (state, members, rows, u), len(members.n_rows), width)
    return new, np.asarray(losses)


def over_members(run: Callable[[Any], Any], stacked: Any, n: int, width: int | None = None) -> Any:
    """Run a compiled function on the members of a stacked pytree, ``width`` of them a call; results are stacked again.

    None for the width is one a call on a CPU, on all cores at once, and all in one call on an accelerator.
    """
    width = width or (1 if jax.default_backend() == "cpu" else n)

    def one(first: int) -> Any:
        group = jax.tree.map(lambda a: a[first : first + width] if eqx.is_array(a) else a, stacked)
        return jax.block_until_ready(run(group))

    starts = range(0, n, width)
    first = one(0)  # compiles, once
    if len(starts) == 1:
        return first
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None) as pool:
        parts = [first, *pool.map(one, starts[1:])]
    arrays, rests = zip(*(eqx.partition(part, eqx.is_array) for part in parts), strict=True)
    return eqx.combine(jax.tree.map(lambda *leaves: np.concatenate(leaves), *arrays), rests[0])


def _thresholds(plan: Plan, data: Data, which, rows, u):
    table = which * data.x.shape[1] + rows if plan.thresholds_by_row else jnp.broadcast_to(which, rows.shape)
    return data.thresholds(u, jnp.broadcast_to(table, u.shape))


@eqx.filter_jit
def held_out_loss(plan: Plan, judge_f: bool, state: State, data: Data, members: Member) -> Float[Array, " members"]:
    """Loss of the held-out rows at fixed stratified queries: of g over p(Z), or the pinball loss of f over p(q)."""
    arrays, rest = eqx.partition(state, eqx.is_array)
    u = (jnp.arange(HELD_OUT_DRAWS) + 0.5) / HELD_OUT_DRAWS

    def one_member(arrays, member: Member):
        state = eqx.combine(arrays, rest)

        def one_row(row, weight):
            x, y = data.x[member.which, row][None], data.y[member.which, row]
            if judge_f:
                q = data.levels(u, jnp.zeros(u.shape, jnp.int32))
                value = pinball_loss(respond_rows(state.f, q[None], x)[0][0], y, q)
            else:
                z = _thresholds(plan, data, member.which, row, u)
                value = g_loss(respond_rows(state.g, z[None], x)[0][0], y < z)
            return weight * jnp.mean(value)

        total = jax.lax.map(lambda a: one_row(*a), (member.held, member.held_weight), batch_size=64)
        return jnp.sum(total) / jnp.sum(member.held_weight)

    return jax.vmap(one_member)(arrays, members)


@eqx.filter_jit
def keep_best(best: Best, state: State, loss: Float[Array, " members"], patience, tolerance) -> Best:
    """Remember each member's state if its held-out loss fell; a member out of patience is left as it is."""
    better = (loss < best.loss - tolerance) & (best.stale < patience)
    new, rest = eqx.partition(state, eqx.is_array)
    old = eqx.filter(best.state, eqx.is_array)

    def choose(a: Array, b: Array) -> Array:
        return jnp.where(better.reshape(better.shape + (1,) * (a.ndim - 1)), a, b)

    kept = jax.tree.map(choose, new, old)
    stale = jnp.where(better, 0, best.stale + 1)
    return Best(eqx.combine(kept, rest), jnp.where(better, loss, best.loss), stale)


# -------------------------------------------------------------------- the visible loop


def train(plan: Plan, schedule: Schedule, state: State, data: Data, members: Member) -> tuple[State, Losses]:
    """Train all members through both phases; returns their final (or, with patience, best) state and the losses."""
    run = _Run(plan, schedule, data, members, state)
    saved = checkpoints.load(schedule.checkpoint, schedule.fingerprint, run.snapshot())
    if saved is not None:
        run.restore(saved)
    total = schedule.n_pretrain + schedule.n_joint
    bar = tqdm(total=total, initial=run.done, disable=None if schedule.progress else True, unit="it", leave=False)
    last_save = time.monotonic()
    with bar, interruptible() as interrupted:
        while not run.finished:
            run.advance(bar)
            if schedule.checkpoint is not None and (
                run.finished or interrupted.is_set() or time.monotonic() - last_save > 5.0
            ):
                checkpoints.save(schedule.checkpoint, schedule.fingerprint, run.snapshot())
                last_save = time.monotonic()
            if interrupted.is_set() and not run.finished:
                run.stop()
                warnings.warn(
                    f"training was interrupted after {run.done} of {total} iterations; the model is kept as it is.",
                    RuntimeWarning,
                    stacklevel=4,
                )
    return run.result(), run.losses()


class _Run:
    """The host's side of a fit: where it stands, and the best state so far."""

    def __init__(self, plan: Plan, schedule: Schedule, data: Data, members: Member, state: State) -> None:
        self.plan, self.schedule, self.data, self.members = plan, schedule, data, members
        self.state, self.phase_index, self.step, self.step_scale = state, 0, 0, 1.0
        self.history: dict[str, list[np.ndarray]] = {"pretrain": [], "joint": []}
        self.looks: list[tuple[int, np.ndarray]] = []
        self.best = self._no_best()
        self._skip_finished_phases()

    PHASES: tuple[Phase, Phase] = ("pretrain", "joint")

    @property
    def finished(self) -> bool:
        return self.phase_index >= len(self.PHASES)

    @property
    def done(self) -> int:
        return sum(len(a) for parts in self.history.values() for a in parts)

    def advance(self, bar: tqdm) -> None:
        """Run one chunk, look at its losses, and at the held-out rows when it is time."""
        s, phase = self.schedule, self.PHASES[self.phase_index]
        length = s.n_pretrain if phase == "pretrain" else s.n_joint
        n_steps = min(s.chunk, length - self.step)
        if s.patience is not None:
            n_steps = min(n_steps, s.check_every - self.step % s.check_every)
        phase_index, step = np.int32(self.phase_index), np.int32(self.step)
        rows, u = draw(s.chunk, self.plan.batch_size, self.plan.n_draws, self.members, phase_index, step)
        state, losses = run_chunk(
            self.plan, phase, s.width, self.state, self.data, self.members, rows, u, self.step, n_steps, self.step_scale
        )
        values = losses[:, :n_steps].swapaxes(0, 1)
        if not np.isfinite(values).all():
            self._roll_back(phase)
            return
        self.state = state
        self.step += n_steps
        self.history[phase].append(values)
        bar.update(n_steps)
        bar.set_postfix_str(f"{phase} loss {values[-1, :, 0].mean():.4f}", refresh=False)
        if s.patience is not None and (self.step % s.check_every == 0 or self.step == length):
            self._look(phase)
        if self.step == length or (s.patience is not None and bool((self.best.stale >= s.patience).all())):
            self._end_phase()

    def _look(self, phase: Phase) -> None:
        s = self.schedule
        loss = held_out_loss(self.plan, s.judge_f and phase == "joint", self.state, self.data, self.members)
        patience = np.int32(s.patience or 0)
        self.looks.append((self.done, np.asarray(loss)))
        self.best = keep_best(self.best, self.state, loss, patience, np.float32(s.tolerance))

    def _end_phase(self) -> None:
        if self.schedule.patience is not None:
            self.state = self.best.state
        self.phase_index, self.step = self.phase_index + 1, 0
        self.best = self._no_best()
        self._skip_finished_phases()

    def stop(self) -> None:
        """End the fit now, with the best state of the current phase if held-out rows were looked at."""
        if np.isfinite(self.best.loss).all():
            self.state = self.best.state
        self.phase_index = len(self.PHASES)

    def _roll_back(self, phase: Phase) -> None:
        if self.step_scale < 1.0:
            raise FloatingPointError(
                f"the {phase} loss became infinite or NaN twice, the second time with a tenth of the step; "
                "try a smaller learning_rate_init, look for extreme values in X or y, or try init='tiny'."
            )
        self.step_scale = 0.1
        warnings.warn(
            f"the {phase} loss became infinite or NaN; training goes on from {self.done} iterations with a tenth of "
            "the step.",
            RuntimeWarning,
            stacklevel=5,
        )

    def _skip_finished_phases(self) -> None:
        lengths = (self.schedule.n_pretrain, self.schedule.n_joint)
        while not self.finished and lengths[self.phase_index] == 0:
            self.phase_index += 1

    def _no_best(self) -> Best:
        n = len(self.members.n_rows)
        return Best(self.state, jnp.full(n, jnp.inf), jnp.zeros(n, jnp.int32))

    def result(self) -> State:
        return self.state

    def losses(self) -> Losses:
        n = len(self.members.n_rows)
        pretrain = np.concatenate([np.empty((0, n, 2), np.float32), *self.history["pretrain"]])
        joint = np.concatenate([np.empty((0, n, 2), np.float32), *self.history["joint"]])
        at = np.array([i for i, _ in self.looks], int)
        held = np.array([v for _, v in self.looks]).reshape(len(at), n)
        return Losses(pretrain[:, :, 0], joint[:, :, 0], joint[:, :, 1], held, at)

    def snapshot(self) -> checkpoints.Snapshot:
        """All that a resumed fit needs."""
        arrays = eqx.filter((self.state, self.best), eqx.is_array)
        n = len(self.members.n_rows)
        history = {k: np.concatenate([np.empty((0, n, 2), np.float32), *v]) for k, v in self.history.items()}
        losses = self.losses()
        history |= {"held_out": losses.held_out, "held_out_iteration": losses.held_out_iteration}
        where = {"phase_index": self.phase_index, "step": self.step, "step_scale": self.step_scale}
        return checkpoints.Snapshot(arrays, history, where)

    def restore(self, saved: checkpoints.Snapshot) -> None:
        """Continue where a snapshot was taken."""
        rest = eqx.filter((self.state, self.best), eqx.is_array, inverse=True)
        self.state, self.best = eqx.combine(saved.arrays, rest)
        self.phase_index, self.step = saved.where["phase_index"], saved.where["step"]
        self.step_scale = saved.where["step_scale"]
        self.history = {k: [saved.history[k]] for k in ("pretrain", "joint")}
        self.looks = list(zip(saved.history["held_out_iteration"].tolist(), saved.history["held_out"], strict=True))


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C into an event that the loop reads between chunks; a second one stops at once."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return

    previous = signal.getsignal(signal.SIGINT)

    def on_interrupt(signum, frame) -> None:
        event.set()
        signal.signal(signal.SIGINT, previous)

    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, previous)
