"""Spend more of the training on the tails: p(q) = Beta(1/2, 1/2), as Section 4.2 of the paper suggests.

p(q) says at which levels f is trained, and so where it sends g. This matters most when the distribution of f is used
(method="cn-f"), which the paper finds weak in the tails. The example measures the error of extreme quantiles against
the known truth; on one data set and one seed it shows how to compare, not which is better in general.

Run it with ``python examples/tail_focused.py``; ``QUICK=1`` trains for a second only, to see that it runs.
"""

import os

import numpy as np

from collabnets import CollaboratingRegressor
from collabnets.datasets import heteroskedastic_gaussian, paper_splits

iterations = 200 if os.environ.get("QUICK") else 4_000
levels = [0.01, 0.05, 0.5, 0.95, 0.99]
data = heteroskedastic_gaussian()
train, test = next(paper_splits(len(data.y)))
truth = data.truth[test].icdf(levels)

print("mean absolute error of the quantiles of f, in units of y")
print(f"{'p(q)':<16}" + "".join(f"{level:>8.2f}" for level in levels))
for name, q_distribution in {"uniform": "uniform", "Beta(1/2, 1/2)": ("beta", 0.5, 0.5)}.items():
    model = CollaboratingRegressor(
        method="cn-f",
        q_distribution=q_distribution,
        pretrain_iter=iterations,
        max_iter=iterations,
        random_state=0,
    ).fit(data.X[train], data.y[train])
    error = np.abs(model.predict_quantiles(data.X[test], levels) - truth).mean(axis=0)
    print(f"{name:<16}" + "".join(f"{value:>8.3f}" for value in error))
