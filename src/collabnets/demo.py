"""The work behind ``collabnets demo``: fit the paper's first synthetic data and set the answer beside the truth."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from collabnets import metrics, plots
from collabnets.datasets import heteroskedastic_gaussian, paper_splits
from collabnets.distribution import PredictiveDistribution
from collabnets.paper import settings
from collabnets.regressor import CollaboratingRegressor

# The paper's pre-training, and half of its joint iterations: half a minute instead of a whole one.
PRETRAIN_ITER, MAX_ITER = 20_000, 10_000
SHOWN_INTERVALS = 40
# The test rows nearest to these (mu, sigma).
SHOWN_CDFS = ((-3.0, 0.8), (0.0, 1.5), (3.0, 2.2))


class Score(NamedTuple):
    """One line of the demo's table.

    Attributes
    ----------
    name
        What was measured.
    model, truth
        Its value for the fitted model and for the distribution that the data came from.
    digits
        Decimal places worth printing.
    """

    name: str
    model: float
    truth: float
    digits: int


class Demo(NamedTuple):
    """What the demo found.

    Attributes
    ----------
    scores
        The lines of its table.
    n_train, n_test
        Rows fitted and rows judged.
    n_iter
        Iterations run.
    fit_seconds
        How long the fit took, compilation included.
    picture
        The file with the picture.
    """

    scores: list[Score]
    n_train: int
    n_test: int
    n_iter: int
    fit_seconds: float
    picture: Path


def run(
    out: Path,
    *,
    seed: int = 0,
    pretrain_iter: int = PRETRAIN_ITER,
    max_iter: int = MAX_ITER,
    progress: bool = False,
) -> Demo:
    """Fit Collaborating Networks to the data of Section 5.3.1, judge them on held-out rows, and draw a picture.

    Parameters
    ----------
    out
        Folder for ``demo.png``; made if it is not there.
    seed
        Seed of the fit; the data and the split are always the same.
    pretrain_iter, max_iter
        Iterations of the two phases.
    progress
        Show a progress bar.
    """
    # what may be missing or forbidden is asked for before the long part
    figure = plots.new_figure(16.0, 5.2)
    out.mkdir(parents=True, exist_ok=True)
    data = heteroskedastic_gaussian()
    train, test = next(paper_splits(len(data.y)))
    chosen = settings.SYNTHETIC | {"pretrain_iter": pretrain_iter, "max_iter": max_iter}
    model = CollaboratingRegressor(**chosen, random_state=seed, verbose=int(progress))
    start = time.perf_counter()
    model.fit(data.X[train], data.y[train])
    seconds = time.perf_counter() - start
    dist, truth, y = model.predict_dist(data.X[test]), data.truth[test], data.y[test]
    picture = out / "demo.png"
    draw(figure, data.X[test], y, dist, truth)
    figure.savefig(picture, dpi=110)
    return Demo(scores(y, dist, truth), len(train), len(test), model.n_iter_, seconds, picture)


def scores(y: np.ndarray, dist: PredictiveDistribution, truth: PredictiveDistribution) -> list[Score]:
    """The columns of the paper's Table 1, for a model and for the truth."""

    def both(metric, factor: float = 1.0) -> tuple[float, float]:
        return factor * metric(y, dist), factor * metric(y, truth)

    return [
        Score("calibration error [%]", *both(metrics.calibration_error, 100.0), 2),
        Score("coverage of the 90 % interval [%]", *both(metrics.coverage, 100.0), 1),
        Score("goodness of fit, gof", *both(metrics.gof), 3),
        Score("MAE to the true median", metrics.mae(truth.median(), dist), 0.0, 3),
    ]


def draw(figure, X: np.ndarray, y: np.ndarray, dist: PredictiveDistribution, truth: PredictiveDistribution) -> None:
    """Draw intervals, their widths and a few CDFs, each beside the truth."""
    left, middle, right = figure.subplots(1, 3, width_ratios=[1.25, 1.0, 1.25])
    order = np.argsort(truth.median())
    some = order[np.linspace(0, len(order) - 1, min(SHOWN_INTERVALS, len(order))).astype(int)]
    plots.plot_intervals(y[some], dist[some], truth[some], ax=left)
    left.set_title(f"90 % intervals of {len(some)} of the {len(y)} test rows")
    plots.plot_width(dist, truth, ax=middle)
    middle.set_aspect("equal")
    middle.set_title(f"Their widths, all {len(y)} test rows")
    few = [int(np.square(X - place).sum(axis=1).argmin()) for place in SHOWN_CDFS]
    names = [rf"$\mu$ = {mu:.1f}, $\sigma$ = {sigma:.1f}" for mu, sigma in X[few]]
    plots.plot_cdf(dist[few], truth[few], labels=names, ax=right)
    right.set_title("CDFs of three test rows")
    data = r"$y \sim N(\mu, \sigma^2)$, $x = (\mu, \sigma)$"
    figure.suptitle(f"Collaborating Networks on {data}: predicted in colour, the truth in black")
