"""One iteration: a step of g in the pre-training, steps of g and of f in the joint phase."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from collabnets.losses import f_loss, g_loss
from collabnets.networks import MomentsOf, QueryNetwork, respond_rows, store_moments
from collabnets.training.plan import Plan, State, weights_of


def descend(loss, net, opt_state, optimizer, step_scale):
    """One optimiser step of a network on ``loss(net) -> (value, moments seen)``."""
    weights, rest = weights_of(net)
    (value, seen), gradient = jax.value_and_grad(lambda w: loss(eqx.combine(w, rest)), has_aux=True)(weights)
    update, opt_state = optimizer.update(gradient, opt_state, weights)
    weights = jax.tree.map(lambda w, u: w + step_scale * u, weights, update)
    return store_moments(eqx.combine(weights, rest), seen), opt_state, value


def g_step(plan: Plan, state: State, batch, z, q, step_scale, match: bool | Array = False):
    """Eq. (pre_loss) where q is None, else Eq. (gloss) at z = f(q, x), with the consistency term if it has a weight."""
    x, y, weight = batch

    def loss(g: QueryNetwork):
        logit, seen = respond_rows(g, z, x, MomentsOf(True, match))
        value = g_loss(logit, y[:, None] < z)
        if q is not None and plan.consistency:
            value = value + plan.consistency * f_loss(logit, q)
        return jnp.mean(weight[:, None] * value), seen

    g, opt_g, value = descend(loss, state.g, state.opt_g, plan.optimizer_g, step_scale)
    return State(g, state.f, opt_g, state.opt_f), value


def f_step(plan: Plan, state: State, batch, q, step_scale):
    """Eq. (floss); g is used as it is at prediction."""
    x, _, weight = batch

    def loss(f: QueryNetwork):
        z, seen = respond_rows(f, q, x, MomentsOf(True, True))
        logit, _ = respond_rows(state.g, z, x)
        return jnp.mean(weight[:, None] * f_loss(logit, q)), seen

    f, opt_f, value = descend(loss, state.f, state.opt_f, plan.optimizer_f, step_scale)
    return State(state.g, f, state.opt_g, opt_f), value


def joint_step(plan: Plan, state: State, batch, q, step_scale, match: bool | Array):
    """Steps of g and of f on one batch and the same levels; both losses."""

    def g_steps(state: State):
        value = jnp.zeros(())
        for _ in range(plan.g_steps):
            z, _ = respond_rows(state.f, q, batch[0])
            state, value = g_step(plan, state, batch, z, q, step_scale, match)
        return state, value

    def f_steps(state: State):
        value = jnp.zeros(())
        for _ in range(plan.f_steps):
            state, value = f_step(plan, state, batch, q, step_scale)
        return state, value

    if plan.f_first:
        state, of_f = f_steps(state)
        state, of_g = g_steps(state)
    else:
        state, of_g = g_steps(state)
        state, of_f = f_steps(state)
    return state, jnp.stack([of_g, of_f])
