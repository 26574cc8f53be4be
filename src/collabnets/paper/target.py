"""What a target of ``collabnets reproduce`` gets and gives."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from collabnets.checkpoint import write_whole
from collabnets.paper import grid
from collabnets.paper.grid import Experiment, Job
from collabnets.paper.store import Store

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class NoResults(ValueError):
    """Results were asked for that are not there, and may not be made now."""


class NothingAsked(ValueError):
    """Of what a target does, nothing was asked for."""


class Report(NamedTuple):
    """What a target did.

    Attributes
    ----------
    text
        For the terminal.
    files
        Written.
    failed
        Cells that failed, with their errors; without fits, also those that are not there.
    """

    text: str
    files: list[Path]
    failed: list[dict[str, Any]]


@dataclass(frozen=True)
class Options:
    """How to run a target.

    Attributes
    ----------
    store
        Where cells are kept.
    out
        Where tables and figures go.
    replications
        None for the target's own number.
    quick
        Short settings: to see that it works, not to compare with the paper.
    methods
        Do only these; None for all.
    data
        Of the real data sets only these; None for all that the target has.
    lenient
        Leave out methods that a target does not have, as where all targets are run; else they are refused.
    fit
        False takes only results that are there.
    progress
        Show bars.
    """

    store: Store
    out: Path
    replications: int | None = None
    quick: bool = False
    methods: tuple[str, ...] | None = None
    data: tuple[str, ...] | None = None
    lenient: bool = False
    fit: bool = True
    progress: bool = False

    def chosen(self, known: Sequence[str]) -> tuple[str, ...] | None:
        """The methods that were asked for, None for all; those that a target does not have are refused."""
        if self.methods is None:
            return None
        here = tuple(m for m in self.methods if m in known)
        if len(here) < len(self.methods) and not self.lenient:
            unknown = ", ".join(m for m in self.methods if m not in known)
            raise ValueError(f"unknown method {unknown}; this target has: {', '.join(known)}.")
        if not here:
            raise NothingAsked(f"it has none of the methods {', '.join(self.methods)}; it has: {', '.join(known)}.")
        return here

    def cells(
        self, experiment: Experiment, jobs: Sequence[Job], replications: int
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The cells of some jobs, done now if they are not there and may be; and those that failed or are missing."""
        failed = grid.run(experiment, jobs, replications, self.store, progress=self.progress) if self.fit else []
        every = [key for job in jobs for key in grid.keys(experiment, job, replications)]
        found = self.store.find(every)
        if not self.fit:
            absent = f"there is no result of these settings in {self.store.path}"
            failed = [{**key._asdict(), "error": absent} for key in every if not self.store.done(key)]
        return found, failed

    def some(
        self, found: list[dict[str, Any]], failed: list[dict[str, Any]], name: str
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """What ``cells`` gave, if there is any of it or may have been made; ``name`` says of what."""
        if not found and not self.fit:
            raise NoResults(
                f"there are no results of {name} in {self.store.path}; run the same command without "
                "--draw-only, or name the folder that has them with --out."
            )
        return found, failed

    def need(
        self, series: Mapping[str, Any], method: str, target: str, failed: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Refuse to draw a figure whose data are not there; if they could not be made, with that error."""
        if method not in series:
            errors = [c["error"] for c in failed if c["method"] == method and self.fit]
            if errors:
                raise NoResults(f"{target} needs the results of {method}, which failed: {errors[0]}")
            raise NoResults(
                f"{target} needs the results of {method}, which are not in {self.store.path}; run "
                f"`collabnets reproduce {target}` without --draw-only and without leaving {method} out."
            )

    def write(self, name: str, text: str) -> Path:
        """Write a text file, whole or not at all."""
        path = self.out / name
        write_whole(path, text.encode())
        return path

    def save(self, figure: Figure, name: str) -> Path:
        """Write a figure."""
        path, drawn = self.out / f"{name}.png", io.BytesIO()
        figure.savefig(drawn, format="png", dpi=90)
        write_whole(path, drawn.getvalue())
        return path
