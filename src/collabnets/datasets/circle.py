"""The average of two points on a circle: its true joint distribution, marginals and conditionals, to about 1e-10."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from collabnets.datasets.two_outputs import TwoOutputDistribution, check_output, check_positive, each_row
from collabnets.distribution import BYTE_BUDGET, PredictiveDistribution, Support

_HALF_PI = 0.5 * np.pi

# Average of two points on the circle. With a = (psi_1 + psi_2) / 2 and d = (psi_1 - psi_2) / 2 the average is
# y = cos(d) (cos a, sin a), so |y| = R = |cos d|, each y comes from two pairs of angles, and the change of
# variables gives, with s = kappa_1 + kappa_2 and t = kappa_1 - kappa_2,
#   p(y) = exp(s y_1) cosh(t y_2 sqrt(1 - R^2) / R) / (pi^2 I0(kappa_1) I0(kappa_2) R sqrt(1 - R^2)).
# Along one coordinate, the other fixed at c, dy / (R sqrt(1 - R^2)) is an elliptic differential:
# y = b cn(w | b^2) with b^2 = 1 - c^2 makes it -dw, with R = dn(w) and sqrt(1 - R^2) = b sn(w). What is left
# is smooth and even about both ends of 0 <= w <= 2K, so a cosine series in w gives marginal densities and
# conditional cdfs almost to rounding.
_SEGMENT_NODES = 32
_SEGMENTS = 14


class CircularAverage(TwoOutputDistribution):
    """Average of two points on the unit circle with von Mises(0, kappa) angles.

    The density is in closed form; the joint cdf is one integral over the first angle (the second angle's arc
    has its probability from the von Mises cdf), split where that arc changes, good to about 1e-10.

    Parameters
    ----------
    kappa
        Concentrations (n, 2).
    """

    def __init__(self, kappa: np.ndarray) -> None:
        check_positive(kappa=kappa)
        self.kappa = kappa

    def __len__(self) -> int:
        return len(self.kappa)

    def _take(self, index: np.ndarray) -> CircularAverage:
        return type(self)(self.kappa[index])

    def _cdf(self, z1: np.ndarray, z2: np.ndarray) -> np.ndarray:
        return _in_blocks(_circular_cdf, 8 * _SEGMENTS * _SEGMENT_NODES, *_with_kappa(self.kappa, z1, z2))

    def _logpdf(self, z1: np.ndarray, z2: np.ndarray) -> np.ndarray:
        kappa1, kappa2 = self.kappa[:, :1], self.kappa[:, 1:]
        R = np.hypot(z1, z2)
        inside = (R > 0) & (R < 1)
        R = np.where(inside, R, 0.5)
        root = np.sqrt((1.0 - R) * (1.0 + R))
        t = np.abs((kappa1 - kappa2) * z2 * root / R)
        log_cosh = t + np.log1p(np.exp(-2 * t)) - np.log(2.0)
        value = (kappa1 + kappa2) * z1 + log_cosh - _log_norm(kappa1, kappa2) - np.log(R * root)
        return np.where(inside, value, np.where(np.hypot(z1, z2) > 1, -np.inf, np.inf))

    def _draw(self, size: int, rng: np.random.Generator) -> np.ndarray:
        psi = rng.vonmises(0.0, self.kappa, size=(size, len(self), 2))
        return np.stack([np.cos(psi).mean(axis=-1), np.sin(psi).mean(axis=-1)], axis=-1)

    def marginal(self, output: int) -> PredictiveDistribution:
        """Distributions of one output (0 or 1), numerically to about 1e-10."""
        return _CircularMarginal(self.kappa, check_output(output))

    def conditional(self, output: int, given: ArrayLike) -> PredictiveDistribution:
        """Distributions of one output when the other is ``given``, strictly between -1 and 1 and not 0.

        At 0 all probability sits at 0: the two points can then be opposite wherever they are.
        """
        c = each_row(given, len(self))
        if not np.all((np.abs(c) < 1) & (np.abs(c) > 1e-100)):
            raise ValueError("a given output of the circular case lies strictly between -1 and 1 and is not 0.")
        return _CircularConditional(self.kappa, check_output(output), c)

    def mean(self) -> np.ndarray:
        """Means, shape (n, 2)."""
        first = (special.ive(1, self.kappa) / special.ive(0, self.kappa)).mean(axis=1)
        return np.column_stack([first, np.zeros(len(self))])

    def covariance(self) -> np.ndarray:
        """Covariance matrices, shape (n, 2, 2)."""
        i0 = special.ive(0, self.kappa)
        first, second = special.ive(1, self.kappa) / i0, special.ive(2, self.kappa) / i0
        out = np.zeros((len(self), 2, 2))
        out[:, 0, 0] = (0.5 * (1 + second) - first**2).sum(axis=1) / 4
        out[:, 1, 1] = (0.5 * (1 - second)).sum(axis=1) / 4
        return out


class _CircularMarginal(PredictiveDistribution):
    """One output of `CircularAverage`."""

    def __init__(self, kappa: np.ndarray, output: int) -> None:
        self.kappa, self.output = kappa, output

    def __len__(self) -> int:
        return len(self.kappa)

    def _take(self, index: np.ndarray) -> _CircularMarginal:
        return type(self)(self.kappa[index], self.output)

    def _cdf(self, z: np.ndarray) -> np.ndarray:
        free = np.full(z.shape, np.inf)
        pair = (z, free) if self.output == 0 else (free, z)
        return _in_blocks(_circular_cdf, 8 * _SEGMENTS * _SEGMENT_NODES, *_with_kappa(self.kappa, *pair))

    def _icdf(self, q: np.ndarray) -> np.ndarray:
        kappa1, kappa2, level = _with_kappa(self.kappa, q)
        flat = type(self)(np.column_stack([kappa1.ravel(), kappa2.ravel()]), self.output)

        def cdf_and_pdf(z: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            part = flat._take(rows)
            return part._cdf(z[:, None])[:, 0], np.exp(part._logpdf(z[:, None])[:, 0])

        ends = np.full(level.size, -1.0), np.full(level.size, 1.0)
        return _solve(cdf_and_pdf, level.ravel(), *ends).reshape(q.shape)

    def _logpdf(self, z: np.ndarray) -> np.ndarray:
        return _in_blocks(partial(_circular_marginal_logpdf, self.output), 8 * 256, *_with_kappa(self.kappa, z))

    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        joint = CircularAverage(self.kappa)
        return joint.mean()[:, self.output], joint.covariance()[:, self.output, self.output]

    def _support(self) -> Support:
        return Support(np.full(len(self), -1.0), np.full(len(self), 1.0))


class _CircularConditional(PredictiveDistribution):
    """One output of `CircularAverage` when the other is known; the cosine series of each row is kept."""

    def __init__(self, kappa: np.ndarray, output: int, given: np.ndarray) -> None:
        self.kappa, self.output, self.given = kappa, output, given
        self.bound = np.sqrt((1.0 - given) * (1.0 + given))
        self.period = 2 * special.ellipkm1(given**2)
        modes = _modes(self.period)
        middle = (np.arange(modes) + 0.5) / modes
        h = np.exp(_circular_log_h(output, kappa[:, :1], kappa[:, 1:], given[:, None], middle * self.period[:, None]))
        self.series = h @ np.cos(np.pi * np.outer(middle, np.arange(modes))) * (2.0 / modes)
        self.series[:, 0] *= 0.5

    def __len__(self) -> int:
        return len(self.given)

    def _take(self, index: np.ndarray) -> _CircularConditional:
        return type(self)(self.kappa[index], self.output, self.given[index])

    def _cdf(self, z: np.ndarray) -> np.ndarray:
        y = np.clip(z / self.bound[:, None], -1.0, 1.0)
        # the incomplete elliptic integral in Carlson's form keeps its digits when the given output is near 0
        w = np.sqrt((1.0 - y) * (1.0 + y))
        w *= special.elliprf(y * y, y * y + (self.given**2)[:, None] * (1.0 - y) * (1.0 + y), 1.0)
        w = np.where(y < 0, self.period[:, None] - w, w)
        return np.clip(self._above(w / self.period[:, None]), 0.0, 1.0)

    def _above(self, v: np.ndarray) -> np.ndarray:
        """Share of the probability at w beyond v periods, that is at outcomes below b cn(w)."""
        ratio = self.series / self.series[:, :1]
        out = 1.0 - v
        for j in range(1, self.series.shape[1]):
            out -= ratio[:, j : j + 1] * np.sin(np.pi * j * v) / (np.pi * j)
        return out

    def _icdf(self, q: np.ndarray) -> np.ndarray:
        rows = np.repeat(np.arange(len(self)), q.shape[1])
        ratio = self.series / self.series[:, :1]
        j = np.arange(1, self.series.shape[1])

        def share_and_slope(v: np.ndarray, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            angle, r = np.pi * np.outer(v, j), ratio[rows[index], 1:]
            return v + (r * np.sin(angle) / (np.pi * j)).sum(1), 1.0 + (r * np.cos(angle)).sum(1)

        v = _solve(share_and_slope, 1.0 - q.ravel(), np.zeros(q.size), np.ones(q.size)).reshape(q.shape)
        return self.bound[:, None] * np.cos(_amplitude(v * self.period[:, None], self.given[:, None]))

    def _logpdf(self, z: np.ndarray) -> np.ndarray:
        pair = (z, self.given[:, None]) if self.output == 0 else (self.given[:, None], z)
        joint = CircularAverage(self.kappa)._logpdf(*np.broadcast_arrays(*pair))
        total = np.log(self.series[:, 0] * self.period) - _log_norm(self.kappa[:, 0], self.kappa[:, 1])
        return joint - total[:, None]

    def _support(self) -> Support:
        return Support(-self.bound, self.bound.copy())


def _log_norm(kappa1: np.ndarray, kappa2: np.ndarray) -> np.ndarray:
    """Logarithm of pi^2 I0(kappa_1) I0(kappa_2)."""
    return 2 * np.log(np.pi) + sum(np.log(special.ive(0, k)) + k for k in (kappa1, kappa2))


def _circular_log_h(
    output: int, kappa1: np.ndarray, kappa2: np.ndarray, given: np.ndarray, w: np.ndarray
) -> np.ndarray:
    """The smooth factor of the density along one output, the other given, at the elliptic coordinate w."""
    b2 = (1.0 - given) * (1.0 + given)
    angle = _amplitude(w, given)
    along, root = np.sqrt(b2) * np.cos(angle), np.sqrt(b2) * np.sin(angle)
    y1, y2 = (along, given) if output == 0 else (given, along)
    t = np.abs((kappa1 - kappa2) * y2 * root / np.hypot(along, given))
    return (kappa1 + kappa2) * y1 + t + np.log1p(np.exp(-2 * t)) - np.log(2.0)


def _amplitude(w: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Jacobi's amplitude am(w | 1 - given^2), by arithmetic-geometric means from the complement itself."""
    a, b = np.ones_like(given), np.abs(given)
    ratios = []
    while np.max((a - b) / a) > 1e-12:
        ratios.append((a - b) / (a + b))
        a, b = 0.5 * (a + b), np.sqrt(a * b)
    angle = 2.0 ** len(ratios) * a * w
    for ratio in reversed(ratios):
        angle = 0.5 * (angle + np.arcsin(ratio * np.sin(angle)))
    return angle


def _modes(period: np.ndarray) -> int:
    """Terms a cosine series over 2K needs: its coefficients fall like exp(-pi^2 j / 4K) or faster."""
    return int(32 + 6 * np.max(period))


def _circular_marginal_logpdf(output: int, kappa1: np.ndarray, kappa2: np.ndarray, z: np.ndarray) -> np.ndarray:
    inside, regular = np.abs(z) < 1, np.abs(z) > 1e-100
    c = np.where(inside & regular, z, 0.5)[..., None]
    period = 2 * special.ellipkm1(c * c)
    modes = _modes(period)
    w = period * (np.arange(modes) + 0.5) / modes
    log_h = _circular_log_h(1 - output, kappa1[..., None], kappa2[..., None], c, w)
    value = special.logsumexp(log_h, axis=-1) + np.log(period[..., 0] / modes) - _log_norm(kappa1, kappa2)
    return np.where(inside & regular, value, np.where(inside, np.inf, -np.inf))


def _circular_cdf(kappa1: np.ndarray, kappa2: np.ndarray, z1: np.ndarray, z2: np.ndarray) -> np.ndarray:
    """P(cos psi_1 + cos psi_2 <= 2 z_1, sin psi_1 + sin psi_2 <= 2 z_2) of flat arrays."""
    z1, z2 = np.clip(z1, -1.0, 1.0), np.clip(z2, -1.0, 1.0)
    ends = np.sort(_arc_changes(z1, z2), axis=1)
    width = np.diff(ends, axis=1)[:, :, None]
    u, weight = _smooth_rule()
    psi = ends[:, :-1, None] + width * u
    c = np.arccos(np.clip(2 * z1[:, None, None] - np.cos(psi), -1.0, 1.0))
    s = np.arcsin(np.clip(2 * z2[:, None, None] - np.sin(psi), -1.0, 1.0))
    # P(cos psi_2 <= cos c, sin psi_2 <= sin s): all but the arcs (-c, c) and (s, pi - s), overlap only once
    k2 = kappa2[:, None, None]
    right, low, high = (stats.vonmises.cdf(a, k2) for a in (c, s, np.pi - s))
    left = 1.0 - right
    overlap = np.maximum(np.minimum(right, high) - np.maximum(left, low), 0.0)
    overlap += np.maximum(np.minimum(1.0 + right, high) - np.maximum(1.0 + left, low), 0.0)
    inner = 1.0 - (right - left) - (high - low) + overlap
    k1 = kappa1[:, None, None]
    density = np.exp(k1 * (np.cos(psi) - 1.0)) / (2 * np.pi * special.ive(0, k1))
    return np.clip((width * density * inner * weight).sum(axis=(1, 2)), 0.0, 1.0)


def _arc_changes(z1: np.ndarray, z2: np.ndarray) -> np.ndarray:
    """Angles psi_1 in [-pi, pi] where the arc allowed to psi_2 starts, ends, or touches another: (m, 15).

    The quarters of the circle are among them, for an arc that only just starts or ends does so there.
    """

    def real_or_end(angle: np.ndarray, real: np.ndarray) -> np.ndarray:
        return np.where(real, (angle + np.pi) % (2 * np.pi) - np.pi, np.pi)

    out: list[np.ndarray] = [np.full(z1.shape, quarter * _HALF_PI) for quarter in range(-2, 3)]
    for shift in (-1.0, 1.0):
        at = 2 * z1 + shift
        angle = np.arccos(np.clip(at, -1, 1))
        out += [real_or_end(a, np.abs(at) <= 1) for a in (angle, -angle)]
        at = 2 * z2 + shift
        angle = np.arcsin(np.clip(at, -1, 1))
        out += [real_or_end(a, np.abs(at) <= 1) for a in (angle, np.pi - angle)]
    R = np.hypot(z1, z2)
    angle, apart = np.arctan2(z2, z1), np.arccos(np.clip(R, 0, 1))
    out += [real_or_end(a, R <= 1) for a in (angle + apart, angle - apart)]
    return np.stack(out, axis=1)


def _smooth_rule() -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on (0, 1) that also integrate functions with square roots at the two ends."""
    x, w = np.polynomial.legendre.leggauss(_SEGMENT_NODES)
    angle = _HALF_PI * 0.5 * (x + 1.0)
    return np.sin(angle) ** 2, 0.5 * w * _HALF_PI * np.sin(2 * angle)


def _solve(
    value_and_slope: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
    target: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
) -> np.ndarray:
    """Where increasing functions reach their targets: Newton, or bisection if that leaves the bracket."""
    x = 0.5 * (low + high)
    open_ = np.flatnonzero((target > 0) & (target < 1))
    x = np.where(target <= 0, low, np.where(target >= 1, high, x))
    for _ in range(100):
        if not len(open_):
            break
        value, slope = value_and_slope(x[open_], open_)
        off = value - target[open_]
        wrong = np.abs(off) > 1e-15
        value, slope, off, open_ = value[wrong], slope[wrong], off[wrong], open_[wrong]
        low[open_] = np.where(off < 0, x[open_], low[open_])
        high[open_] = np.where(off > 0, x[open_], high[open_])
        with np.errstate(divide="ignore", invalid="ignore"):
            new = x[open_] - off / slope
        middle = 0.5 * (low[open_] + high[open_])
        new = np.where((new > low[open_]) & (new < high[open_]) & np.isfinite(new), new, middle)
        step = np.abs(new - x[open_])
        x[open_] = new
        open_ = open_[step > 1e-14]
    return x


def _with_kappa(kappa: np.ndarray, *values: np.ndarray) -> list[np.ndarray]:
    return list(np.broadcast_arrays(kappa[:, :1], kappa[:, 1:], *values))


def _in_blocks(function: Callable[..., np.ndarray], floats_each: int, *arrays: np.ndarray) -> np.ndarray:
    """Apply a function of flat arrays in blocks that stay inside the byte budget."""
    flat = [a.ravel() for a in arrays]
    out = np.empty(flat[0].size)
    step = max(1, BYTE_BUDGET // (8 * floats_each))
    for start in range(0, len(out), step):
        out[start : start + step] = function(*(a[start : start + step] for a in flat))
    return out.reshape(arrays[0].shape)
