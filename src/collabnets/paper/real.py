"""Tables 3 to 5, Figures 8, 9, S3 and S4: the comparison of all methods on the six real data sets."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from collabnets import metrics
from collabnets.datasets import Dataset, load_airline, load_cpu, load_crime, load_ehr, load_energy, load_mpg
from collabnets.distribution import PredictiveDistribution
from collabnets.paper import figures, grid, methods, published, settings, tables
from collabnets.paper.experiments import available
from collabnets.paper.grid import Experiment, Job, Split
from collabnets.paper.target import NoResults, NothingAsked, Options, Report

METHODS = tuple(m for m in methods.ORDER if m != "TH")
TRAIN = 0.6
# Iterations at most of the networks compared with, on the two large sets: 300 epochs there would be a million.
LARGE_ITERATIONS = 20_000
# Rows of GPR: all of the paper's shares of the large sets; a step of its search on 4,000 rows takes seconds.
GPR_ROWS = {"max_rows": 25_000, "search_rows": 4_000}
GPR_ROWS_LARGE = GPR_ROWS | {"search_rows": 2_000}
LEVELS = np.linspace(0.02, 0.98, 25)  # of the drawn curves
STAR = "*"  # fitted to a part of the training rows, as in the paper


class Source(NamedTuple):
    """One data set of the comparison.

    Attributes
    ----------
    title
        As in the paper.
    load
        Reads it.
    base
        Settings of the Collaborating Networks.
    replications
        Random splits.
    parts
        Share of the training rows that a method gets, where not all.
    unit
        What the paper's outcome was divided by, in terms of ours; its MAE is multiplied by it before it is compared.
    """

    title: str
    load: Callable[[], Dataset]
    base: Mapping[str, Any]
    replications: int
    parts: Mapping[str, float]
    unit: float = 1.0


# The outcome of CPU is in units of one 60 % part of the rows in the paper: its authors' notebook prints the range
# -0.5815 to 5.5898, and the outcome goes from 6 to 1150, so the unit is 185.4. Over all rows it is 160.4.
CPU_UNIT = (1150 - 6) / (5.58975983 + 0.58152491) / 160.4455

SOURCES = {
    "cpu": Source("CPU", load_cpu, settings.CPU, 10, {}, CPU_UNIT),
    "energy": Source("Energy", load_energy, settings.PAPER, 10, {}),
    "mpg": Source("MPG", load_mpg, settings.MPG, 10, {}),
    "crime": Source("Crime", load_crime, settings.PAPER, 10, {}),
    "airline": Source("Airline", load_airline, settings.PAPER, 1, {"GPR": 1 / 20, "PPGPR": 1 / 10}),
    "ehr": Source("EHR", load_ehr, settings.PAPER, 1, {"GPR": 1 / 5, "PPGPR": 1 / 3}),
}
SMALL, LARGE = ("cpu", "energy", "mpg", "crime"), ("airline", "ehr")


class Facts(NamedTuple):
    """What the tables say of a data set; kept beside its results, so that they can be drawn without the data.

    Attributes
    ----------
    rows, features, coded
        Rows, columns before coding and after it.
    stand_in
        What the rows are, if not the paper's.
    by_group
        Whether splits keep people together.
    read_from
        Name of the file, or the package.
    """

    rows: int
    features: int
    coded: int
    stand_in: str
    by_group: bool
    read_from: str


FACTS = "data.json"  # beside the cells


@lru_cache
def _dataset(name: str) -> Dataset:
    return SOURCES[name].load()


@lru_cache
def read_facts(name: str) -> Facts:
    """Read a data set and say what it is."""
    data = _dataset(name)
    file = Path(data.read_from)
    return Facts(
        len(data),
        data.X.shape[1],
        len(data.coded_feature_names),
        data.stand_in,
        data.groups is not None,
        file.name if file.is_file() else data.read_from,
    )


def _facts(name: str, options: Options) -> Facts:
    """What a data set is: as its results have it where nothing is fitted, else of the data that are there now."""
    path = options.out / FACTS
    kept = json.loads(path.read_text()) if path.exists() else {}
    if not options.fit and name in kept:
        return Facts(**kept[name])
    found = read_facts(name)
    if options.fit and kept.get(name) != found._asdict():
        kept[name] = found._asdict()
        options.write(FACTS, json.dumps({k: kept[k] for k in SOURCES if k in kept}, indent=1) + "\n")
    return found


def title(name: str, facts: Facts) -> str:
    """Name of a set for people, with a mark where it stands in for the paper's."""
    return SOURCES[name].title + (" (stand-in)" if facts.stand_in else "")


def at_hand(names: Sequence[str], options: Options) -> tuple[dict[str, Facts], list[dict[str, Any]]]:
    """The sets that were asked for and can be read, and for each of the others why not, as a failed cell."""
    wanted = [name for name in names if options.data is None or name in options.data]
    if not wanted:
        raise NothingAsked(f"this target is about {', '.join(names)}, which --data leaves out.")
    found, failed = {}, []
    for name in wanted:
        try:
            found[name] = _facts(name, options)
        except (OSError, ImportError) as error:
            failed.append({"experiment": name, "method": "all", "replication": 0, "error": str(error)})
    return found, failed


def _needed(names: Sequence[str], options: Options) -> tuple[dict[str, Facts], list[dict[str, Any]]]:
    """As `at_hand`, but an error where none of them can be read."""
    found, failed = at_hand(names, options)
    if not found:
        raise FileNotFoundError(failed[0]["error"])
    return found, failed


def _split(name: str, part: float, replication: int) -> Split:
    data = _dataset(name)
    rows = list(data.splits(replication + 1, train=TRAIN, seed=settings.SPLIT_SEED))[replication]
    train, test = rows
    if part < 1.0:
        rng = np.random.default_rng([settings.SPLIT_SEED, replication])
        train = np.sort(rng.choice(train, max(1, round(part * len(train))), replace=False))
    s = data.split(train, test, as_published=data.groups is None)
    return Split(s.X_train, s.y_train, s.X_test, s.y_test)


def measure(dist: PredictiveDistribution, split: Split) -> dict[str, float]:
    """The columns of Tables 4 and 5; cal and coverage in percent, MAE to the outcomes."""
    y = split.y_test
    out = {
        "cal": 100.0 * metrics.calibration_error(y, dist),
        "coverage90": 100.0 * metrics.coverage(y, dist, 0.9),
        "mae": metrics.mae(y, dist),
    }
    return out | (available(lambda: {"gof": metrics.gof(y, dist)}) or {})


def draw(dist: PredictiveDistribution, split: Split) -> dict[str, Any]:
    """Coverage and median width at many levels."""
    curve = metrics.sharpness_curve(split.y_test, dist, levels=LEVELS)
    return {
        "nominal": [float(v) for v in curve.nominal.round(4)],
        "empirical": [float(v) for v in curve.empirical],
        "width": [float(f"{v:.6g}") for v in curve.width],
    }


def experiment(name: str, facts: Facts, part: float = 1.0) -> Experiment:
    """One data set; part is the share of the training rows that are used."""
    decides = {
        "data": name,
        "rows": facts.rows,
        "stand_in": facts.stand_in,
        "split_seed": settings.SPLIT_SEED,
        "train": TRAIN,
        "part": part,
        "as_published": not facts.by_group,
        "levels": len(LEVELS),
    }
    # the loss curves of Figures S1 and S2 are those of the flights
    return Experiment(name, partial(_split, name, part), measure, draw, decides, keeps_extra=name == "airline")


def jobs(
    name: str, facts: Facts, quick: bool, chosen: Sequence[str] | None, only: Sequence[str] | None = None
) -> list[Job]:
    """The methods of one data set; those that the user chose, and of them those that a figure needs."""
    source = SOURCES[name]

    def epochs(method: str) -> int | None:
        if name not in LARGE:
            return None
        rows = TRAIN * facts.rows * source.parts.get(method, 1.0)
        return max(1, round(LARGE_ITERATIONS * source.base["batch_size"] / rows))

    rows = GPR_ROWS_LARGE if name in LARGE else GPR_ROWS
    return methods.comparison(quick, chosen, only or METHODS, base=source.base, epochs=epochs, real=True, gpr_rows=rows)


def _replications(name: str, options: Options) -> int:
    most = SOURCES[name].replications
    return min(options.replications or (2 if options.quick else most), most)


def cells_of(
    name: str, facts: Facts, options: Options, n: int | None = None, only: Sequence[str] | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Results of one data set, and those that failed; of ``n`` replications instead of the set's own number."""
    source = SOURCES[name]
    count = n or _replications(name, options)
    every = jobs(name, facts, options.quick, options.chosen(METHODS), only)
    found: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    for part in sorted({1.0, *source.parts.values()}, reverse=True):
        some = [job for job in every if source.parts.get(job.name, 1.0) == part]
        if some:
            done, wrong = options.cells(experiment(name, facts, part), some, count)
            found, failed = found + done, failed + wrong
    return options.some(found, failed, name)


# ------------------------------------------------------------------------------------------------------- Table 3
def table3(options: Options) -> Report:
    """Table 3: sizes of the data."""
    lines = [f"{'':<10}{'N':>10}{'P':>6}{'P coded':>9}{'paper N':>12}{'paper P':>9}  "]
    marks = ["| data | N | P before coding | P coded | paper N | paper P | rows |", "| --- " * 7 + "|"]
    options.chosen(METHODS)  # none of them is needed, but an unknown one is a slip
    names, failed = _needed(list(SOURCES), options)
    for name, facts in names.items():
        label, size = SOURCES[name].title, published.TABLE_3[name]
        n, p, coded = facts.rows, facts.features, facts.coded
        kind = "stand-in" if facts.stand_in else "the paper's"
        lines.append(f"{label:<10}{n:>10,}{p:>6}{coded:>9}{size.n:>12,}{size.p:>9}  {kind}")
        marks.append(f"| {label} | {n:,} | {p} | {coded} | {size.n:,} | {size.p} | {kind} |")
    return Report("\n".join(lines), [options.write("table3.md", "\n".join(marks) + "\n")], failed)


# ------------------------------------------------------------------------------------------------- Tables 4 and 5
def table4(options: Options) -> Report:
    """Table 4: calibration and coverage of the 90 % intervals."""
    return _tables("table4", ("cal", "coverage90"), options)


def table5(options: Options) -> Report:
    """Table 5: MAE and gof."""
    return _tables("table5", ("mae", "gof"), options)


def _tables(target: str, columns: tuple[str, str], options: Options) -> Report:
    text, marks = [], []
    names, failed = _needed(list(SOURCES), options)
    summary: dict[str, Any] = {"target": target, "quick": options.quick, "versions": grid.versions(), "data": {}}
    for name, facts in names.items():
        source = SOURCES[name]
        try:
            cells, wrong = cells_of(name, facts, options)
        except NoResults as error:  # of this set; there may be some of another
            failed.append({"experiment": name, "method": "all", "replication": 0, "error": str(error)})
            continue
        failed += wrong
        table = tables.summarise(cells, METHODS, columns, _in_our_units(published.REAL[name], source.unit))
        starred = {m: STAR for m in source.parts}
        notes = [tables.fewer(table, _replications(name, options))]
        if source.parts:
            notes.append(f"{STAR} Fitted to a part of the training rows, as in the paper.")
        if source.unit != 1.0 and "mae" in columns:
            notes.append(
                f"The paper's MAE is shown times {source.unit:.3f}: its outcome was normalised by a part of the rows."
            )
        note = "".join(f"\n\n{sentence}" for sentence in notes if sentence)
        text.append(f"=== {title(name, facts)}\n\n{tables.as_text(table, columns, starred)}{note}")
        marks.append(f"## {title(name, facts)}\n\n{tables.as_markdown(table, columns, starred)}{note}\n")
        kept = ("method", "replication", "seed", "metrics", "fit_seconds", "evaluate_seconds")
        summary["data"][name] = {
            **facts._asdict(),
            "split_seed": settings.SPLIT_SEED,
            "cells": [{k: c[k] for k in kept} for c in cells],
            "settings": {c["method"]: c["settings"] for c in cells},
        }
    if not summary["data"]:
        raise NoResults(failed[-1]["error"])
    files = [
        options.write(f"{target}.md", "\n".join(marks)),
        options.write(f"{target}.json", json.dumps(summary, indent=1) + "\n"),
    ]
    return Report("\n\n".join(text), files, failed)


def _in_our_units(printed: tables.PublishedTable, unit: float) -> tables.PublishedTable:
    """The paper's values with its MAE in units of our outcome."""

    def converted(metric: str, value: published.Published) -> published.Published:
        if metric != "mae" or value.sd is None:
            return value
        return published.Published(unit * value.mean, unit * value.sd)

    return {method: {m: converted(m, v) for m, v in row.items()} for method, row in printed.items()}


# ------------------------------------------------------------------------------------------------------ figures
def _curves(target: str, names: Sequence[str], kind: str, options: Options) -> Report:
    panels = []
    found, failed = _needed(names, options)
    for name, facts in found.items():
        cells, wrong = cells_of(name, facts, options, 1)
        failed += wrong
        series = {c["method"]: c["series"] for c in cells}
        panels.append((title(name, facts), {m: series[m] for m in METHODS if m in series}))
    draw_panels = figures.calibration if kind == "calibration" else figures.sharpness
    return Report("", [options.save(draw_panels(panels), target)], failed)


def fig8(options: Options) -> Report:
    """Figure 8: calibration at every level, the two large sets."""
    return _curves("fig8", LARGE, "calibration", options)


def fig9(options: Options) -> Report:
    """Figure 9: sharpness, Crime and EHR."""
    return _curves("fig9", ("crime", "ehr"), "sharpness", options)


def fig_s3(options: Options) -> Report:
    """Figure S3: calibration at every level, the other sets."""
    return _curves("figS3", SMALL, "calibration", options)


def fig_s4(options: Options) -> Report:
    """Figure S4: sharpness, the other sets."""
    return _curves("figS4", ("cpu", "energy", "mpg", "airline"), "sharpness", options)
