"""The visible loop over compiled chunks: progress, early stopping, checkpoints, interruption, roll-back."""

from __future__ import annotations

import signal
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from tqdm.auto import tqdm

from collabnets import checkpoint as checkpoints
from collabnets.training.chunks import draw, held_out_loss, keep_best, run_chunk
from collabnets.training.plan import Best, Data, Losses, Member, Phase, Plan, Schedule, State


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


@jax.jit
def _finite(arrays) -> jax.Array:
    """Whether all numbers of a pytree are finite."""
    return jnp.stack([jnp.isfinite(a).all() for a in jax.tree.leaves(arrays)]).all()


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
        ends = self.step + n_steps == length  # the last update comes after the last loss
        if not np.isfinite(values).all() or (ends and not _finite(eqx.filter(state, eqx.is_inexact_array))):
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
