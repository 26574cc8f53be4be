"""From cells to a table: our mean and standard deviation, the paper's, and how far apart they are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from collabnets.paper.published import N_PUBLISHED, Published

LABELS = {
    "cal": "cal [%]",
    "gof": "gof",
    "coverage90": "90 % coverage [%]",
    "mae": "MAE",
    "crps": "CRPS",
}
DIGITS = {"cal": 2, "gof": 3, "coverage90": 1, "mae": 3, "crps": 3}
HIGHER_IS_BETTER = {"gof"}
# Metrics that depend on the splits more than on the method: compared by their distance to the truth's own value.
RELATIVE_TO_TRUTH = {"cal", "gof"}


class Entry(NamedTuple):
    """One method's value of one metric.

    Attributes
    ----------
    mean, sd, n
        Over our replications; the standard deviation is None for one replication.
    paper
        The printed value, if there is one.
    difference
        Ours minus the paper's in standard errors of that difference; for cal and gof of the distances to the truth's
        own value, each on its own splits. None where it cannot be had.
    """

    mean: float
    sd: float | None
    n: int
    paper: Published | None
    difference: float | None


Table = dict[str, dict[str, Entry]]  # method -> metric -> entry
PublishedTable = Mapping[str, Mapping[str, Published]]


def summarise(
    cells: Sequence[Mapping[str, Any]],
    methods: Sequence[str],
    metrics: Sequence[str],
    published: PublishedTable,
) -> Table:
    """Make the table of some cells; methods without cells are left out."""
    values = {m: {c["replication"]: c["metrics"] for c in cells if c["method"] == m} for m in methods}
    table: Table = {}
    for method in methods:
        rows = {}
        for metric in metrics:
            ours = {r: v[metric] for r, v in values[method].items() if metric in v}
            if not ours or (method == "TH" and metric == "mae"):
                continue
            a = np.array(list(ours.values()))
            sd = float(a.std(ddof=1)) if len(a) > 1 else None
            truth = {r: v[metric] for r, v in values.get("TH", {}).items() if metric in v}
            rows[metric] = Entry(
                float(a.mean()),
                sd,
                len(a),
                published.get(method, {}).get(metric),
                _difference(method, metric, ours, truth, published),
            )
        if rows:
            table[method] = rows
    return table


def _difference(
    method: str,
    metric: str,
    ours: Mapping[int, float],
    truth: Mapping[int, float],
    published: PublishedTable,
) -> float | None:
    paper = published.get(method, {}).get(metric)
    if paper is None or paper.sd is None or len(ours) < 2:
        return None
    a, n = np.array(list(ours.values())), len(ours)
    of_truth = published.get("TH", {}).get(metric)
    if metric in RELATIVE_TO_TRUTH and method != "TH" and of_truth is not None and set(ours) <= set(truth):
        # the paper does not print the spread of its own distances: ours stands for both
        apart = a - np.array([truth[r] for r in ours])
        variance = apart.var(ddof=1) * (1.0 / n + 1.0 / N_PUBLISHED)
        gap = apart.mean() - (paper.mean - of_truth.mean)
    else:
        variance = a.var(ddof=1) / n + paper.sd**2 / N_PUBLISHED
        gap = a.mean() - paper.mean
    return float(gap / math.sqrt(variance)) if variance > 0 else None


def _number(value: float, sd: float | None, digits: int) -> str:
    return f"{value:.{digits}f}" if sd is None else f"{value:.{digits}f} ± {sd:.{digits}f}"


def _cells(entry: Entry | None, metric: str) -> tuple[str, str, str]:
    if entry is None:
        return "-", "-", ""
    digits = DIGITS[metric]
    paper = "-" if entry.paper is None else _number(entry.paper.mean, entry.paper.sd, max(digits, 3 if digits else 0))
    return _number(entry.mean, entry.sd, digits), paper, "" if entry.difference is None else f"{entry.difference:+.1f}"


def as_text(table: Table, metrics: Sequence[str], marks: Mapping[str, str] | None = None) -> str:
    """One block a metric, 69 columns wide, for a terminal; ``marks`` are written behind the names of methods."""
    blocks = []
    for metric in metrics:
        lines = [f"{LABELS[metric]:<18}{'ours':>16}{'paper':>18}{'difference/s.e.':>17}"]
        lines.append("-" * len(lines[0]))
        for method, row in table.items():
            ours, paper, apart = _cells(row.get(metric), metric)
            if ours != "-" or paper != "-":
                name = method + (marks or {}).get(method, "")
                lines.append(f"{name:<18}{ours:>16}{paper:>18}{apart:>17}")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def as_markdown(table: Table, metrics: Sequence[str], marks: Mapping[str, str] | None = None) -> str:
    """One row a method; ours, the paper's and the difference in standard errors of each metric. Best two in bold.

    ``marks`` are written behind the names of methods.
    """
    head = ["method"]
    for metric in metrics:
        head += [f"{LABELS[metric]}", "paper", "Δ/s.e."]
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    bold = {metric: best_two(table, metric) for metric in metrics}
    for method, row in table.items():
        parts = [method + (marks or {}).get(method, "")]
        for metric in metrics:
            ours, paper, apart = _cells(row.get(metric), metric)
            parts += [f"**{ours}**" if method in bold[metric] else ours, paper, apart]
        lines.append("| " + " | ".join(parts) + " |")
    return "\n".join(lines)


def fewer(table: Table, n: int) -> str:
    """Which methods have fewer than n replications, as a sentence; "" if none has."""
    short = {method: min(entry.n for entry in row.values()) for method, row in table.items()}
    parts = [f"{method} {count}" for method, count in short.items() if count < n]
    return f"Replications are missing; there are, of {n}: {', '.join(parts)}." if parts else ""


def best_two(table: Table, metric: str) -> set[str]:
    """The two best methods by their mean, the truth left out; coverage is best near its level."""
    ranked = []
    for method, row in table.items():
        if method != "TH" and metric in row:
            mean = row[metric].mean
            badness = abs(mean - 90.0) if metric == "coverage90" else -mean if metric in HIGHER_IS_BETTER else mean
            ranked.append((badness, method))
    return {method for _, method in sorted(ranked)[:2]}
