"""Iterations a second against the plain PyTorch loop, and compile time."""

import logging
from time import perf_counter

import jax
import numpy as np

from benchmarks.common import Row, by_turns, ratio_of_medians, training_rows
from collabnets import CollaboratingRegressor

N_PRETRAIN, N_JOINT, ROUNDS = 4000, 1000, 5


def measure() -> list[Row]:
    from benchmarks.torch_reference import train

    X, y = training_rows()

    def fit(n_pretrain: int, n_joint: int) -> None:
        CollaboratingRegressor(pretrain_iter=n_pretrain, max_iter=n_joint, random_state=0, verbose=0).fit(X, y)

    start = perf_counter()
    fit(1, 1)
    first = perf_counter() - start
    compiled: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: compiled.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("jax")
    logger.addHandler(handler)
    with jax.log_compiles():
        fit(2, 2)
        CollaboratingRegressor(pretrain_iter=1, max_iter=1, random_state=1, verbose=0).fit(X[5:], y[5:])
    logger.removeHandler(handler)
    n_compiled = sum("Finished XLA compilation" in text for text in compiled)

    standard_X, standard_y = (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()
    train(standard_X, standard_y, n_pretrain=20, n_joint=20)
    rows = []
    for name, n_pretrain, n_joint, asked in (("pre-training", N_PRETRAIN, 0, 4.0), ("joint", 0, N_JOINT, 3.5)):
        n = n_pretrain + n_joint
        # a shorter run of the slow reference is as good an estimate of its rate
        short = {"n_pretrain": n_pretrain // 4, "n_joint": n_joint // 4}
        seconds = by_turns(
            {
                "ours": lambda a=n_pretrain, b=n_joint: fit(a, b),
                "torch": lambda short=short: train(standard_X, standard_y, **short),
            },
            ROUNDS,
        )
        reference = [4.0 * s for s in seconds["torch"]]
        ours = np.median(seconds["ours"])
        rows.append(
            Row(
                f"{name}, batch 128, 700 x 2, one model",
                n / ours,
                n / float(np.median(reference)),
                ratio_of_medians(reference, seconds["ours"]),
                asked,
                "it/s",
                "whole fit against eager PyTorch",
            )
        )
    rows.append(Row("first fit of a shape, compilation and all", first, 10.0, 10.0 / first, 1.0, "s", "limit 10 s"))
    rows.append(Row("compilations in two more fits", float(n_compiled), 0.0, float(n_compiled == 0), 1.0, "count"))
    return rows
