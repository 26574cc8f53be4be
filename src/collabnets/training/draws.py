"""What an iteration draws, from the seed and its number alone: the rows of its batch and uniform numbers."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.extend.random import threefry_2x32
from jaxtyping import Array, Float, Int

from collabnets.networks import AnyArray

ROUNDS = 6  # of the shuffling cipher


def batch_rows(key: AnyArray, iteration: Int[Array, " C"], n: Int[AnyArray, ""], batch_size: int) -> Int[Array, "C B"]:
    """Positions in 0..n-1 of the mini-batches of some iterations: each epoch is a new shuffle, cut into batches.

    The shuffle is a keyed permutation evaluated only where it is needed (a Feistel cipher on the smallest even number
    of bits that holds n, walked until it falls below n), so a batch costs the same for any n and nothing is stored.
    The n mod batch_size rows at the end of a shuffle wait for the next one.
    """
    per_epoch = n // batch_size
    epoch, slot = iteration // per_epoch, iteration % per_epoch
    position = (slot[:, None] * batch_size + jnp.arange(batch_size)[None, :]).astype(jnp.uint32)
    seeds = mix(key[0] ^ mix(key[1] ^ epoch.astype(jnp.uint32)))
    round_keys = mix(seeds[:, None] + jnp.arange(1, ROUNDS + 1, dtype=jnp.uint32)[None, :] * jnp.uint32(0x9E3779B9))
    half = (33 - jax.lax.clz(jnp.maximum(n - 1, 1)).astype(jnp.uint32)) // 2
    mask = (jnp.uint32(1) << half) - 1

    limit = n.astype(jnp.uint32)

    def encipher(v: Array) -> Array:
        def feistel_round(i, halves):
            left, right = halves
            return right, left ^ (mix(right ^ round_keys[:, i, None]) & mask)

        left, right = jax.lax.fori_loop(0, ROUNDS, feistel_round, (v >> half, v & mask))
        return (left << half) | right

    def walk(carry):
        v, outside = carry
        v = jnp.where(outside, encipher(v), v)
        return v, v >= limit

    walked, _ = jax.lax.while_loop(lambda carry: jnp.any(carry[1]), walk, (position, position >= 0))
    return walked.astype(jnp.int32)


def uniform(key: AnyArray, iteration: Int[Array, " C"], shape: tuple[int, ...]) -> Float[Array, "C ..."]:
    """Uniform draws in (0, 1) of some iterations: Threefry on (iteration, position), whatever the other iterations."""
    size = math.prod(shape)
    high = jnp.repeat(iteration.astype(jnp.uint32), size)
    low = jnp.tile(jnp.arange(size, dtype=jnp.uint32), len(iteration))
    bits = threefry_2x32(key, jnp.concatenate([high, low]))[: len(high)]
    return ((bits >> 9).astype(jnp.float32) + 0.5).reshape(len(iteration), *shape) * jnp.float32(2.0**-23)


def mix(h: Array) -> Array:
    """The finaliser of MurmurHash3: every bit of the input changes every bit of the output."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = (h ^ (h >> shift)) * jnp.uint32(factor)
    return h ^ (h >> 16)
