"""The two networks: starts, normalisations, moment matching, encoders, and many queries at seen."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from variants import model, table

from collabnets import load_model
from collabnets.networks import (
    ACTIVATIONS,
    MomentMatching,
    MomentsOf,
    QueryNetwork,
    respond_rows,
    store_moments,
    trainable,
)

KEY = np.array([1, 2], np.uint32)
X = jnp.asarray(np.random.default_rng(0).normal(size=(40, 3)), jnp.float32)
S = jnp.asarray(np.random.default_rng(1).normal(2, 3, size=(40, 5)), jnp.float32)
BATCH = MomentsOf(True, True)


def net(**changes):
    return QueryNetwork(3, (16, 8), **{"init": "ordinary", "readout_init": "ordinary", "key": KEY, **changes})


NETWORKS = {
    "scale": {},
    "none": {"normalization": "none"},
    "batch": {"normalization": "batch"},
    "fixed factor": {"output": MomentMatching(0.5, 1.8, matched=False)},
    "matched": {"output": MomentMatching(0.5, 1.8, matched=True)},
    "both": {"output": MomentMatching(0.5, 1.8, matched=True), "normalization": "batch"},
    **{name: {"activation": name} for name in ACTIVATIONS},
}
every_network = pytest.mark.parametrize("changes", NETWORKS.values(), ids=NETWORKS)


@every_network
def test_many_queries_of_many_rows_are_answered_as_one_by_one(changes):
    network = net(**changes)
    together, _ = respond_rows(network, S, X)
    alone = [[network(s, x) for s in row] for row, x in zip(S[:4], X, strict=False)]
    np.testing.assert_allclose(together[:4], alone, rtol=2e-5, atol=2e-6)


@every_network
def test_the_slope_by_the_query_is_the_derivative(changes):
    with jax.enable_x64(True):
        network = jax.tree.map(lambda a: a.astype(np.float64) if eqx.is_inexact_array_like(a) else a, net(**changes))
        x, s = jnp.asarray(X[0], jnp.float64), jnp.asarray(0.3, jnp.float64)
        slope = jax.grad(lambda s: network(s, x))(s)
        np.testing.assert_allclose(slope, (network(s + 1e-6, x) - network(s - 1e-6, x)) / 2e-6, rtol=1e-5, atol=1e-9)


def test_activations_are_those_of_jax():
    at = jnp.linspace(-30, 30, 101)
    for name, activation in ACTIVATIONS.items():
        np.testing.assert_allclose(activation(at), getattr(jax.nn, name)(at), rtol=1e-5, atol=1e-6)
        slope = jax.vmap(jax.grad(activation))(at[1::2])
        np.testing.assert_allclose(slope, jax.vmap(jax.grad(getattr(jax.nn, name)))(at[1::2]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("init", "spreads"),
    [
        ("tiny", (1e-3, 1e-3)),
        ("ordinary", (1 / np.sqrt(201), 1 / np.sqrt(300))),
        ("glorot", (np.sqrt(2 / 501), np.sqrt(2 / 500))),
    ],
)
def test_a_start_has_the_stated_spread(init, spreads):
    network = QueryNetwork(200, (300, 200), init=init, readout_init="glorot", key=KEY)
    first = np.concatenate([network.query_weight[None], network.weights[0]])
    for weights, spread in zip((first, network.weights[1]), spreads, strict=True):
        assert weights.std() == pytest.approx(spread, rel=0.02)
        assert abs(weights.mean()) < 5 * spread / np.sqrt(weights.size)
    assert network.readout_weight.std() == pytest.approx(np.sqrt(2 / 201), rel=0.15)
    assert all(np.all(b == 0) for b in [*network.biases, network.readout_bias])


def test_two_keys_give_two_starts_and_one_key_one():
    a, b, c = net(), net(), net(key=np.array([1, 3], np.uint32))
    np.testing.assert_array_equal(a.weights[1], b.weights[1])
    assert np.all(a.weights[1] != c.weights[1])


def test_batch_normalisation_uses_the_moments_of_the_batch_in_training_and_stored_ones_after():
    network = net(normalization="batch")
    _, seen = respond_rows(network, S, X, BATCH)
    context = np.asarray(X) @ network.weights[0]
    hidden = ACTIVATIONS["elu"](jnp.asarray(np.asarray(S)[:, :, None] * network.query_weight + context[:, None, :]))
    np.testing.assert_allclose(seen[0].mean, np.asarray(hidden).mean((0, 1)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(seen[0].var, np.asarray(hidden).var((0, 1)), rtol=1e-3)
    # one row alone is answered by what is stored, whatever the others are
    alone, _ = respond_rows(network, S[:1], X[:1])
    np.testing.assert_allclose(alone, respond_rows(network, S, X)[0][:1], rtol=1e-5)
    assert np.abs(respond_rows(network, S[:1], X[:1], BATCH)[0] - alone).max() > 1e-3


@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 1.8138), (-1.0, 0.5)])
def test_matched_logits_have_the_target_moments(mean, deviation):
    network = net(output=MomentMatching(mean, deviation, matched=True))
    logits, seen = respond_rows(network, S, X, BATCH)
    assert float(logits.mean()) == pytest.approx(mean, abs=1e-5)
    assert float(logits.std()) == pytest.approx(deviation, rel=1e-3)
    raw, _ = respond_rows(net(), S, X)
    assert float(seen[-1].mean) == pytest.approx(float(raw.mean()), rel=1e-4)


def test_a_fixed_factor_is_only_a_factor():
    raw, _ = respond_rows(net(), S, X)
    found, seen = respond_rows(net(output=MomentMatching(0.5, 1.8, matched=False)), S, X, BATCH)
    np.testing.assert_allclose(found, 0.5 + 1.8 * raw, rtol=1e-5)
    assert seen[-1] is None


def test_stored_moments_move_towards_those_seen_and_no_gradient_reaches_them():
    network = net(normalization="batch", output=MomentMatching(0.0, 1.0, matched=True))
    _, seen = respond_rows(network, S, X, BATCH)
    moved = store_moments(network, seen, momentum=1.0)
    np.testing.assert_allclose(moved.affines[0].normalise.moments.mean, seen[0].mean, rtol=1e-6)
    np.testing.assert_allclose(moved.output.normalise.moments.var, seen[-1].var, rtol=1e-6)
    half = store_moments(network, seen, momentum=0.5).output.normalise.moments.mean
    np.testing.assert_allclose(half, 0.5 * seen[-1].mean, rtol=1e-6)
    free = trainable(network)
    assert not any(jax.tree.leaves([free.affines[0].normalise.moments, free.output.normalise.moments]))
    assert all(jax.tree.leaves([free.weights, free.readout_weight, free.affines[0].scale]))


class Pair(eqx.Module):
    """An encoder: a linear map to two numbers."""

    weight: jax.Array
    bias: jax.Array

    def __init__(self, n_features, key):
        self.weight = jax.random.normal(key, (n_features, 2)) * 0.5
        self.bias = jnp.zeros(2)

    def __call__(self, x):
        return x @ self.weight + self.bias


@pytest.fixture(scope="module")
def encoded():
    return model(encoder=Pair).fit(*table())


def test_an_encoder_of_ones_own_is_used_and_trained(encoded):
    start = model(encoder=Pair, pretrain_iter=0, max_iter=0).fit(*table())
    for name in ("g_", "f_"):
        before, after = getattr(start, name).encoder, getattr(encoded, name).encoder
        assert before.weight.shape == (1, 2, 2)
        assert np.all(before.weight != after.weight)
    assert encoded.g_.weights[0].shape == (1, 2, 8)
    assert np.corrcoef(encoded.predict(table()[0]), table()[1])[0, 1] > 0.6


def test_an_encoder_is_asked_for_when_a_model_is_loaded(encoded, tmp_path):
    encoded.save(tmp_path / "m.cn")
    with pytest.raises(ValueError, match=r"has an encoder of your own: pass it as load_model\(path, encoder=...\)"):
        load_model(tmp_path / "m.cn")
    loaded = load_model(tmp_path / "m.cn", encoder=Pair)
    np.testing.assert_array_equal(loaded.predict(table()[0]), encoded.predict(table()[0]))
