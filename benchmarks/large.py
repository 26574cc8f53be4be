"""Large tables: the time of a fit over the number of rows, its memory over the number of members, and evaluation."""

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np

from benchmarks.common import Row, by_turns
from collabnets import CollaboratingRegressor, metrics
from collabnets.datasets import load_airline
from collabnets.paper import settings

N_TRAIN, N_TEST, N_FEATURES = 478_000, 319_000, 44  # the paper's Airline
SMALL = 1_000


def measure() -> list[Row]:
    data = load_airline()
    train, test = next(data.splits(1, train=0.6))
    split = data.split(train, test)
    tables = {
        "large": (split.X_train, split.y_train),
        "small": (split.X_train[:SMALL], split.y_train[:SMALL]),
    }

    def fit(name: str) -> None:
        CollaboratingRegressor(**settings.PAPER, random_state=0, verbose=0).fit(*tables[name])

    for table in tables.values():  # compiles
        CollaboratingRegressor(**settings.PAPER | {"pretrain_iter": 1, "max_iter": 1}, verbose=0).fit(*table)
    seconds = by_turns({name: (lambda name=name: fit(name)) for name in tables}, 2)
    large, small = (min(seconds[name]) for name in ("large", "small"))
    one, five, evaluation = (_in_a_process(call) for call in ("_fit_peak(1)", "_fit_peak(5)", "_evaluation_peak()"))
    copy = 4 * N_TRAIN * (N_FEATURES + 2) / 1e9
    return [
        Row(
            f"fit on {len(train):,} flights over one on {SMALL:,}",
            large / small,
            3.0,
            3.0 * small / large,
            1.0,
            "times as long",
            f"{large:.1f} s and {small:.1f} s for 20,000 + 20,000 iterations",
        ),
        Row(
            "memory that four more members take",
            five - one,
            copy,
            copy / max(five - one, 1e-9),
            1.0,
            "GB",
            f"{N_TRAIN:,} rows x {N_FEATURES} features; reference: one copy of them; one member adds {one:.2f} GB",
        ),
        Row(
            f"memory of gof and calibration of {N_TEST:,} rows",
            evaluation,
            2.0,
            2.0 / evaluation,
            1.0,
            "GB",
            "limit 2 GB",
        ),
    ]


def _in_a_process(call: str) -> float:
    code = f"from benchmarks import large; print(large.{call})"
    text = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    return float(text.split()[-1])


def _table(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, N_FEATURES)).astype(np.float32)
    return X, X[:, 0] + (0.5 + np.abs(X[:, 1])) * rng.normal(size=n)


def _resident() -> float:
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) * 1024 / 1e9


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def _model(members: int = 1) -> CollaboratingRegressor:
    return CollaboratingRegressor(n_members=members, pretrain_iter=1000, max_iter=1000, random_state=0, verbose=0)


def _fit_peak(members: int) -> float:
    X, y = _table(N_TRAIN)
    _model(members).fit(X[:5000], y[:5000])
    before = _resident()
    _model(members).fit(X, y)
    return _peak() - before


def _evaluation_peak() -> float:
    X, y = _table(N_TEST)
    model = _model().fit(X[:5000], y[:5000])
    metrics.gof(y[:5000], model.predict_dist(X[:5000]))
    before = _resident()
    dist = model.predict_dist(X)
    metrics.gof(y, dist)
    metrics.calibration_error(y, dist)
    return _peak() - before
