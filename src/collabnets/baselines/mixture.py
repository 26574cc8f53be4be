"""Mixtures of predictive distributions, with exact quantiles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import logsumexp

from collabnets.distribution import PredictiveDistribution, Support

MAX_STEPS = 200
# Logarithms of probabilities are met to this, relative to 1 + |log p|.
TOLERANCE = 1e-15


class MixtureDistribution(PredictiveDistribution):
    """Equally weighted mixtures, one a row, of continuous distributions.

    Densities, probabilities and moments are means of those of the components. A quantile lies between the smallest
    and the largest one of the components, and is found there by Newton's method on the logarithm of the nearer tail's
    probability, with bisection where a step would leave the bracket.

    Parameters
    ----------
    components
        One or more distributions of the same rows.
    """

    def __init__(self, components: Sequence[PredictiveDistribution]) -> None:
        self.components = tuple(components)
        lengths = {len(part) for part in self.components}
        if len(lengths) != 1:
            raise ValueError(
                "a mixture needs one or more components with the same number of rows; "
                f"got {len(self.components)} components with {sorted(lengths)} rows."
            )

    def __len__(self) -> int:
        return len(self.components[0])

    def _take(self, index: np.ndarray) -> MixtureDistribution:
        return type(self)([part._take(index) for part in self.components])

    def _cdf(self, z: np.ndarray) -> np.ndarray:
        return np.mean([part._cdf(z) for part in self.components], axis=0)

    def _ccdf(self, z: np.ndarray) -> np.ndarray:
        return np.mean([part._ccdf(z) for part in self.components], axis=0)

    def _logpdf(self, z: np.ndarray) -> np.ndarray:
        each = [part._logpdf(z) for part in self.components]
        return logsumexp(each, axis=0) - np.log(len(each))

    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        means, variances = (np.array(a) for a in zip(*(part._moments() for part in self.components), strict=True))
        return means.mean(axis=0), variances.mean(axis=0) + means.var(axis=0)

    def _support(self) -> Support:
        lower, upper = zip(*(part._support() for part in self.components), strict=True)
        return Support(np.min(lower, axis=0), np.max(upper, axis=0))

    def _icdf(self, q: np.ndarray) -> np.ndarray:
        out = np.empty(q.shape)
        for rows in self._chunks(q.shape[1] * len(self.components)):
            out[rows] = self._take(np.arange(rows.start, rows.stop))._solve(q[rows])
        return out

    def _solve(self, q: np.ndarray) -> np.ndarray:
        each = np.array([part._icdf(q) for part in self.components])
        row = np.broadcast_to(np.arange(len(self))[:, None], q.shape).ravel()
        low, high, level = each.min(axis=0).ravel(), each.max(axis=0).ravel(), q.ravel()
        with np.errstate(invalid="ignore"):
            z = np.where(low < high, each.mean(axis=0).ravel(), low)
        open_ = np.flatnonzero((low < high) & (level > 0) & (level < 1))
        for _ in range(MAX_STEPS):
            if not len(open_):
                break
            off, slope = self._off(z[open_], level[open_], row[open_])
            low[open_] = np.where(off < 0, z[open_], low[open_])
            high[open_] = np.where(off > 0, z[open_], high[open_])
            with np.errstate(divide="ignore", invalid="ignore"):
                new = z[open_] - off / slope
            inside = (new >= low[open_]) & (new <= high[open_])
            new = np.where(inside, new, 0.5 * low[open_] + 0.5 * high[open_])
            tail = np.minimum(level[open_], 1.0 - level[open_])
            met = np.abs(off) <= TOLERANCE * (1.0 - np.log(tail))
            moving = ~met & (new != z[open_])
            z[open_] = np.where(met, z[open_], new)
            open_ = open_[moving]
        return z.reshape(q.shape)

    def _off(self, z: np.ndarray, level: np.ndarray, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How far the logarithm of the nearer tail's probability is from its target at z, and the slope of that."""
        lower = level <= 0.5
        parts = [part._take(row) for part in self.components]
        at = z[:, None]
        log_pdf = logsumexp([part._logpdf(at)[:, 0] for part in parts], axis=0) - np.log(len(parts))
        p = np.empty(len(z))
        for side, verb in ((lower, "_cdf"), (~lower, "_ccdf")):
            picked = [part._take(np.flatnonzero(side)) for part in parts]
            p[side] = np.mean([getattr(part, verb)(at[side])[:, 0] for part in picked], axis=0)
        sign = np.where(lower, 1.0, -1.0)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # far out in a tail p may be 0
            log_p = np.log(p)
            return sign * (log_p - np.log(np.where(lower, level, 1.0 - level))), np.exp(log_pdf - log_p)
