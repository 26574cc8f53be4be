"""What a target of ``collabnets reproduce`` gets and gives."""

from __future__ import annotations

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


class Report(NamedTuple):
    """What a target did.

    Attributes
    ----------
    text
        For the terminal.
    files
        Written.
    failed
        Cells that failed, with their errors.
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
    fit: bool = True
    progress: bool = False

    def chosen(self, known: Sequence[str]) -> tuple[str, ...] | None:
        """The methods that were asked for; unknown ones are refused."""
        unknown = [m for m in self.methods or () if m not in known]
        if unknown:
            raise ValueError(f"unknown method {', '.join(unknown)}; this target has: {', '.join(known)}.")
        return self.methods

    def cells(
        self, experiment: Experiment, jobs: Sequence[Job], replications: int
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The cells of some jobs, done now if they are not there and may be; and those that failed."""
        failed = grid.run(experiment, jobs, replications, self.store, progress=self.progress) if self.fit else []
        found = self.store.find(key for job in jobs for key in grid.keys(experiment, job, replications))
        if not found and not failed:
            raise NoResults(
                f"there are no results of {experiment.name} in {self.store.path}; run the same command without "
                "--draw-only, or name the folder that has them with --out."
            )
        return found, failed

    def need(self, series: Mapping[str, Any], method: str, target: str) -> None:
        """Refuse to draw a figure whose data are not there."""
        if method not in series:
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
        path = self.out / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=90)
        return path
