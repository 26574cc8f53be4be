"""From a table with a text column and gaps to a predictive distribution for every row.

Run it with ``python examples/quickstart.py``; ``QUICK=1`` trains for a second only, to see that it runs.
"""

import os
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from collabnets import CollaboratingRegressor, load_model, metrics

iterations = 200 if os.environ.get("QUICK") else 8_000

# Delivery times: the road decides the mean, the weather the spread. Some distances were not written down.
rng = np.random.default_rng(0)
n = 1_500
X = pd.DataFrame({"distance": rng.uniform(1.0, 20.0, n), "weather": rng.choice(["sun", "rain", "snow"], n)})
spread = X["weather"].map({"sun": 2.0, "rain": 4.0, "snow": 8.0}).to_numpy()
y = 10.0 + 2.0 * X["distance"].to_numpy() + spread * rng.gamma(2.0, 1.0, n)
X.loc[rng.random(n) < 0.05, "distance"] = np.nan

X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
model = CollaboratingRegressor(pretrain_iter=iterations, max_iter=iterations, random_state=0)
model.fit(X_train, y_train)

# The scikit-learn way: arrays, or for a DataFrame a DataFrame with its index.
print("90 % intervals, in minutes")
print(model.predict_interval(X_test.head(3), coverage=0.9).round(1).to_string())

# The SciPy way: one object for all rows, and every verb is on it.
dist = model.predict_dist(X_test)
late = dist.ccdf(60.0)
print(f"P(more than an hour): from {late.min():.2f} to {late.max():.2f}")
print(f"shapes: cdf {dist.cdf([30.0, 60.0]).shape}, sample {dist.sample(10, rng=0).shape}, mean {dist.mean().shape}")

# Is it to be believed?
scores = metrics.evaluate(y_test, dist)
print(f"coverage of the 90 % interval {scores['coverage90']:.3f}, CRPS {scores['crps']:.2f} minutes")
print(metrics.by_group(metrics.coverage, y_test, dist, X_test["weather"]).to_string(index=False))

# Keep it. The file holds data only, no code.
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "delivery.cn"
    model.save(path)
    same = load_model(path).predict(X_test)
print(f"loaded model predicts the same: {np.array_equal(same, model.predict(X_test))}")
