"""Replications trained together against one after the other, and the throughput of many models."""

from benchmarks.common import Row, by_turns, ratio_of_medians, training_rows
from collabnets import CollaboratingRegressor, fit_together

N_PRETRAIN, N_JOINT = 2000, 1000


def _models(count: int, n_pretrain: int, n_joint: int) -> list[CollaboratingRegressor]:
    return [
        CollaboratingRegressor(pretrain_iter=n_pretrain, max_iter=n_joint, random_state=i, verbose=0)
        for i in range(count)
    ]


def measure() -> list[Row]:
    X, y = training_rows()
    rows = []
    for name, a, b in (("pre-training", N_PRETRAIN, 0), ("joint", 0, N_JOINT)):

        def in_a_row(a: int = a, b: int = b) -> None:
            for model in _models(10, a, b):
                model.fit(X, y)

        def at_once(a: int = a, b: int = b) -> None:
            fit_together(_models(10, a, b), [(X, y)] * 10)

        fit_together(_models(10, min(a, 1), min(b, 1)), [(X, y)] * 10)
        _models(1, min(a, 1), min(b, 1))[0].fit(X, y)
        seconds = by_turns({"together": at_once, "in a row": in_a_row}, 3)
        total = 10 * (a + b)
        rows.append(
            Row(
                f"{name}, ten replications",
                total / sorted(seconds["together"])[1],
                total / sorted(seconds["in a row"])[1],
                ratio_of_medians(seconds["in a row"], seconds["together"]),
                1.2,
                "it/s, all models",
                "together against ten fits in a row",
            )
        )
    return rows


def scaling(counts: tuple[int, ...] = (1, 10, 100, 1000)) -> list[Row]:
    """Throughput of many models at once against the paper's P100, for an accelerator."""
    X, y = training_rows()
    rows = []
    for count in counts:
        n = max(500, 20_000 // count)  # one model as long as a default fit
        for name, a, b, paper in (("pre-training", n, 0, 483.0), ("joint", 0, n, 152.0)):
            fit_together(_models(count, min(a, 1), min(b, 1)), [(X, y)] * count)
            call = by_turns({"ours": lambda c=count, a=a, b=b: fit_together(_models(c, a, b), [(X, y)] * c)}, 2)
            rate = count * n / min(call["ours"])
            asked = 10.0 if count == 1 else None
            note = f"whole fits of {n:,} iterations; the paper's P100"
            rows.append(Row(f"{name}, {count} models", rate, paper, rate / paper, asked, "it/s", note))
    return rows
