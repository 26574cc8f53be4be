"""Your own encoder of the features: any ``eqx.Module`` that maps one row to a vector.

Here a periodic embedding, sines and cosines of learnt frequencies beside the feature itself, for an outcome that
oscillates (Section 5.2 of the paper). g and f each get an encoder of their own and train it with the rest.

Run it with ``python examples/custom_encoder.py``; ``QUICK=1`` trains for a second only, to see that it runs.
"""

import os
import tempfile
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from collabnets import CollaboratingRegressor, load_model, metrics
from collabnets.datasets import sinusoid


class Periodic(eqx.Module):
    """x -> (x, sin(x w), cos(x w)) with learnt frequencies w; written for one row."""

    frequencies: jax.Array

    def __init__(self, n_features: int, *, key: jax.Array):
        self.frequencies = jax.random.normal(key, (n_features, 8))

    def __call__(self, x: jax.Array) -> jax.Array:
        angles = (x[:, None] * self.frequencies).ravel()
        return jnp.concatenate([x, jnp.sin(angles), jnp.cos(angles)])


iterations = 200 if os.environ.get("QUICK") else 3_000
train = sinusoid(1_000, equally_spaced=False, random_state=0)
test = sinusoid(1_000, equally_spaced=False, random_state=1)

models = {}
for name, encoder in {"plain": None, "periodic": Periodic}.items():
    models[name] = CollaboratingRegressor(
        encoder=encoder, pretrain_iter=iterations, max_iter=iterations, random_state=0
    ).fit(train.X, train.y)
    crps = metrics.crps(test.y, models[name].predict_dist(test.X))
    print(f"{name:>8}: CRPS {crps:.4f}")
print(f"{'truth':>8}: CRPS {metrics.crps(test.y, test.truth):.4f}")

# Code is not stored in a model file, so the encoder is handed over again.
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "periodic.cn"
    models["periodic"].save(path)
    loaded = load_model(path, encoder=Periodic)
print(f"loaded model predicts the same: {np.array_equal(loaded.predict(test.X), models['periodic'].predict(test.X))}")
