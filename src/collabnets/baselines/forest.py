"""A quantile forest: the trees are scikit-learn's, the conditional distributions Meinshausen's, the rest plain arrays.

Each leaf of each tree holds the training rows that it was grown on. For a row x the weight of a training row is its
mean share, over the trees, of the leaf that x falls into; quantiles are those of the training outcomes under these
weights [1]_. A weight of a row is a repetition: it is drawn that much more often.

References
----------
.. [1] N. Meinshausen, "Quantile regression forests", JMLR 7, 2006.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.parallel import Parallel, delayed
from tqdm.auto import tqdm

from collabnets.distribution import BYTE_BUDGET
from collabnets.preprocessing import Outcome

# Outcomes are rounded to this part of their standard deviation before trees are grown. Sums of them are then exact, so
# that a tie between two splits is a tie in every unit of y, and goes to the feature that comes first in the tree's own
# random order.
GRID = 2.0**-26
# A level that is met but for the rounding of a sum of weights is met.
ROUNDING = 1e-9


class Forest(NamedTuple):
    """Trees one after the other, as arrays.

    Attributes
    ----------
    roots
        First node of each tree (T,).
    feature, threshold
        Column that a node looks at, and the largest value that goes left (N,); infinity at a leaf.
    child
        Left child, the right one follows it (N,); a leaf is its own.
    first
        Where the training rows of each node begin (N + 1,); only leaves have any.
    rank, share
        Rank of each such row's outcome, and the row's share of its leaf (M,).
    outcomes
        Outcomes of the training rows, sorted, without repetitions.
    """

    roots: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    child: np.ndarray
    first: np.ndarray
    rank: np.ndarray
    share: np.ndarray
    outcomes: np.ndarray

    def quantiles(self, features: np.ndarray, levels: np.ndarray) -> np.ndarray:
        """The smallest outcome whose share, with all below it, is at least the level: (n, L) for levels (L,)."""
        out = np.empty((len(features), len(levels)))
        for i, rank, total in self._conditional(features):
            at = np.searchsorted(total, levels * total[-1] - ROUNDING)
            out[i] = self.outcomes[rank[np.minimum(at, len(rank) - 1)]]
        return out

    def probabilities(self, features: np.ndarray, y: np.ndarray, unseen: np.ndarray) -> np.ndarray:
        """P(Y < y_i) and P(Y <= y_i), (n, 2), by the trees that are marked for each row (n, T); NaN without any."""
        out = np.full((len(features), 2), np.nan)
        for i, rank, total in self._conditional(features, unseen):
            if len(rank):
                at = [np.searchsorted(rank, np.searchsorted(self.outcomes, y[i], side)) for side in ("left", "right")]
                out[i] = np.r_[0.0, total][at] / total[-1]
        return out

    def leaves(self, features: np.ndarray) -> np.ndarray:
        """The leaf of each tree (n, T) that a row falls into."""
        n, width = features.shape
        out = np.empty((n, len(self.roots)), np.int32)
        values = features.ravel()
        step = max(1, 8192 // n)  # few trees at a time, so that they stay in the processor's cache
        for start in range(0, len(self.roots), step):
            roots = self.roots[start : start + step]
            row = np.repeat(np.arange(n) * width, len(roots))
            node, settled = np.tile(roots, n), False
            while not settled:
                right = values.take(row + self.feature.take(node)) > self.threshold.take(node)
                following = self.child.take(node) + right
                node, settled = following, np.array_equal(following, node)
            out[:, start : start + step] = node.reshape(n, -1)
        return out

    def _conditional(
        self, features: np.ndarray, unseen: np.ndarray | None = None
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Each row's number, the sorted ranks of the outcomes in its leaves, and their shares added up."""
        for rows in self._blocks(len(features)):
            node = self.leaves(features[rows])
            size = self.first[node + 1] - self.first[node]
            if unseen is not None:
                size = np.where(unseen[rows], size, 0)
            ends = np.cumsum(size.ravel())
            inside = np.arange(ends[-1]) - np.repeat(ends - size.ravel(), size.ravel())
            member = np.repeat(self.first[node].ravel(), size.ravel()) + inside
            last = ends[node.shape[1] - 1 :: node.shape[1]]
            for i, begin, end in zip(range(rows.start, rows.stop), np.r_[0, last[:-1]], last, strict=True):
                rank = self.rank[member[begin:end]]
                order = np.argsort(rank, kind="stable")
                yield i, rank[order], np.cumsum(self.share[member[begin:end]][order])

    def _blocks(self, n: int) -> Iterator[slice]:
        """Slices of rows whose nodes and neighbours stay inside the byte budget."""
        in_a_leaf = len(self.rank) / np.count_nonzero(np.diff(self.first))
        row = 8 * 8 * len(self.roots) * (1.0 + in_a_leaf)
        step = max(1, int(BYTE_BUDGET // row))
        for start in range(0, n, step):
            yield slice(start, min(start + step, n))


def grow(
    features: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
    *,
    seed: int,
    n_estimators: int,
    max_features: float,
    min_samples_leaf: int,
    max_samples: int | None,
    n_jobs: int | None = None,
    progress: bool = False,
) -> Forest:
    """Grow trees on bootstrap samples.

    Parameters
    ----------
    features, y, weight
        Training rows: features (n, p) float32, outcomes (n,) float64 in any unit, weights (n,).
    seed
        Tree t depends on the seed, on t and on the rows alone.
    n_estimators, max_features, min_samples_leaf
        As in scikit-learn's forests.
    max_samples
        Draws for a tree, at most; n by default.
    n_jobs
        Threads.
    progress
        Show a bar, if on a terminal.
    """
    outcomes, rank = np.unique(y, return_inverse=True)
    unit = Outcome.fit(y, weight)
    target = np.round((y - unit.loc) / ((unit.scale or 1.0) * GRID)) * GRID
    cumulative = np.cumsum(weight) / weight.sum()
    features = np.ascontiguousarray(features, np.float32)
    draws = len(y) if max_samples is None else min(len(y), max_samples)

    def one(t: int) -> tuple[np.ndarray, ...]:
        count = in_bag(cumulative, draws, seed, t)
        rows = np.flatnonzero(count)
        tree = DecisionTreeRegressor(
            min_samples_leaf=min_samples_leaf,
            max_features=max_features,
            random_state=int(np.random.SeedSequence([seed, t]).generate_state(2)[1]),
        )
        x = features[rows]
        tree.fit(x, target[rows], sample_weight=count[rows].astype(float), check_input=False)
        return _packed(tree.tree_, x, rank[rows], count[rows])

    numbers = tqdm(range(n_estimators), disable=None if progress else True, unit="tree", leave=False)
    trees = Parallel(n_jobs=n_jobs, prefer="threads")(delayed(one)(t) for t in numbers)
    feature, threshold, child, size, ranks, share = zip(*trees, strict=True)
    roots = np.cumsum([0, *(len(a) for a in feature[:-1])])
    return Forest(
        roots.astype(np.int32),
        np.concatenate(feature),
        np.concatenate(threshold),
        np.concatenate([a + root for a, root in zip(child, roots, strict=True)]).astype(np.int32),
        np.concatenate([[0], np.cumsum(np.concatenate(size))]).astype(np.int32),
        np.concatenate(ranks),
        np.concatenate(share),
        outcomes,
    )


def in_bag(cumulative: np.ndarray, draws: int, seed: int, t: int) -> np.ndarray:
    """How often each row was drawn for tree t."""
    drawn = np.searchsorted(cumulative, np.random.default_rng([seed, t]).random(draws))
    return np.bincount(np.minimum(drawn, len(cumulative) - 1), minlength=len(cumulative))


def _packed(tree, x: np.ndarray, rank: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, ...]:
    """A tree of scikit-learn with its nodes in pairs of siblings, and the rows of its leaves."""
    internal = np.flatnonzero(tree.children_left >= 0)
    place = np.zeros(tree.node_count, int)
    place[tree.children_left[internal]] = 1 + 2 * np.arange(len(internal))
    place[tree.children_right[internal]] = 2 + 2 * np.arange(len(internal))
    feature = np.zeros(tree.node_count, np.int32)
    threshold = np.full(tree.node_count, np.inf, np.float32)
    child = np.arange(tree.node_count, dtype=np.int32)
    feature[place[internal]] = tree.feature[internal]
    # x <= t for a float32 x says the same as x <= the largest float32 that is at most t
    exact = tree.threshold[internal]
    below = exact.astype(np.float32)
    threshold[place[internal]] = np.where(below > exact, np.nextafter(below, np.float32(-np.inf)), below)
    child[place[internal]] = 1 + 2 * np.arange(len(internal))
    leaf = place[tree.apply(x)]
    order = np.argsort(leaf, kind="stable")
    total = np.bincount(leaf, count, tree.node_count)
    size = np.bincount(leaf, minlength=tree.node_count)
    return feature, threshold, child, size, rank[order].astype(np.int32), (count / total[leaf])[order]
