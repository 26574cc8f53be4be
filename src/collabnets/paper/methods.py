"""The methods of the paper's comparison, as jobs of the runner, with the settings of Appendix C."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from collabnets.distribution import PredictiveDistribution
from collabnets.fitting import fit_together
from collabnets.paper import settings
from collabnets.paper.grid import Job, Models, Split
from collabnets.regressor import CollaboratingRegressor

# As in the paper's tables; TH is the truth.
ORDER = ("TH", "CN-g", "CN-f", "g-only", "DP", "DP-CR", "CDP", "GPR", "PPGPR", "EN", "CQR")
QUICK: dict[str, Any] = {"pretrain_iter": 3_000, "max_iter": 3_000}
NOT_SETTINGS = ("random_state", "verbose", "checkpoint", "n_jobs", "point_estimate")
INTERRUPTED = "training was interrupted"  # how the warning of a fit that was cut short begins
LOSS_POINTS = 1000  # iterations of the first part of the loss curves, and points of the whole ones


class Truth:
    """The true distribution as just another model."""

    def __init__(self, truth: PredictiveDistribution) -> None:
        self.truth = truth

    def predict_dist(self, X: Any) -> PredictiveDistribution:
        """The truth of the test rows, whatever is asked."""
        return self.truth


def _fit_truth(splits: Sequence[Split], seeds: Sequence[int], checkpoint: Path | None, progress: bool) -> list[Models]:
    out: list[Models] = []
    for split in splits:
        if split.truth is None:
            raise ValueError("the truth of these data is not known.")
        out.append({"TH": Truth(split.truth)})
    return out


def _fit_cn(
    names: Mapping[str, str],
    parameters: Mapping[str, Any],
    splits: Sequence[Split],
    seeds: Sequence[int],
    checkpoint: Path | None,
    progress: bool,
) -> list[Models]:
    models = [
        CollaboratingRegressor(**parameters, random_state=seed, checkpoint=checkpoint, verbose=0) for seed in seeds
    ]
    with warnings.catch_warnings():
        # a user keeps a model that Ctrl-C cut short, an experiment must not: it would be measured as if it were whole
        warnings.filterwarnings("error", INTERRUPTED, RuntimeWarning)
        try:
            fit_together(models, [(s.X_train, s.y_train) for s in splits], progress=progress)
        except RuntimeWarning as warning:
            if not str(warning).startswith(INTERRUPTED):
                raise
            raise KeyboardInterrupt from warning
    # one pair of networks is both CN-g and CN-f
    return [{name: copy.copy(m).set_params(method=method) for name, method in names.items()} for m in models]


def _fit_one(
    name: str,
    make: Callable[..., Any],
    parameters: Mapping[str, Any],
    splits: Sequence[Split],
    seeds: Sequence[int],
    checkpoint: Path | None,
    progress: bool,
) -> list[Models]:
    out: list[Models] = []
    for split, seed in zip(splits, seeds, strict=True):
        model = make(**parameters, random_state=seed)
        if "verbose" in model.get_params():
            model.set_params(verbose=int(progress))
        out.append({name: model.fit(split.X_train, split.y_train)})
    return out


def losses(model: CollaboratingRegressor) -> dict[str, Any]:
    """The loss curves of a fit: its first iterations one by one, and the whole in means."""
    out: dict[str, Any] = {}
    for name in ("pretrain", "joint_g", "joint_f"):
        curve = np.asarray(getattr(model.history_, name))[:, 0].astype(float)
        every = max(1, len(curve) // LOSS_POINTS)
        whole = curve[: len(curve) // every * every].reshape(-1, every).mean(axis=1)
        out[f"loss_{name}_first"] = [round(v, 5) for v in curve[:LOSS_POINTS].tolist()]
        out[f"loss_{name}"] = {"every": every, "mean": [round(v, 5) for v in whole.tolist()]}
    return out


def truth() -> Job:
    """TH."""
    return Job("TH", ("TH",), {"method": "TH"}, _fit_truth, together=True)


def collaborating(names: Mapping[str, str], base: Mapping[str, Any] = settings.SYNTHETIC, **changes: Any) -> Job:
    """CN-g and CN-f from one fit, or one of the variants with a fixed f.

    Parameters
    ----------
    names
        Method of the comparison -> ``method`` of the estimator.
    base
        Parameters of the estimator, as in ``collabnets.paper.settings``.
    **changes
        Those that differ.
    """
    parameters = {**base} | changes | {"method": next(iter(names.values()))}
    return Job(
        "CN" if len(names) > 1 else next(iter(names)),
        tuple(names),
        _settings(CollaboratingRegressor, parameters),
        partial(_fit_cn, names, parameters),
        together=True,
        extra=losses,
    )


def baseline(name: str, make: Callable[..., Any], **parameters: Any) -> Job:
    """One of the methods compared with."""
    return Job(name, (name,), _settings(make, parameters), partial(_fit_one, name, make, parameters))


def comparison(
    quick: bool,
    chosen: Sequence[str] | None = None,
    only: Sequence[str] | None = None,
    *,
    base: Mapping[str, Any] = settings.SYNTHETIC,
    epochs: Callable[[str], int | None] = lambda method: None,
    real: bool = False,
    gpr_rows: Mapping[str, int] | None = None,
) -> list[Job]:
    """The methods of the paper's tables, as Appendix C has them.

    Parameters
    ----------
    quick
        Short training.
    chosen
        Methods that the user asked for; the truth is always there. None for all.
    only
        Methods that a figure needs. None for all.
    base
        Settings of the Collaborating Networks; the networks compared with take their batches.
    epochs
        Of a method compared with, by its name, where not those of Appendix C.
    real
        The methods of the real data: no truth, and recalibrated dropout besides.
    gpr_rows
        ``max_rows`` and ``search_rows`` of GPR, where not its defaults.
    """
    from collabnets import baselines

    short = QUICK if quick else {}

    def trained(method: str, quickly: int = 60) -> dict[str, Any]:
        full = epochs(method)
        length = full if not quick else quickly if full is None else max(1, min(quickly, full // 10))
        return {"batch_size": base["batch_size"]} | ({} if length is None else {"max_iter": length})

    # as the Collaborating Networks are, in the units of the data or not
    units: dict[str, Any] = {} if base["standardize"] else {"standardize": False}
    precisions: dict[str, Any] = {} if base["standardize"] else {"precisions": settings.SYNTHETIC_PRECISIONS}
    passes: dict[str, Any] = {"n_passes": 200} if quick else {}
    points = {"n_inducing": 100} if quick else {}
    rows: dict[str, Any] = dict(gpr_rows or {})
    rows |= {"max_rows": 2_000, "too_many_rows": "subsample"} if quick else {}
    trees = {"n_estimators": 200} if quick else {}
    jobs = [
        truth(),
        collaborating({"CN-g": "cn-g", "CN-f": "cn-f"}, base, **short),
        collaborating({"g-only": "g-only"}, base, **short),
        baseline("DP", baselines.MCDropoutRegressor, **trained("DP"), **passes, **units, **precisions),
        baseline("CDP", baselines.ConcreteDropoutRegressor, **trained("CDP"), **passes, **units),
        baseline("GPR", baselines.GaussianProcessRegressor, **rows, **units),
        baseline("PPGPR", baselines.ParametricGPRegressor, **trained("PPGPR", 20), **points, **units),
        baseline("EN", baselines.DeepEnsembleRegressor, **trained("EN"), **units),
        baseline("CQR", baselines.ConformalQuantileRegressor, **trees, n_jobs=-1),
    ]
    if real:
        dropout = baselines.MCDropoutRegressor(**trained("DP"), **passes, verbose=0)
        jobs = [*jobs[1:4], baseline("DP-CR", baselines.CalibratedRegressor, estimator=dropout), *jobs[4:]]
    wanted = [set(names) for names in (chosen, only) if names is not None]
    return [j for j in jobs if j.name == "TH" or all(names & set(j.methods) for names in wanted)]


def _settings(make: Callable[..., Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters of an estimator, so that another default is another cell; without those that decide nothing."""
    estimator = make(**parameters)
    return {"estimator": type(estimator).__name__, **_plain(estimator.get_params(deep=False))}


def _plain(value: Any) -> Any:
    """Parameters as JSON can hold them, the same in every process."""
    if isinstance(value, Mapping):
        return {name: _plain(v) for name, v in value.items() if name not in NOT_SETTINGS}
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    if hasattr(value, "dist") and hasattr(value, "args"):  # a frozen distribution of SciPy
        return f"{value.dist.name}{value.args}"
    if hasattr(value, "get_params"):
        return {"estimator": type(value).__name__, **_plain(value.get_params(deep=False))}
    return value.__qualname__
