"""Model files: arrays in safetensors and a description in strict JSON; nothing in a file names code to run.

What a model is comes from its parameters and from ``_state``, plain data: numbers, texts, arrays, estimators of this
library, and lists and dicts of them. Arrays go into the file as tensors, named by where they stood; the rest is JSON.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from collabnets.checkpoint import write_whole
from collabnets.preprocessing import Columns, Outcome

if TYPE_CHECKING:
    from collabnets.estimator import DistributionRegressor

FORMAT = "collabnets-model-3"
# Format 2 says nothing of the moments of p(q), for it only has models whose p(q) is plain.
READABLE = (FORMAT, "collabnets-model-2")
# Parameters that need code or an open session; a loaded model has their defaults (the encoder is asked for).
LEFT_OUT = ("encoder", "checkpoint", "random_state", "verbose")
# Parameters that only a fit needs, and that may be code: then they are left out as well.
LEFT_OUT_AS_CODE = ("optimizer", "q_distribution", "z_distribution")
# The kinds of model a file may hold, and the module of each.
KINDS = {
    "CalibratedRegressor": "collabnets.baselines.calibrated",
    "CollaboratingRegressor": "collabnets.regressor",
    "ConcreteDropoutRegressor": "collabnets.baselines.concrete_dropout",
    "ConformalQuantileRegressor": "collabnets.baselines.conformal",
    "DeepEnsembleRegressor": "collabnets.baselines.ensemble",
    "GaussianProcessRegressor": "collabnets.baselines.gaussian_process",
    "MCDropoutRegressor": "collabnets.baselines.dropout",
    "MeanNetworkRegressor": "collabnets.baselines.quantile_network",
    "ParametricGPRegressor": "collabnets.baselines.parametric_gp",
    "QuantileNetworkRegressor": "collabnets.baselines.quantile_network",
}


def save(model: DistributionRegressor, path: Path) -> None:
    """Write a fitted model."""
    tensors: dict[str, np.ndarray] = {}
    try:
        text = json.dumps(_describe(model, tensors, ""), allow_nan=False)
    except TypeError as error:
        raise ValueError(
            f"this model has a parameter that is code and not data ({error}); set it to something plain before "
            "saving, with model.set_params(...)."
        ) from error
    write_whole(path, to_bytes(tensors, {"format": FORMAT, "model": text}))


def load_model(path: str | Path, *, encoder: Any = None) -> Any:
    """Read a model that ``save`` wrote; it predicts the same to the last bit.

    A p(q), p(Z) or optimizer of your own is code, which the file does not hold, and a prediction does not need it:
    the loaded model has the default there. Set it again, with ``set_params``, before you fit the model anew.

    Parameters
    ----------
    path
        The file.
    encoder
        The encoder the model was made with, if it had one: code is not stored in the file.
    """
    path = Path(path)
    try:
        with safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
            tensors = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is not a model file, or a damaged one.") from error
    if metadata.get("format") not in READABLE:
        raise ValueError(f"{path} is not a model file of this version of collabnets ({FORMAT}).")
    try:
        return _described(json.loads(metadata["model"]), tensors, encoder, path)
    except (AttributeError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} does not fit its own description ({error!r}); the file is damaged.") from error


def _describe(model: Any, tensors: dict[str, np.ndarray], prefix: str) -> dict[str, Any]:
    """What JSON says of a model, fitted or not; its arrays are added to the tensors."""
    kind = type(model).__name__
    if kind not in KINDS:
        raise TypeError(f"a {kind}")
    parameters = model.get_params(deep=False)
    written = {k: v for k, v in parameters.items() if k not in LEFT_OUT and not (k in LEFT_OUT_AS_CODE and _is_code(v))}
    description: dict[str, Any] = {
        "kind": kind,
        "parameters": {k: _plain(k, v, tensors, f"{prefix}{k}") for k, v in written.items()},
        "has_encoder": parameters.get("encoder") is not None,
        "fitted": hasattr(model, "n_features_in_"),
    }
    if not description["fitted"]:
        return description
    if hasattr(model, "columns_"):
        description["columns"] = model.columns_.to_dict()
        description["outcome"] = [model.outcome_.loc, model.outcome_.scale]
    names = getattr(model, "feature_names_in_", None)
    return description | {
        "n_features_in": int(model.n_features_in_),
        "feature_names_in": None if names is None else [str(name) for name in names],
        "state": {k: _plain(k, v, tensors, f"{prefix}{k}") for k, v in model._state().items()},
    }


def _described(description: dict[str, Any], tensors: dict[str, np.ndarray], encoder: Any, path: Path) -> Any:
    """Make a model from what JSON says of it."""
    kind = getattr(import_module(KINDS[description["kind"]]), description["kind"])

    def read(value: Any) -> Any:
        return _restored(value, tensors, encoder, path)

    parameters = {k: read(v) for k, v in description["parameters"].items()}
    if description["has_encoder"]:
        if encoder is None:
            raise ValueError(
                f"the model in {path} has an encoder of your own: pass it as load_model(path, encoder=...)."
            )
        parameters["encoder"] = encoder
    model = kind(**parameters)
    model._validate_params()
    if not description["fitted"]:
        return model
    if "columns" in description:
        model.columns_, model.outcome_ = Columns.from_dict(description["columns"]), Outcome(*description["outcome"])
    model.n_features_in_ = description["n_features_in"]
    if description["feature_names_in"] is not None:
        model.feature_names_in_ = np.array(description["feature_names_in"], dtype=object)
    model._set_state({k: read(v) for k, v in description["state"].items()})
    return model


def _is_code(value: Any) -> bool:
    return callable(value) or hasattr(value, "ppf")


def _plain(name: str, value: Any, tensors: dict[str, np.ndarray], where: str) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, tuple | list):
        return [_plain(name, v, tensors, f"{where}.{i}") for i, v in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(k, str) for k in value):
        return {"dict": {k: _plain(name, v, tensors, f"{where}.{k}") for k, v in value.items()}}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        tensors[where] = np.ascontiguousarray(value)
        return {"array": where}
    if type(value).__name__ in KINDS:
        return {"model": _describe(value, tensors, f"{where}.")}
    raise TypeError(f"{name}={value!r}")


def _restored(value: Any, tensors: dict[str, np.ndarray], encoder: Any, path: Path) -> Any:
    if isinstance(value, list):
        return tuple(_restored(v, tensors, encoder, path) for v in value)
    if not isinstance(value, dict):
        return value
    ((how, content),) = value.items()
    if how == "array":
        return tensors[content]
    if how == "model":
        return _described(content, tensors, encoder, path)
    return {k: _restored(v, tensors, encoder, path) for k, v in value["dict"].items()}
