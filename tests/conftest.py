"""What holds for every test: no display, strict array ranks, and the real data where they are at hand."""

import os
from pathlib import Path

os.environ["MPLBACKEND"] = "Agg"
os.environ.setdefault("JAX_PLATFORMS", "cpu")

_data = Path(__file__).resolve().parents[2] / "shared" / "data"
if "COLLABNETS_DATA" not in os.environ and _data.is_dir():
    os.environ["COLLABNETS_DATA"] = str(_data)

import jax  # noqa: E402  (the environment is read at import)

jax.config.update("jax_numpy_rank_promotion", "raise")
