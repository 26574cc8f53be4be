"""Saving where a fit stands, and finding it again: arrays in safetensors, the rest in strict JSON, no code."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

FORMAT = "collabnets-checkpoint-1"


class Snapshot(NamedTuple):
    """A moment of a fit.

    Attributes
    ----------
    arrays
        Pytree of device arrays: networks, optimisers, best state.
    history
        Losses so far, by name.
    where
        Phase, iteration and step scale; JSON numbers.
    """

    arrays: Any
    history: dict[str, np.ndarray]
    where: dict[str, Any]


def save(path: Path, fingerprint: str, snapshot: Snapshot) -> None:
    """Write a snapshot; the file at ``path`` is at every moment either the old one or the new one, whole."""
    tensors = {f"state.{i}": np.asarray(a) for i, a in enumerate(jax.tree.leaves(snapshot.arrays))}
    tensors |= {f"history.{k}": np.ascontiguousarray(v) for k, v in snapshot.history.items()}
    metadata = {"format": FORMAT, "fingerprint": fingerprint, "where": json.dumps(snapshot.where)}
    write_whole(path, to_bytes(tensors, metadata))


def load(path: Path | None, fingerprint: str, template: Snapshot) -> Snapshot | None:
    """Read the snapshot at ``path`` into the structure of ``template``; None where there is no file."""
    if path is None or not path.exists():
        return None
    try:
        with safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
            tensors = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is not a checkpoint, or a damaged one; delete it or name another file.") from error
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{path} is not a checkpoint of this version of collabnets; delete it or name another file.")
    if metadata["fingerprint"] != fingerprint:
        raise ValueError(
            f"the checkpoint {path} belongs to another fit (other data, parameters or versions); "
            "delete it to start anew, or name another file."
        )
    leaves, structure = jax.tree.flatten(template.arrays)
    saved = [jnp.asarray(tensors[f"state.{i}"]) for i in range(len(leaves))]
    history = {k: tensors[f"history.{k}"] for k in template.history}
    return Snapshot(jax.tree.unflatten(structure, saved), history, json.loads(metadata["where"]))


def write_whole(path: Path, content: bytes) -> None:
    """Write a file beside ``path`` and move it there in one step; if that fails, what stood there is kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(scratch, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror or error}; what stood there before is kept", str(path)) from error
    finally:
        scratch.unlink(missing_ok=True)
