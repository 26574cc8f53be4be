"""Are changes of the paper's settings as good, on the same splits?

``python -m benchmarks.variants --out results`` takes the cells of the paper's settings from there and adds the others:
CN with early stopping on six data sets, all methods on standardized instead of raw synthetic data, CDP with the noise
alone, and DP with the three precisions of the synthetic sets on the small real sets.
"""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from collabnets import baselines
from collabnets.paper import grid, methods, real, settings
from collabnets.paper.experiments import GAUSSIAN, WEIBULL
from collabnets.paper.grid import Experiment, Job
from collabnets.paper.store import Store

DIGITS = {"gof": 3, "cal": 2, "coverage90": 1, "mae": 3}
BOTH = {"CN-g": "cn-g", "CN-f": "cn-f"}


def data_sets() -> Iterator[tuple[str, Experiment, Mapping[str, Any]]]:
    yield "Gaussian", GAUSSIAN, settings.SYNTHETIC
    yield "Weibull", WEIBULL, settings.SYNTHETIC
    for name in real.SMALL:
        source = real.SOURCES[name]
        yield source.title, real.experiment(name, real.read_facts(name)), source.base


def cells(experiment: Experiment, job: Job, method: str, store: Store) -> list[dict[str, Any]]:
    grid.run(experiment, [job], settings.N_REPLICATIONS, store, progress=True)
    return store.find(k for k in grid.keys(experiment, job, settings.N_REPLICATIONS) if k.method == method)


def compared(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[str]:
    """Mean before and after, and the paired difference with its standard error, of each metric."""
    parts = []
    for metric, digits in DIGITS.items():
        if not all(metric in c["metrics"] for c in (*before, *after)):
            parts += ["-"] * 3
            continue
        a, b = (np.array([c["metrics"][metric] for c in some]) for some in (before, after))
        apart = b - a
        error = apart.std(ddof=1) / len(apart) ** 0.5
        parts += [
            f"{a.mean():.{digits}f}",
            f"{b.mean():.{digits}f}",
            f"{apart.mean():+.{digits}f} ± {error:.{digits}f}",
        ]
    return parts


def show(title: str, first: str, rows: list[list[str]]) -> None:
    head = [first, *(part for m in DIGITS for part in (m, "changed", "difference ± s.e."))]
    if len(rows[0]) > len(head):
        head += ["s a fit", "changed"]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    print(f"\n{title}\n\n| {' | '.join(head)} |\n{'| --- ' * len(head)}|\n" + "\n".join(lines), flush=True)


def early_stopping(store: Store) -> None:
    rows = []
    for name, experiment, base in data_sets():
        before = cells(experiment, methods.collaborating(BOTH, base), "CN-g", store)
        after = cells(experiment, methods.collaborating(BOTH, base, early_stopping=True), "CN-g", store)
        seconds = [f"{np.mean([c['fit_seconds'] for c in some]):.1f}" for some in (before, after)]
        rows.append([name, *compared(before, after), *seconds])
    show("CN-g, changed to early stopping", "data", rows)


def units(store: Store) -> None:
    standardized = settings.SYNTHETIC | {"standardize": True}
    for title, experiment in (("Gaussian", GAUSSIAN), ("Weibull", WEIBULL)):
        rows = []
        pairs = zip(methods.comparison(False), methods.comparison(False, base=standardized), strict=True)
        for raw, other in pairs:
            if raw.settings != other.settings:
                for m in raw.methods:
                    rows.append([m, *compared(cells(experiment, raw, m, store), cells(experiment, other, m, store))])
        show(f"{title}, changed to standardized data (and DP to its default precisions)", "method", rows)


def noise_alone(store: Store) -> None:
    for what, changes in (("the noise alone", {}), ("the noise alone and 500 epochs", {"max_iter": 500})):
        rows = []
        for title, experiment, base in data_sets():
            (before,) = (job for job in methods.comparison(False, base=base) if job.name == "CDP")
            units = {} if base["standardize"] else {"standardize": False}
            own = {"batch_size": base["batch_size"], "model_variance": False, **units, **changes}
            after = methods.baseline("CDP", baselines.ConcreteDropoutRegressor, **own)
            rows.append([title, *compared(*(cells(experiment, job, "CDP", store) for job in (before, after)))])
        show(f"CDP, changed to {what}", "data", rows)


def precisions(store: Store) -> None:
    rows = []
    for name in real.SMALL:
        source, facts = real.SOURCES[name], real.read_facts(name)
        (before,) = real.jobs(name, facts, False, ["DP"])
        few = {"batch_size": source.base["batch_size"], "precisions": settings.SYNTHETIC_PRECISIONS}
        after = methods.baseline("DP", baselines.MCDropoutRegressor, **few)
        both = (cells(real.experiment(name, facts), job, "DP", store) for job in (before, after))
        rows.append([source.title, *compared(*both)])
    show("DP, changed to three precisions", "data", rows)


CHANGES = {
    "early-stopping": early_stopping,
    "units": units,
    "noise-alone": noise_alone,
    "precisions": precisions,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of the cells")
    parser.add_argument("--change", choices=CHANGES, nargs="+", default=list(CHANGES))
    arguments = parser.parse_args()
    store = Store(arguments.out)
    for change in arguments.change:
        CHANGES[change](store)


if __name__ == "__main__":
    main()
