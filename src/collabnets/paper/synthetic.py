"""Tables 1 and 2 and Figures 4 to 7: the comparison of all methods on the two synthetic data sets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from collabnets.paper import figures, grid, methods, published, settings, tables
from collabnets.paper.experiments import GAUSSIAN, WEIBULL
from collabnets.paper.grid import Experiment
from collabnets.paper.target import NoResults, Options, Report

METRICS = ("cal", "gof", "coverage90", "mae")
TITLES = {"table1": "Table 1: heteroskedastic Gaussian", "table2": "Table 2: Weibull"}


def table1(options: Options) -> Report:
    """Table 1."""
    return _table("table1", GAUSSIAN, published.TABLE_1, options)


def table2(options: Options) -> Report:
    """Table 2."""
    return _table("table2", WEIBULL, published.TABLE_2, options)


def _table(name: str, experiment: Experiment, paper: dict[str, Any], options: Options) -> Report:
    n = options.replications or (2 if options.quick else settings.N_REPLICATIONS)
    cells, failed = _cells(experiment, options, n, None)
    table = tables.summarise(cells, methods.ORDER, METRICS, paper)
    short = tables.fewer(table, n)
    note = (
        f"{TITLES[name]}, {n} replications{', quick settings' if options.quick else ''}; mean ± standard deviation.\n"
        "MAE is to the true median. The last column is ours minus the paper's in standard errors; for cal and gof of\n"
        "the distances to the truth's own value, since the splits are not the same."
    )
    note += f"\n{short}" if short else ""
    summary = {
        "target": name,
        "quick": options.quick,
        "replications": n,
        "data_seed": settings.DATA_SEED,
        "split_seed": settings.SPLIT_SEED,
        "versions": grid.versions(),
        "cells": [
            {k: c[k] for k in ("method", "replication", "seed", "metrics", "fit_seconds", "evaluate_seconds")}
            for c in cells
        ],
        "settings": {c["method"]: c["settings"] for c in cells},
    }
    files = [
        options.write(f"{name}.md", tables.as_markdown(table, METRICS) + (f"\n\n{short}" if short else "") + "\n"),
        options.write(f"{name}.json", json.dumps(summary, indent=1) + "\n"),
    ]
    return Report(f"{tables.as_text(table, METRICS)}\n\n{note}", files, failed)


def _cells(
    experiment: Experiment, options: Options, n: int, only: Sequence[str] | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    jobs = methods.comparison(options.quick, options.chosen(methods.ORDER), only)
    return options.some(*options.cells(experiment, jobs, n), experiment.name)


def series_of(
    experiment: Experiment, options: Options, only: Sequence[str] | None = None
) -> tuple[figures.Series, list[dict[str, Any]]]:
    """What replication 0 of the methods keeps for figures."""
    cells, failed = _cells(experiment, options, 1, only)
    return {c["method"]: c["series"] for c in cells}, failed


def fig4(options: Options) -> Report:
    """Figure 4: predicted against true widths of the 90 % intervals."""
    series, failed = series_of(GAUSSIAN, options)
    options.need(series, "TH", "fig4", failed)
    labels = "true width of the 90 % interval", "predicted width of the 90 % interval"
    title = "Heteroskedastic Gaussian: widths of the 90 % intervals, one point a test row"
    _need_one_of(series, "width90", figures.WIDTH_PANELS, "fig4")
    figure = figures.scatter(series, "width90", figures.WIDTH_PANELS, labels, title, limit=12.0)
    return Report("", [options.save(figure, "fig4")], failed)


def fig5(options: Options) -> Report:
    """Figure 5: CDFs of two test rows of the Gaussian data and their differences to the truth."""
    return _cdfs("fig5", GAUSSIAN, ("\u03bc", "\u03c3"), "Heteroskedastic Gaussian: CDFs of two test rows", options)


def fig6(options: Options) -> Report:
    """Figure 6: predicted against true survival probabilities."""
    series, failed = series_of(WEIBULL, options)
    options.need(series, "TH", "fig6", failed)
    labels = "true P(Y > 1)", "predicted P(Y > 1)"
    title = "Weibull: survival beyond 1, one point a test row"
    _need_one_of(series, "survival", figures.SURVIVAL_PANELS, "fig6")
    figure = figures.scatter(series, "survival", figures.SURVIVAL_PANELS, labels, title, limit=1.0)
    return Report("", [options.save(figure, "fig6")], failed)


def fig7(options: Options) -> Report:
    """Figure 7: CDFs of two test rows of the Weibull data and their differences to the truth."""
    return _cdfs("fig7", WEIBULL, ("\u03bb", "k"), "Weibull: CDFs of two test rows", options)


def _need_one_of(series: figures.Series, what: str, panels: Sequence[Sequence[str]], target: str) -> None:
    """Refuse to draw panels that would all be empty."""
    shown = [method for panel in panels for method in panel]
    if not any(what in series.get(method, {}) for method in shown):
        raise NoResults(f"{target} shows {', '.join(shown)}, and the results of none of them are there.")


def _cdfs(name: str, experiment: Experiment, names: tuple[str, str], title: str, options: Options) -> Report:
    series, failed = series_of(experiment, options)
    options.need(series, "TH", name, failed)
    ordered = {m: series[m] for m in methods.ORDER if m in series}
    return Report("", [options.save(figures.cdfs(ordered, names, title), name)], failed)
