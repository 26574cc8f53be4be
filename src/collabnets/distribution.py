"""What a fitted model returns: one distribution a row, and every verb lives on it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, log_expit, logit

from collabnets import inversion
from collabnets.inversion import Knots
from collabnets.networks import QueryNetwork, respond_rows

# Working memory that one step of a prediction may take, results not counted.
BYTE_BUDGET = 64 * 2**20
# How many such steps run at once.
WORKERS = 4


class Support(NamedTuple):
    """Where the distributions live.

    Attributes
    ----------
    lower, upper
        Ends of the support, one a row; infinite where there is no end.
    """

    lower: np.ndarray
    upper: np.ndarray


class Unavailable(ValueError):
    """A method's distribution does not have what was asked for; the message says what it has."""


class PredictiveDistribution(ABC):
    """One predictive distribution a row; the verbs are those of SciPy's distributions.

    Shapes go by dimension, never by length: a scalar argument gives ``(n,)``, a vector ``(T,)`` gives ``(n, T)``
    and a matrix ``(n, T)`` is read row by row. To evaluate each row at its own point, pass ``y[:, None]``.

    To implement one, write ``__len__``, ``_take``, ``_cdf``, ``_icdf`` and ``_logpdf``; the last three get a float64
    matrix ``(n, T)`` (maybe a read-only broadcast view) and return one of that shape. ``_icdf`` gets levels in
    [0, 1]. Override ``_ccdf`` where the upper tail can be had without cancellation, ``_moments`` where a closed form
    exists and ``_support`` where the distributions have ends.
    """

    # ---------------------------------------------------------------- to implement

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _take(self, index: np.ndarray) -> PredictiveDistribution:
        """Give the distributions of the rows in an integer array."""

    @abstractmethod
    def _cdf(self, z: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _icdf(self, q: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _logpdf(self, z: np.ndarray) -> np.ndarray: ...

    # ---------------------------------------------------------------- with defaults

    def _ccdf(self, z: np.ndarray) -> np.ndarray:
        return 1.0 - self._cdf(z)

    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance by the integral of the quantile function, tails resolved to 1e-9."""
        u, w = _quantile_rule()
        mean, variance = np.empty(len(self)), np.empty(len(self))
        for rows in self._chunks(len(u)):
            y = self[rows]._icdf(np.broadcast_to(u, (rows.stop - rows.start, len(u))))
            mean[rows] = y @ w
            variance[rows] = ((y - mean[rows, None]) ** 2) @ w
        return mean, variance

    def _support(self) -> Support:
        return Support(np.full(len(self), -np.inf), np.full(len(self), np.inf))

    # ---------------------------------------------------------------- the public face

    def cdf(self, z: ArrayLike, upper: ArrayLike | None = None) -> np.ndarray:
        """P(Y <= z), or with a second argument P(z < Y <= upper)."""
        if upper is None:
            return self._apply(self._cdf, z)
        low, high = np.broadcast_arrays(np.asarray(z, float), np.asarray(upper, float))
        if np.isnan(high).any():
            raise ValueError("the points or levels contain NaN; drop or fill them first.")
        if np.any(low > high):
            raise ValueError("cdf(a, b) is P(a < Y <= b) and needs a <= b; swap the two ends.")

        def between(_: np.ndarray) -> np.ndarray:
            a, b = _matrix(low, len(self)), _matrix(high, len(self))
            below = self._cdf(b) - self._cdf(a)
            above = self._ccdf(a) - self._ccdf(b)
            # the difference of the smaller pair keeps its digits in either tail
            return np.maximum(np.where(self._cdf(a) > 0.5, above, below), 0.0)

        return self._apply(between, low)

    def ccdf(self, z: ArrayLike) -> np.ndarray:
        """P(Y > z)."""
        return self._apply(self._ccdf, z)

    def icdf(self, q: ArrayLike) -> np.ndarray:
        """Quantiles: the y with P(Y <= y) = q."""
        check_levels(q)
        return self._apply(self._icdf, q)

    def pdf(self, z: ArrayLike) -> np.ndarray:
        """Density, the derivative of the cdf."""
        return np.exp(self.logpdf(z))

    def logpdf(self, z: ArrayLike) -> np.ndarray:
        """Logarithm of the density."""
        return self._apply(self._logpdf, z)

    def mean(self) -> np.ndarray:
        """Mean of each row's distribution, shape (n,)."""
        return self._moments()[0]

    def variance(self) -> np.ndarray:
        """Variance of each row's distribution, shape (n,)."""
        return self._moments()[1]

    def standard_deviation(self) -> np.ndarray:
        """Square root of the variance, shape (n,)."""
        return np.sqrt(self.variance())

    def median(self) -> np.ndarray:
        """Median of each row's distribution, shape (n,)."""
        return self.icdf(0.5)

    def interval(self, coverage: ArrayLike = 0.9) -> np.ndarray:
        """Equal-tailed intervals: (n, 2) for one coverage, (n, 2, L) for several; nested by construction."""
        c = np.asarray(coverage, float)
        check_levels(c, "coverage")
        if c.ndim > 1:
            raise ValueError(f"coverage is a number or a vector of numbers, not an array of shape {c.shape}.")
        tail = (1.0 - np.atleast_1d(c)) / 2.0
        ends = self.icdf(np.concatenate([tail, 1.0 - tail])).reshape(len(self), 2, len(tail))
        return ends if c.ndim else ends[:, :, 0]

    def sample(self, size: int = 1, *, rng: int | np.random.Generator | None = 0) -> np.ndarray:
        """Draw ``size`` independent values a row, shape (size, n); the same rng seed gives the same draws."""
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 0:
            raise ValueError(f"size is the number of draws a row, a whole number >= 0, not {size!r}.")
        u = np.random.default_rng(rng).random((size, len(self)))
        return np.ascontiguousarray(self._icdf(np.clip(u, 1e-16, None).T).T) if size else u

    def support(self) -> Support:
        """Ends of each row's support."""
        return self._support()

    def __getitem__(self, index: int | slice | np.ndarray | list) -> PredictiveDistribution:
        rows = np.arange(len(self))[index]
        return self._take(np.atleast_1d(rows))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} rows)"

    # ---------------------------------------------------------------- helpers

    def _apply(self, function, value: ArrayLike) -> np.ndarray:
        a = np.asarray(value)
        if a.dtype.kind not in "biuf":
            raise ValueError(f"expected numbers, got an array of dtype {a.dtype}.")
        if np.isnan(a.astype(float)).any():
            raise ValueError("the points or levels contain NaN; drop or fill them first.")
        out = function(_matrix(a, len(self)))
        return out[:, 0] if a.ndim == 0 else out

    def _chunks(self, width: int):
        """Slices of rows such that a float64 matrix of ``width`` columns stays well inside the byte budget."""
        step = max(1, BYTE_BUDGET // (8 * 8 * max(width, 1)))
        for start in range(0, len(self), step):
            yield slice(start, min(start + step, len(self)))


def check_levels(q: ArrayLike, name: str = "level") -> None:
    """Raise unless every level lies in [0, 1]."""
    a = np.asarray(q)
    if a.dtype.kind not in "biuf":
        raise ValueError(f"a {name} is a number between 0 and 1, got an array of dtype {a.dtype}.")
    if a.size and not (np.all(a >= 0) and np.all(a <= 1)):
        bad = a[~((a >= 0) & (a <= 1))].flat[0]
        raise ValueError(f"a {name} lies between 0 and 1, got {bad}; write 90 % as 0.9.")


def _matrix(a: np.ndarray, n: int) -> np.ndarray:
    """Read a scalar, a vector (T,) or a matrix (n, T) as a float64 matrix (n, T), without a copy where it can."""
    a = np.asarray(a, dtype=float)
    if a.ndim > 2:
        raise ValueError(f"points or levels are a scalar, a vector or a matrix, not an array of shape {a.shape}.")
    if a.ndim == 2:
        if a.shape[0] != n:
            raise ValueError(
                f"a matrix of points is read row by row and needs {n} rows, one a distribution; got shape {a.shape}."
            )
        return a
    return np.broadcast_to(a.reshape(1, -1), (n, a.size))


def _quantile_rule() -> tuple[np.ndarray, np.ndarray]:
    """Nodes u and weights w with sum w h(u) ~ the integral of h over (0, 1): Gauss-Legendre in logit(u)."""
    x, w = np.polynomial.legendre.leggauss(200)
    half = 21.0  # logit(1e-9) ~ -20.7
    u = 1.0 / (1.0 + np.exp(-half * x))
    weight = half * w * u * (1.0 - u)
    return u, weight / weight.sum()


class SplineDistribution(PredictiveDistribution):
    """Distributions given by knots, in units of (y - loc) / scale."""

    def __init__(self, knots: Knots, loc: float, scale: float) -> None:
        self.knots, self.loc, self.scale = knots, loc, scale

    def __len__(self) -> int:
        return len(self.knots.z)

    def _take(self, index: np.ndarray) -> SplineDistribution:
        return type(self)(self.knots.take(index), self.loc, self.scale)

    def _cdf(self, z: np.ndarray) -> np.ndarray:
        return expit(inversion.evaluate_logit(self.knots, (z - self.loc) / self.scale)[0])

    def _ccdf(self, z: np.ndarray) -> np.ndarray:
        return expit(-inversion.evaluate_logit(self.knots, (z - self.loc) / self.scale)[0])

    def _icdf(self, q: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return self.loc + self.scale * inversion.invert_logit(self.knots, logit(q))

    def _logpdf(self, z: np.ndarray) -> np.ndarray:
        at, slope = inversion.evaluate_logit(self.knots, (z - self.loc) / self.scale)
        return log_expit(at) + log_expit(-at) + np.log(slope) - np.log(self.scale)

    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = inversion.moments(self.knots)
        return self.loc + self.scale * mean, self.scale**2 * variance


class Source(NamedTuple):
    """Where the splines of a fitted model come from.

    Attributes
    ----------
    g, f
        The networks, stacked over members.
    from_f
        Whether the distribution is that of f (CN-f) or of g.
    start
        Points that cover the searched range of g, in units of (y - loc) / scale.
    loc, scale
        Location and scale of the outcome.
    """

    g: QueryNetwork
    f: QueryNetwork
    from_f: bool
    start: np.ndarray
    loc: float
    scale: float


class NetworkDistribution(PredictiveDistribution):
    """What Collaborating Networks predict: each row's spline is made when it is asked for, and kept if there is room.

    Everything it says comes from that one spline. Beyond the face of all distributions it has two diagnostics:
    ``correction()`` and ``round_trip_error(q)``.
    """

    def __init__(self, source: Source, features: np.ndarray, knots: Knots | None = None) -> None:
        self.source, self.features = source, features
        self._knots = knots

    def __len__(self) -> int:
        return len(self.features)

    def _take(self, index: np.ndarray) -> NetworkDistribution:
        knots = None if self._knots is None else self._knots.take(index)
        return type(self)(self.source, self.features[index], knots)

    def correction(self) -> np.ndarray:
        """How much the networks' own answer was changed to make it a distribution, in probability, (n,).

        The largest |CDF - g| over the knots of a row (for CN-f |CDF(f(q)) - q|): 0 where g already increases.
        """
        return self._each(lambda part, _: part.knots.correction, (len(self),))

    def round_trip_error(self, q: ArrayLike = 0.5) -> np.ndarray:
        """|g(f(q, x), x) - q|: how far the two networks are from being inverses, (n,) or (n, T).

        Large values mark rows where they have not agreed. Members of an ensemble are averaged.
        """
        check_levels(q)
        return self._apply(lambda levels: _by_blocks(_round_trip, self.source, self.features, levels)[0], q)

    def _cdf(self, z: np.ndarray) -> np.ndarray:
        return self._each(lambda part, rows: part._cdf(z[rows]), z.shape)

    def _ccdf(self, z: np.ndarray) -> np.ndarray:
        return self._each(lambda part, rows: part._ccdf(z[rows]), z.shape)

    def _icdf(self, q: np.ndarray) -> np.ndarray:
        return self._each(lambda part, rows: part._icdf(q[rows]), q.shape)

    def _logpdf(self, z: np.ndarray) -> np.ndarray:
        return self._each(lambda part, rows: part._logpdf(z[rows]), z.shape)

    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        both = self._each(lambda part, _: np.stack(part._moments(), 1), (len(self), 2))
        return both[:, 0], both[:, 1]

    def _each(self, answer: Callable[[SplineDistribution, slice], np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
        """Collect ``answer(spline, rows)`` over pieces of the rows that fit the byte budget."""
        out = np.empty(shape)
        width = max(int(np.prod(shape[1:])), 4 * inversion.N_KNOTS)
        if self._knots is None and 8 * 3 * inversion.N_KNOTS * len(self) <= BYTE_BUDGET:
            parts = self._in_pieces(self._make_knots, 4 * inversion.N_KNOTS)
            self._knots = Knots(*map(np.concatenate, zip(*parts, strict=True)))

        def fill(rows: slice) -> None:
            knots = self._make_knots(rows) if self._knots is None else self._knots.take(rows)
            out[rows] = answer(SplineDistribution(knots, self.source.loc, self.source.scale), rows)

        self._in_pieces(fill, width)
        return out

    def _in_pieces(self, function: Callable[[slice], Any], width: int) -> list[Any]:
        """What a function gives for pieces of the rows, a float64 matrix of ``width`` columns for each at a time."""
        first, *others = list(self._chunks(width)) or [slice(0, 0)]
        found = [function(first)]  # compiles, once
        if others:
            with ThreadPoolExecutor(min(WORKERS, os.cpu_count() or 1)) as pool:
                found += pool.map(function, others)
        return found

    def _make_knots(self, rows: slice) -> Knots:
        features = self.features[rows]
        if self.source.from_f:
            q = expit(np.linspace(-7.6, 7.6, 129)).astype(np.float32).astype(float)
            z, slope = _by_blocks(_quantiles, self.source, features, np.broadcast_to(q, (len(features), len(q))))
            parts = [inversion.knots_from_quantiles(q, a, b) for a, b in zip(z, slope, strict=True)]
            return parts[0] if len(parts) == 1 else inversion.average(parts)

        def evaluate(rows: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            logits, slopes = _by_blocks(_logits, self.source, features[rows], z)
            return logits, slopes

        return inversion.adaptive_knots(evaluate, self.source.start, len(features))


# Rows go through the networks in blocks of one shape, so that nothing is compiled twice and a row's answer does not
# depend, not even in the last bit, on the rows around it.
BLOCK_ROWS = 32
MANY_BLOCKS = 32


def _by_blocks(kernel, source: Source, features: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, ...]:
    """Run ``kernel(source networks, x, points)`` over blocks of rows; float64, with rows on the last axis but one."""
    n, start, parts = len(features), 0, []
    while start < n:
        blocks = MANY_BLOCKS if n - start >= BLOCK_ROWS * MANY_BLOCKS // 2 else 1
        stop = min(start + blocks * BLOCK_ROWS, n)
        shape, pad = (blocks, BLOCK_ROWS), ((0, blocks * BLOCK_ROWS - (stop - start)), (0, 0))
        x, at = (np.pad(np.asarray(a[start:stop], np.float32), pad).reshape(*shape, -1) for a in (features, points))
        parts.append((kernel(source.g, source.f, x, at), stop - start))
        start = stop
    if not parts:
        nothing = (np.zeros((1, BLOCK_ROWS, a.shape[1]), np.float32) for a in (features, points))
        parts = [(kernel(source.g, source.f, *nothing), 0)]

    def joined(k: int) -> np.ndarray:
        pieces = [np.asarray(out[k], float) for out, _ in parts]
        flat = [a.reshape(*a.shape[:-3], -1, a.shape[-1])[..., :m, :] for a, (_, m) in zip(pieces, parts, strict=True)]
        return np.concatenate(flat, axis=-2)

    return tuple(joined(k) for k in range(len(parts[0][0])))


def _with_slope(net: QueryNetwork, x, at):
    """Answers (rows, T) of one member and their derivatives by the query."""
    return jax.jvp(lambda s: respond_rows(net, s, x)[0], (at,), (jnp.ones_like(at),))


@eqx.filter_jit
def _logits(g: QueryNetwork, f: QueryNetwork, x, z):
    """Logit of the members' mean CDF and its slope, (blocks, rows, T) each."""

    def block(arrays):
        logits, slopes = eqx.filter_vmap(lambda net: _with_slope(net, *arrays))(g)
        return inversion.average_logits(logits, slopes, xp=jnp)

    return jax.lax.map(block, (x, z))


@eqx.filter_jit
def _quantiles(g: QueryNetwork, f: QueryNetwork, x, q):
    """Every member's f and its slope, (members, blocks, rows, T) each."""
    out = jax.lax.map(lambda arrays: eqx.filter_vmap(lambda net: _with_slope(net, *arrays))(f), (x, q))
    return tuple(jnp.swapaxes(a, 0, 1) for a in out)


@eqx.filter_jit
def _round_trip(g: QueryNetwork, f: QueryNetwork, x, q):
    def block(arrays):
        x, q = arrays

        def member(g: QueryNetwork, f: QueryNetwork):
            z, _ = respond_rows(f, q, x)
            return jnp.abs(jax.nn.sigmoid(respond_rows(g, z, x)[0]) - q)

        return eqx.filter_vmap(member)(g, f).mean(0)

    return (jax.lax.map(block, (x, q)),)


class ScipyDistribution(PredictiveDistribution):
    """Any continuous family of ``scipy.stats`` with one set of parameters a row.

    Parameters
    ----------
    family
        A continuous distribution of ``scipy.stats``, say ``scipy.stats.norm``.
    **parameters
        Its parameters by name, each a scalar or a vector (n,): ``loc=mu, scale=sigma``.
    """

    def __init__(self, family, **parameters: ArrayLike) -> None:
        self.family = family
        names = list(parameters)
        values = np.broadcast_arrays(*(np.atleast_1d(np.asarray(parameters[k], float)) for k in names))
        if values[0].ndim != 1:
            raise ValueError("each parameter is a scalar or a vector with one value a row.")
        self.parameters = {k: np.array(v) for k, v in zip(names, values, strict=True)}

    def __len__(self) -> int:
        return len(next(iter(self.parameters.values())))

    def _take(self, index: np.ndarray) -> ScipyDistribution:
        return type(self)(self.family, **{k: v[index] for k, v in self.parameters.items()})

    def _call(self, verb: str, at: np.ndarray) -> np.ndarray:
        return getattr(self.family, verb)(at, **{k: v[:, None] for k, v in self.parameters.items()})

    def _cdf(self, z: np.ndarray) -> np.ndarray:
        return self._call("cdf", z)

    def _ccdf(self, z: np.ndarray) -> np.ndarray:
        return self._call("sf", z)

    def _icdf(self, q: np.ndarray) -> np.ndarray:
        return self._call("ppf", q)

    def _logpdf(self, z: np.ndarray) -> np.ndarray:
        return self._call("logpdf", z)

    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = self.family.stats(**self.parameters, moments="mv")
        return np.asarray(mean), np.asarray(variance)

    def _support(self) -> Support:
        return Support(*(np.broadcast_to(end, len(self)) for end in self.family.support(**self.parameters)))


class PointMass(PredictiveDistribution):
    """All probability on one value a row: the answer for an outcome that never varied."""

    def __init__(self, value: np.ndarray) -> None:
        self.value = np.asarray(value, float)

    def __len__(self) -> int:
        return len(self.value)

    def _take(self, index: np.ndarray) -> PointMass:
        return type(self)(self.value[index])

    def _cdf(self, z: np.ndarray) -> np.ndarray:
        return (z >= self.value[:, None]).astype(float)

    def _icdf(self, q: np.ndarray) -> np.ndarray:
        return np.broadcast_to(self.value[:, None], q.shape).copy()

    def _logpdf(self, z: np.ndarray) -> np.ndarray:
        return np.where(z == self.value[:, None], np.inf, -np.inf)

    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        return self.value.copy(), np.zeros(len(self))

    def _support(self) -> Support:
        return Support(self.value.copy(), self.value.copy())
