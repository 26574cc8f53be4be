"""What a fit is made of: the plan that is compiled, the schedule of the host, the data, the members, their state."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal, NamedTuple

import equinox as eqx
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from collabnets.networks import AnyArray, QueryNetwork, trainable
from collabnets.queries import QuantileTable

CHUNK = 500
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
    matched_pretrain
        Whether it does so in the pre-training: only where p(Z) is an f that is known to be the inverse.
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
    matched_pretrain: bool = False


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
        opt_g = eqx.filter_vmap(lambda net: plan.optimizer_g.init(weights_of(net)[0]))(g)
        opt_f = eqx.filter_vmap(lambda net: plan.optimizer_f.init(weights_of(net)[0]))(f)
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


def weights_of(net: QueryNetwork) -> tuple[QueryNetwork, QueryNetwork]:
    """What gradients may change in a network, and the rest."""
    return eqx.partition(net, trainable(net))
