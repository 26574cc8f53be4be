"""Compiled chunks of iterations, and looks at held-out rows, for all members at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from collabnets.losses import g_loss, pinball_loss
from collabnets.networks import respond_rows
from collabnets.queries import stratified
from collabnets.training.draws import batch_rows, mix, uniform
from collabnets.training.plan import Best, Data, Member, Phase, Plan, State
from collabnets.training.steps import g_step, joint_step

HELD_OUT_DRAWS = 64
# Batch moments of the logit mean something once f has learnt to be an inverse. At its start f is a constant, the
# logits at f(q, x) hardly vary, and normalising them to unit spread would blow g up.
MATCH_AFTER = 2000


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
        of_phase = mix(phase.astype(jnp.uint32) + jnp.arange(4, dtype=jnp.uint32) * 2)
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
                state, value = g_step(plan, state, batch, query[i], None, step_scale, plan.matched_pretrain)
                value = jnp.stack([value, jnp.zeros(())])
            else:
                match = start + i >= MATCH_AFTER if plan.matched else False
                state, value = joint_step(plan, state, batch, query[i], step_scale, match)
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
