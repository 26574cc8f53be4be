"""Model files: arrays in safetensors and a description in strict JSON; nothing in a file names code to run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from collabnets.checkpoint import write_whole
from collabnets.networks import stack
from collabnets.preprocessing import Columns, Outcome
from collabnets.training import Losses

if TYPE_CHECKING:
    from collabnets.regressor import CollaboratingRegressor

FORMAT = "collabnets-model-1"
# Parameters that need code or an open session; a loaded model has their defaults (the encoder is asked for).
LEFT_OUT = ("encoder", "checkpoint", "random_state", "verbose")


def save(model: CollaboratingRegressor, path: Path) -> None:
    """Write a fitted model."""
    parameters = {k: v for k, v in model.get_params(deep=False).items() if k not in LEFT_OUT}
    try:
        description = {
            "parameters": {k: _plain(k, v) for k, v in parameters.items()},
            "has_encoder": model.encoder is not None,
            "columns": model.columns_.to_dict(),
            "outcome": [model.outcome_.loc, model.outcome_.scale],
            "search_range": list(model.search_range_),
            "n_iter": model.n_iter_,
            "constant": model.g_ is None,
        }
        text = json.dumps(description, allow_nan=False)
    except TypeError as error:
        raise ValueError(
            f"this model has a parameter that is code and not data ({error}); set it to something plain before "
            "saving, for instance model.set_params(optimizer='adam')."
        ) from error
    tensors = {"start": model._start}
    tensors |= {f"history.{k}": np.ascontiguousarray(v) for k, v in model.history_._asdict().items()}
    for name in ("g", "f"):
        leaves = jax.tree.leaves(eqx.filter(getattr(model, f"{name}_"), eqx.is_array))
        tensors |= {f"{name}.{i}": np.ascontiguousarray(a) for i, a in enumerate(leaves)}
    write_whole(path, to_bytes(tensors, {"format": FORMAT, "model": text}))


def load_model(path: str | Path, *, encoder: Any = None) -> CollaboratingRegressor:
    """Read a model that ``save`` wrote; it predicts the same to the last bit.

    Parameters
    ----------
    path
        The file.
    encoder
        The encoder the model was made with, if it had one: code is not stored in the file.
    """
    from collabnets.fitting import member_keys

    path = Path(path)
    try:
        with safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
            tensors = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is not a model file, or a damaged one.") from error
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{path} is not a model file of this version of collabnets ({FORMAT}).")
    try:
        description = json.loads(metadata["model"])
        if description["has_encoder"] and encoder is None:
            raise ValueError(
                f"the model in {path} has an encoder of your own: pass it as load_model(path, encoder=...)."
            )
        model, constant = _described(description, tensors, encoder), bool(description["constant"])
    except (AttributeError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} does not fit its own description ({error!r}); the file is damaged.") from error
    if not constant:
        width = len(model.columns_.feature_names_out)
        starts = [model._networks(width, key) for key in member_keys(0, int(model.n_members), of="start")]
        templates = (stack(nets) for nets in zip(*starts, strict=True))
        model.g_, model.f_ = (_fill(net, name, tensors, path) for net, name in zip(templates, "gf", strict=True))
    return model


def _described(description: dict[str, Any], tensors: dict[str, np.ndarray], encoder: Any) -> CollaboratingRegressor:
    """A model as far as its description goes, without its networks."""
    from collabnets.regressor import CollaboratingRegressor

    parameters: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in description["parameters"].items()
    }
    model = CollaboratingRegressor(**parameters, encoder=encoder)
    model._validate_params()
    model.columns_, model.outcome_ = Columns.from_dict(description["columns"]), Outcome(*description["outcome"])
    model.n_features_in_ = len(model.columns_.columns)
    if model.columns_.feature_names_in is not None:
        model.feature_names_in_ = np.array(model.columns_.feature_names_in, dtype=object)
    model.search_range_ = tuple(description["search_range"])
    model.n_iter_, model._start = description["n_iter"], tensors["start"]
    model.history_ = Losses(*(tensors[f"history.{k}"] for k in Losses._fields))
    model.g_ = model.f_ = None
    return model


def _fill(template: Any, name: str, tensors: dict[str, np.ndarray], path: Path) -> Any:
    arrays, rest = eqx.partition(template, eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)
    filled = [tensors.get(f"{name}.{i}") for i in range(len(leaves))]
    for i, (leaf, tensor) in enumerate(zip(leaves, filled, strict=True)):
        if tensor is None or tensor.shape != leaf.shape or tensor.dtype != leaf.dtype:
            raise ValueError(f"{path} does not fit its own description (part {name}.{i}); the file is damaged.")
    return eqx.combine(jax.tree.unflatten(structure, filled), rest)


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, tuple | list | np.ndarray):
        return [_plain(name, v) for v in value]
    if isinstance(value, str | int | float | bool | None):
        return value
    raise TypeError(f"{name}={value!r}")
