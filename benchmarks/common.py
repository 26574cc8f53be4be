"""What the benchmarks share: data, timing by turns, and a table that shows ratios."""

import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import jax
import numpy as np

import collabnets
from collabnets.datasets import heteroskedastic_gaussian

RESULTS = Path(__file__).parent / "results"


@dataclass
class Row:
    """One measured comparison; ratio > 1 means collabnets is better."""

    what: str
    ours: float
    reference: float
    ratio: float
    asked: float | None
    unit: str
    note: str = ""


def training_rows(n: int = 700) -> tuple[np.ndarray, np.ndarray]:
    data = heteroskedastic_gaussian(1000)
    return data.X[:n], data.y[:n]


def by_turns(candidates: dict, rounds: int) -> dict[str, list[float]]:
    """Seconds of each candidate, called in turn, so that a slow minute of the machine slows all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, call in candidates.items():
            start = perf_counter()
            call()
            seconds[name].append(perf_counter() - start)
    return seconds


def ratio_of_medians(reference: list[float], ours: list[float]) -> float:
    return median(reference) / median(ours)


def show(rows: list[Row]) -> None:
    print(f"{'what':<52}{'collabnets':>12}{'reference':>12}{'ratio':>8}{'asked':>7}  unit")
    for r in rows:
        asked = "" if r.asked is None else f"{r.asked:g}"
        figures = f"{r.ours:>12.4g}{r.reference:>12.4g}{r.ratio:>8.2f}{asked:>7}"
        print(f"{r.what:<52}{figures}  {r.unit}  {r.note}", flush=True)


def save(name: str, rows: list[Row]) -> None:
    RESULTS.mkdir(exist_ok=True)
    content = {
        "command": f"python -m benchmarks {name}",
        "versions": {"collabnets": collabnets.__version__, "jax": jax.__version__, "python": platform.python_version()},
        "device": f"{jax.devices()[0].device_kind}, {os.cpu_count()} cores",
        "rows": [asdict(r) for r in rows],
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
