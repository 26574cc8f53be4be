"""Is a change of the paper's settings as good? CN-g with and without it, on the same splits of six data sets.

``python -m benchmarks.variants --out results`` takes the cells of the paper's settings from there and adds the others.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from collabnets.paper import grid, methods, real, settings
from collabnets.paper.experiments import GAUSSIAN, WEIBULL
from collabnets.paper.grid import Experiment, Job
from collabnets.paper.store import Store

CHANGES: dict[str, dict[str, Any]] = {
    "early stopping": {"early_stopping": True},
    "other units": {},  # standardized where the paper's settings are not, for the synthetic data
}
METRICS = {"gof": 3, "cal": 2, "mae": 3}
BOTH = {"CN-g": "cn-g", "CN-f": "cn-f"}


def data_sets() -> dict[str, tuple[Experiment, Mapping[str, Any]]]:
    found: dict[str, tuple[Experiment, Mapping[str, Any]]] = {
        "Gaussian": (GAUSSIAN, settings.SYNTHETIC),
        "Weibull": (WEIBULL, settings.SYNTHETIC),
    }
    for name in real.SMALL:
        source = real.SOURCES[name]
        found[source.title] = (real.experiment(name, real.read_facts(name)), source.base)
    return found


def cells(experiment: Experiment, job: Job, store: Store) -> list[dict[str, Any]]:
    grid.run(experiment, [job], settings.N_REPLICATIONS, store, progress=True)
    found = store.find(grid.keys(experiment, job, settings.N_REPLICATIONS))
    return [c for c in found if c["method"] == "CN-g"]


def row(change: str, store: Store) -> list[str]:
    lines = []
    for name, (experiment, base) in data_sets().items():
        changed = CHANGES[change] or {"standardize": not base["standardize"]}
        if change == "other units" and base["standardize"]:
            continue
        before = cells(experiment, methods.collaborating(BOTH, base), store)
        after = cells(experiment, methods.collaborating(BOTH, base, **changed), store)
        parts = [name]
        for metric, digits in METRICS.items():
            a, b = (np.array([c["metrics"][metric] for c in some]) for some in (before, after))
            apart = b - a
            error = apart.std(ddof=1) / len(apart) ** 0.5
            parts += [
                f"{a.mean():.{digits}f}",
                f"{b.mean():.{digits}f}",
                f"{apart.mean():+.{digits}f} ± {error:.{digits}f}",
            ]
        seconds = [float(np.mean([c["fit_seconds"] for c in some])) for some in (before, after)]
        lines.append(f"| {' | '.join(parts)} | {seconds[0]:.1f} | {seconds[1]:.1f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of the cells")
    parser.add_argument("--change", choices=CHANGES, nargs="+", default=list(CHANGES))
    arguments = parser.parse_args()
    store = Store(arguments.out)
    for change in arguments.change:
        head = (
            ["data"] + [part for m in METRICS for part in (m, "changed", "difference ± s.e.")] + ["s a fit", "changed"]
        )
        print(f"\n{change}\n\n| {' | '.join(head)} |\n{'| --- ' * len(head)}|")
        print("\n".join(row(change, store)), flush=True)


if __name__ == "__main__":
    main()
