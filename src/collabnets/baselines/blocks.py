"""Prediction in blocks of one shape: nothing compiles twice, and a row's answer does not depend on its neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

BLOCK_ROWS = 128


def by_blocks(function: Callable[[np.ndarray], Any], features: np.ndarray, rows: int = BLOCK_ROWS) -> Any:
    """Run ``function(x)`` on blocks of ``rows`` rows, the last one padded; its arrays come back with n rows, NumPy's.

    Parameters
    ----------
    function
        Maps features (rows, p) to a pytree of arrays whose first axis is the row; compiled by the caller.
    features
        Features (n, p).
    rows
        Rows of a block; it bounds the memory of a call.
    """
    n, parts = len(features), []
    for start in range(0, max(n, 1), rows):
        block = features[start : start + rows]
        padded = np.pad(block, ((0, rows - len(block)), (0, 0)))
        real = slice(len(block))
        parts.append(jax.tree.map(lambda a, real=real: np.asarray(a)[real], function(padded)))
    return jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)
