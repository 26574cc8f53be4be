"""The losses of the paper, elementwise and in logits; the caller reduces.

Notation is the paper's: ``logit`` is sigma^{-1}(g(z, x)), ``below`` says whether y < z, and q is a level in (0, 1).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def g_loss(logit: Float[Array, "*n"], below: Bool[Array, "*n"]) -> Float[Array, "*n"]:
    """Binary cross-entropy l(1[y < z], g(z, x)).

    With z = f(q, x) it is the g-loss, Eq. (gloss) of the paper; with z ~ p(Z) the pre-training loss, Eq. (pre_loss).
    Finite, with finite gradients, for any finite logit: log(1 + exp(-l)) where y < z and log(1 + exp(l)) elsewhere.
    """
    return jax.nn.softplus(jnp.where(below, -logit, logit))


def f_loss(logit: Float[Array, "*n"], q: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Squared distance (q - g(f(q, x), x))^2, Eq. (floss), from the logit of g at f(q, x).

    The same expression, minimised over g with weight lambda, is the consistency term ``ext`` of the second lemma of
    Appendix B.
    """
    return (q - jax.nn.sigmoid(logit)) ** 2


def pinball_loss(z: Float[Array, "*n"], y: Float[Array, "*n"], q: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Quantile loss of z as the q-quantile of y; by it f is judged on held-out rows."""
    return jnp.where(y < z, (1.0 - q) * (z - y), q * (y - z))
