"""Figures 2 and 3 as the paper's authors trained them, to see where their order of the variants comes from.

Their notebooks of Section 5.2 use other networks than `settings.PAPER` has: ordinary batch normalisation in
training mode, before each activation and on the logit of g; PyTorch's start; cos 4 pi x in place of sin 4 pi x; steps
of f, g, f on a batch, each with draws of its own; in Figure 3 cos 4 pi x as the feature. The logit of T-g and of CN
gets the moments of logit(q); that of U-g a learnt scale and shift, the ordinary kind. Where the text has a uniform f,
the notebooks draw from a normal distribution (N-g here). This file is that recipe from its facts, independent of the
library, on several draws of the rows at once.

``python -m benchmarks.section_5_2 fig2`` takes four minutes on an NVIDIA H200 and hours on two cores, ``fig3`` half an
hour and more on 16 cores; ``--scale 0.01`` shows that they run.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from scipy import stats

jax.config.update("jax_default_matmul_precision", "float32")

QUARTILES = (0.25, 0.5, 0.75)
FACTOR = 3.29**0.5
GRID = np.linspace(-3, 4, 1401)  # of z, for quartiles from g
SIZES = (50, 100, 200, 400, 800, 1600)
EPOCHS_G, EPOCHS_CN = 20_000, 5_000  # Figure 3
ITERATIONS_G, ITERATIONS_CN = 70_000, (25_000, 45_000)  # Figure 2


class Recipe(NamedTuple):
    """What may be varied.

    Attributes
    ----------
    order
        Batch normalisation ``"pre"`` or ``"post"`` the activation.
    momentum
        Of the running moments that stand in for a batch's at prediction.
    start
        ``"torch"``, uniform weights and biases, or ``"normal"`` ones of variance 1 / fan-in and no biases.
    """

    order: str = "pre"
    momentum: float = 0.1
    start: str = "torch"


class Net(NamedTuple):
    """A network in training: parameters, running moments of its layers, Adam's moments, and the number of its steps."""

    layers: list[dict[str, Any]]
    running: list[tuple[Any, Any]]
    first: list[dict[str, Any]]
    second: list[dict[str, Any]]
    steps: Any


def start(recipe: Recipe, key, sizes: tuple[int, ...], logit: str) -> Net:
    layers = []
    for i, (a, b) in enumerate(pairwise(sizes)):
        k1, k2, key = random.split(key, 3)
        r = a**-0.5
        if recipe.start == "torch":
            layer = {
                "w": random.uniform(k1, (a, b), minval=-r, maxval=r),
                "b": random.uniform(k2, (b,), minval=-r, maxval=r),
            }
        else:
            layer = {"w": r * random.normal(k1, (a, b)), "b": jnp.zeros(b)}
        if i < len(sizes) - 2 or logit == "learnt":
            layer |= {"s": jnp.ones(b), "t": jnp.zeros(b)}
        layers.append(layer)
    zeros = jax.tree.map(jnp.zeros_like, layers)
    return Net(layers, [(jnp.zeros(b), jnp.ones(b)) for b in sizes[1:]], zeros, zeros, 0.0)


def normalised(recipe: Recipe, h, running, training: bool):
    if not training:
        return (h - running[0]) / jnp.sqrt(running[1] + 1e-5), running
    mean, var, n, m = h.mean(0), h.var(0), h.shape[0], recipe.momentum
    moved = ((1 - m) * running[0] + m * mean, (1 - m) * running[1] + m * var * n / (n - 1))
    return (h - mean) / jnp.sqrt(var + 1e-5), moved


def respond(recipe: Recipe, layers, running, query, x, logit: str, training: bool):
    """The network's answers and its running moments after them; ``logit`` is "matched", "learnt" or "plain"."""
    h, moved = jnp.concatenate([query, x], 1), []
    for i, (layer, moments) in enumerate(zip(layers, running, strict=True)):
        h = h @ layer["w"] + layer["b"]
        if i < len(layers) - 1:
            if recipe.order == "pre":
                h, moments = normalised(recipe, h, moments, training)
                h = jax.nn.elu(h * layer["s"] + layer["t"])
            else:
                h, moments = normalised(recipe, jax.nn.elu(h), moments, training)
                h = h * layer["s"] + layer["t"]
        elif logit == "matched":
            h, moments = normalised(recipe, h, moments, training)
            h = h * FACTOR
        elif logit == "learnt":
            h, moments = normalised(recipe, h, moments, training)
            h = h * layer["s"] + layer["t"]
        moved.append(moments)
    return h, moved


def adam(net: Net, gradient, running, step: float) -> Net:
    t = net.steps + 1
    first = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, net.first, gradient)
    second = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, net.second, gradient)
    layers = jax.tree.map(
        lambda p, m, v: p - step * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8),
        net.layers,
        first,
        second,
    )
    return Net(layers, running, first, second, t)


def g_step(recipe: Recipe, g: Net, z, x, y, step: float, logit: str) -> Net:
    def loss(layers):
        answers, running = respond(recipe, layers, g.running, z, x, logit, True)
        return jnp.mean(jax.nn.softplus(answers) - (y < z).astype(jnp.float32) * answers), running

    gradient, running = jax.grad(loss, has_aux=True)(g.layers)
    return adam(g, gradient, running, step)


def f_step(recipe: Recipe, f: Net, g: Net, q, x, step: float) -> tuple[Net, Net]:
    """A step of f; g answers in training mode, so that its running moments move too."""

    def loss(layers):
        z, of_f = respond(recipe, layers, f.running, q, x, "plain", True)
        answers, of_g = respond(recipe, g.layers, g.running, z, x, "matched", True)
        return jnp.mean((q - jax.nn.sigmoid(answers)) ** 2), (of_f, of_g)

    gradient, (of_f, of_g) = jax.grad(loss, has_aux=True)(f.layers)
    return adam(f, gradient, of_f, step), g._replace(running=of_g)


@partial(jax.jit, static_argnames=("recipe", "z_of", "n", "logit", "batch", "sizes", "step"))
def train_g(recipe: Recipe, keys, x, y, z_of: Callable, n: int, logit: str, batch: int | None, sizes, step: float):
    """g with a fixed f, ``z_of(key, rows)``, for each draw of the rows; no batch is all rows as they are."""

    def one(key, y):
        def body(g, key):
            xs, ys = x, y
            if batch is not None:
                shuffle, key = random.split(key)
                some = random.permutation(shuffle, len(x))[:batch]
                xs, ys = x[some], y[some]
            return g_step(recipe, g, z_of(key, xs), xs, ys, step, logit), None

        keys = random.split(random.fold_in(key, 1), n)
        return jax.lax.scan(body, start(recipe, key, sizes, logit), keys)[0]

    return jax.vmap(one)(keys, y)


@partial(jax.jit, static_argnames=("recipe", "n", "batch", "g_sizes", "f_sizes", "steps"))
def train_cn(recipe: Recipe, keys, x, y, n: tuple[int, int], batch: int | None, g_sizes, f_sizes, steps):
    """g and f for each draw of the rows: pre-training, then steps of f, g and f on each batch."""

    def one(key, y):
        def some(shuffle):
            return jnp.arange(len(x)) if batch is None else random.permutation(shuffle, len(x))[:batch]

        def pretrain(g, key):
            shuffle, key = (key, key) if batch is None else random.split(key)
            at = some(shuffle)
            z = random.uniform(key, (len(at), 1), minval=-2.5, maxval=3.5)
            return g_step(recipe, g, z, x[at], y[at], steps[0], "matched"), None

        def joint(pair, key):
            g, f = pair
            shuffle, a, b, c = (key, *random.split(key, 3)) if batch is None else random.split(key, 4)
            at = some(shuffle)
            xs, ys, shape = x[at], y[at], (len(at), 1)
            f, g = f_step(recipe, f, g, random.uniform(a, shape), xs, steps[1])
            z, running = respond(recipe, f.layers, f.running, random.uniform(b, shape), xs, "plain", True)
            f = f._replace(running=running)
            g = g_step(recipe, g, z, xs, ys, steps[0], "matched")
            f, g = f_step(recipe, f, g, random.uniform(c, shape), xs, steps[1])
            return (g, f), None

        g = start(recipe, key, g_sizes, "matched")
        f = start(recipe, random.fold_in(key, 2), f_sizes, "plain")
        g, _ = jax.lax.scan(pretrain, g, random.split(random.fold_in(key, 1), n[0]))
        return jax.lax.scan(joint, (g, f), random.split(random.fold_in(key, 3), n[1]))[0]

    return jax.vmap(one)(keys, y)


# ------------------------------------------------------------------------------------------------ what f is fixed at


def uniform(key, x):
    return random.uniform(key, (len(x), 1), minval=-2.5, maxval=3.5)


def normal_of_figure_2(key, x):
    return random.normal(key, (len(x), 1)) * 6 - 2.5


def normal_of_figure_3(key, x):
    return random.normal(key, (len(x), 1)) * 4.3 - 1.6


def truth_at_x(key, x):
    wave = jnp.cos(4 * jnp.pi * x)
    return wave + (0.2 + 0.3 * (wave + 1)) * random.normal(key, (len(x), 1))


def truth_at_wave(key, x):
    return x + (0.5 + 0.3 * x) * random.normal(key, (len(x), 1))


# ------------------------------------------------------------------------------------------------------- Figure 2


def figure_2(recipe: Recipe, draws: int, scale: float) -> None:
    n = 100
    x = np.linspace(-0.5, 0.5, n).reshape(-1, 1)
    wave = np.cos(4 * np.pi * x)
    deviation = 0.2 + 0.3 * (wave + 1)
    # the first draw is that of the notebooks
    y = np.stack([wave + deviation * stats.norm.ppf(np.random.RandomState(42 + d).rand(n, 1)) for d in range(draws)])
    X, Y = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)
    keys = random.split(random.key(0), draws)
    g_sizes, f_sizes = (2, 1000, 1000, 1), (2, 1000, 1000, 1000, 1)
    true = [wave + deviation * stats.norm.ppf(q) for q in QUARTILES]

    @partial(jax.jit, static_argnames="logit")
    def cdf(layers, running, logit):
        z = jnp.asarray(GRID, jnp.float32)[:, None]

        def row(x):
            return respond(recipe, layers, running, z, jnp.full_like(z, x), logit, False)[0][:, 0]

        return jax.nn.sigmoid(jax.lax.map(row, X[:, 0]))

    def quartiles_of_g(g: Net, logit: str) -> np.ndarray:
        out = np.empty((draws, n, 3))
        for d in range(draws):
            mine = jax.tree.map(lambda a, d=d: a[d], g)
            for i, row in enumerate(np.maximum.accumulate(cdf(mine.layers, mine.running, logit), axis=1)):
                out[d, i] = [GRID[min(np.searchsorted(row, q), len(GRID) - 1)] for q in QUARTILES]
        return out

    def quartiles_of_f(f: Net) -> np.ndarray:
        def one(f):
            ask = [jnp.full((n, 1), q) for q in QUARTILES]
            return jnp.concatenate([respond(recipe, f.layers, f.running, q, X, "plain", False)[0] for q in ask], 1)

        return np.asarray(jax.vmap(one)(f))

    def show(name: str, quartiles: np.ndarray, seconds: float) -> None:
        iqr = quartiles[:, :, 2] - quartiles[:, :, 0]
        error = np.median(np.abs(iqr - (true[2] - true[0])[:, 0]), axis=1)
        median = np.mean(np.abs(quartiles[:, :, 1] - wave[:, 0]), axis=1)
        print(f"{name:<24}{_mean(error)}{_mean(np.median(iqr, axis=1))}{_mean(median)}{seconds:>8.0f} s", flush=True)

    print(f"{'':<24}{'|IQR - true|':>20}{'IQR':>20}{'|median - true|':>20}")
    length = _length(scale)
    for name, z_of, logit in (
        ("T-g", truth_at_x, "matched"),
        ("U-g", uniform, "learnt"),
        ("U-g, plain logit", uniform, "plain"),
        ("N-g", normal_of_figure_2, "learnt"),
    ):
        begin = time.perf_counter()
        g = train_g(recipe, keys, X, Y, z_of, length(ITERATIONS_G), logit, None, g_sizes, 1e-5)
        jax.block_until_ready(g)
        show(name, quartiles_of_g(g, logit), time.perf_counter() - begin)
    begin = time.perf_counter()
    both = tuple(length(k) for k in ITERATIONS_CN)
    g, f = train_cn(recipe, keys, X, Y, both, None, g_sizes, f_sizes, (1e-5, 1e-5))
    jax.block_until_ready(g)
    show("CN-g", quartiles_of_g(g, "matched"), time.perf_counter() - begin)
    show("CN-f", quartiles_of_f(f), time.perf_counter() - begin)


# ------------------------------------------------------------------------------------------------------- Figure 3


def figure_3(recipe: Recipe, draws: int, scale: float, sizes: tuple[int, ...] = SIZES) -> None:
    def drawn(n: int, seed: int, equally_spaced: bool = True):
        rng = np.random.RandomState(seed)
        x = np.linspace(-0.5, 0.5, n) if equally_spaced else rng.rand(n) - 0.5
        wave = np.cos(4 * np.pi * x)
        return wave[:, None], (wave + (0.5 + 0.3 * wave) * stats.norm.ppf(rng.rand(n)))[:, None]

    x_test, y_test = drawn(5000, 7, equally_spaced=False)
    X_test = jnp.asarray(x_test, jnp.float32)
    edges = np.linspace(*np.quantile(y_test, [0.05, 0.95]), 9)
    bins = np.searchsorted(edges, y_test[:, 0])[None, :, None]

    def gof(cdf: np.ndarray) -> np.ndarray:
        """As the notebooks have it: what is no number, where a CDF falls, does not count."""
        whole = np.concatenate([np.zeros((*cdf.shape[:2], 1)), cdf, np.ones((*cdf.shape[:2], 1))], axis=2)
        p = np.take_along_axis(whole, bins + 1, 2) - np.take_along_axis(whole, bins, 2)
        with np.errstate(invalid="ignore"):
            return np.nanmean(np.log(p[:, :, 0] + 1e-10), axis=1)

    def cdf_of_g(g: Net, logit: str) -> np.ndarray:
        def one(g):
            ask = [jnp.full((len(x_test), 1), e) for e in edges]
            return jnp.concatenate([respond(recipe, g.layers, g.running, z, X_test, logit, False)[0] for z in ask], 1)

        return np.asarray(jax.nn.sigmoid(jax.vmap(one)(g)), float)

    def cdf_of_f(f: Net) -> np.ndarray:
        levels = np.linspace(0, 1, 1001)

        def one(f):
            def at(q):
                ask = jnp.full((len(x_test), 1), q)
                return respond(recipe, f.layers, f.running, ask, X_test, "plain", False)[0][:, 0]

            return jax.lax.map(at, jnp.asarray(levels, jnp.float32))

        z = np.maximum.accumulate(np.asarray(jax.vmap(one)(f)), axis=1)
        return np.array([[np.interp(edges, row, levels) for row in draw.T] for draw in z])

    truth = gof(stats.norm.cdf((edges[None] - x_test) / (0.5 + 0.3 * x_test))[None])[0]
    print(f"gof of the truth {truth:.4f}; of the others their distance to it")
    g_sizes, f_sizes, length = (2, 100, 80, 1), (2, 100, 80, 60, 1), _length(scale)
    for n in sizes:
        some = [drawn(n, 42 + d) for d in range(draws)]
        X = jnp.asarray(some[0][0], jnp.float32)
        Y = jnp.asarray(np.stack([y for _, y in some]), jnp.float32)
        keys = random.split(random.key(0), draws)
        line = [f"{n:>6}"]
        for name, z_of, logit, most in (
            ("T-g", truth_at_wave, "matched", 200),
            ("U-g", uniform, "learnt", 200),
            ("N-g", normal_of_figure_3, "learnt", 500),
        ):
            batch = min(most, n)
            count = length(EPOCHS_G * -(-n // batch))
            g = train_g(recipe, keys, X, Y, z_of, count, logit, batch, g_sizes, 1e-4)
            line.append(f"  {name}{_mean(gof(cdf_of_g(g, logit)) - truth)}")
        batch = min(200, n)
        count = length(EPOCHS_CN * -(-n // batch))
        g, f = train_cn(recipe, keys, X, Y, (count, count), batch, g_sizes, f_sizes, (1e-4, 5e-4))
        line.append(f"  CN-g{_mean(gof(cdf_of_g(g, 'matched')) - truth)}  CN-f{_mean(gof(cdf_of_f(f)) - truth)}")
        print("".join(line), flush=True)


def _length(scale: float) -> Callable[[int], int]:
    return lambda n: max(1, int(n * scale))


def _mean(values: np.ndarray) -> str:
    error = f" ± {values.std(ddof=1) / len(values) ** 0.5:.3f}" if len(values) > 1 else ""
    return f"{f'{values.mean():.3f}{error}':>20}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.section_5_2", description=__doc__.splitlines()[0])
    parser.add_argument("figure", choices=["fig2", "fig3"])
    parser.add_argument("--draws", type=int, default=5, help="draws of the rows")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the authors' iterations")
    parser.add_argument("--order", choices=["pre", "post"], default="pre", help="batch normalisation and activation")
    parser.add_argument("--momentum", type=float, default=0.1, help="of the running moments")
    parser.add_argument("--start", choices=["torch", "normal"], default="torch", help="of the weights")
    options = parser.parse_args()
    recipe = Recipe(options.order, options.momentum, options.start)
    (figure_2 if options.figure == "fig2" else figure_3)(recipe, options.draws, options.scale)


if __name__ == "__main__":
    main()
