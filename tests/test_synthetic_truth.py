"""The paper's synthetic experiments, ten replications at its settings, trained together: close to the truth."""

import numpy as np
import pytest

from collabnets import CollaboratingRegressor, fit_together, metrics
from collabnets.datasets import heteroskedastic_gaussian, paper_splits, weibull
from collabnets.paper import settings

pytestmark = pytest.mark.slow


def replications(data) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """Metrics of CN-g and of the truth on the test rows of the paper's ten splits."""
    splits = list(paper_splits(len(data.y), settings.N_REPLICATIONS, train=0.7, seed=settings.SPLIT_SEED))
    models = [CollaboratingRegressor(**settings.SYNTHETIC, random_state=i, verbose=0) for i in range(len(splits))]
    fit_together(models, [(data.X[train], data.y[train]) for train, _ in splits])
    ours, truth = [], []
    for model, (_, test) in zip(models, splits, strict=True):
        true_median = data.truth[test].median()
        for rows, dist in ((ours, model.predict_dist(data.X[test])), (truth, data.truth[test])):
            y = data.y[test]
            rows.append(
                {
                    "cal": metrics.calibration_error(y, dist),
                    "gof": metrics.gof(y, dist),
                    "coverage": metrics.coverage(y, dist, 0.9),
                    "mae": float(np.abs(dist.median() - true_median).mean()),
                }
            )
    return ours, truth


def mean(rows: list[dict[str, float]], name: str) -> float:
    return float(np.mean([row[name] for row in rows]))


def test_heteroskedastic_gaussian():
    ours, truth = replications(heteroskedastic_gaussian())
    assert mean(truth, "gof") - mean(ours, "gof") < 0.015
    assert mean(ours, "cal") < 0.022
    assert 0.875 < mean(ours, "coverage") < 0.91
    assert mean(ours, "mae") < 0.09


def test_weibull():
    ours, truth = replications(weibull())
    assert mean(truth, "gof") - mean(ours, "gof") < 0.035
    assert mean(ours, "cal") < 0.029
    assert mean(ours, "mae") < 0.05
