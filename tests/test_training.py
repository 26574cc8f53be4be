"""Algorithm 1: its batches, its members, its early stopping, and what survives an accident."""

import dataclasses
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from variants import TINY, fitted, model, table

from collabnets import CollaboratingRegressor, checkpoint, fit_together, training
from collabnets.training import batch_rows, loop

X, Y = table()
KEY = jnp.array([3, 5], jnp.uint32)
batches = jax.jit(batch_rows, static_argnums=3)


def rows(n, batch_size, count, key=KEY, first=0):
    return np.asarray(batches(key, jnp.arange(first, first + count), jnp.int32(n), batch_size))


def nets(fit):
    return jax.tree.leaves((fit.g_, fit.f_))


def assert_same(a, b):
    for one, other in zip(nets(a), nets(b), strict=True):
        np.testing.assert_array_equal(one, other)


def differ(a, b):
    return any(np.any(one != other) for one, other in zip(nets(a), nets(b), strict=True))


# ------------------------------------------------------------ batches


def test_an_epoch_visits_every_row_at_most_once_and_all_but_the_remainder():
    for n in range(1, 301):
        batch = 7 if n >= 7 else 1
        found = rows(n, batch, 43)
        per_epoch = n // batch
        for epoch in range(min(43 // per_epoch, 3)):
            visited = found[epoch * per_epoch : (epoch + 1) * per_epoch].ravel()
            assert len(np.unique(visited)) == len(visited) == n - n % batch
            assert visited.min() >= 0
            assert visited.max() < n


def test_a_large_table_is_shuffled_whole():
    n, batch = 478_000, 128
    found = rows(n, batch, n // batch)
    assert len(np.unique(found)) == found.size == n - n % batch
    assert found.max() < n
    assert abs(np.corrcoef(np.arange(found.size), found.ravel())[0, 1]) < 0.01


def test_every_row_is_as_likely_in_every_place():
    n, batch, epochs = 50, 10, 2000
    found = rows(n, batch, epochs * 5).reshape(epochs, 50)
    for place in (0, 9, 10, 49):
        assert stats.chisquare(np.bincount(found[:, place], minlength=n)).pvalue > 1e-3
    assert stats.chisquare(np.bincount(found[:, 0] // 10 * 5 + found[:, 1] // 10, minlength=25), None).pvalue > 1e-9
    pairs = np.bincount((found[:, 0] * n + found[:, 30]), minlength=n * n)
    pairs = pairs[np.arange(n * n) // n != np.arange(n * n) % n]  # a row is in an epoch once
    assert stats.chisquare(pairs).pvalue > 1e-3


def test_epochs_and_keys_differ_and_batches_do_not_depend_on_the_call():
    first, second = rows(100, 20, 10).reshape(2, 100)
    assert np.any(first != second)
    assert np.any(rows(100, 20, 10, key=jnp.array([3, 6], jnp.uint32)).reshape(2, 100)[0] != first)
    np.testing.assert_array_equal(rows(100, 20, 10)[4:], rows(100, 20, 6, first=4))


def test_uniform_draws_are_uniform_and_belong_to_their_iteration():
    draws = np.asarray(training.uniform(KEY, jnp.arange(500), (16, 3)))
    assert draws.shape == (500, 16, 3)
    assert draws.min() > 0
    assert draws.max() < 1
    assert stats.kstest(draws.ravel(), "uniform").pvalue > 1e-3
    assert len(np.unique(draws)) > 0.995 * draws.size
    np.testing.assert_array_equal(training.uniform(KEY, jnp.arange(7, 9), (16, 3)), draws[7:9])


# ------------------------------------------------------------ members


def test_a_member_alone_is_the_member_in_an_ensemble_to_the_last_bit():
    three = fitted("ensemble")
    for one, many in zip(nets(fitted()), nets(three), strict=True):
        np.testing.assert_array_equal(one, many[:1])
        assert len(many) == 3
    weights = three.g_.weights[0]
    assert np.all(weights[0] != weights[1])


def test_models_fitted_together_are_those_fitted_apart():
    tables = [(X, Y), (X[::-1], Y * 3), (X, Y, np.ones(100))]
    together = fit_together([model(random_state=k) for k in range(3)], tables)
    for k, (fit, data) in enumerate(zip(together, tables, strict=True)):
        alone = model(random_state=k).fit(*data)
        np.testing.assert_allclose(
            fit.predict_quantiles(X, [0.1, 0.5, 0.9]),
            alone.predict_quantiles(X, [0.1, 0.5, 0.9]),
            atol=1e-4 * Y.std() * (3 if k == 1 else 1),
        )
        assert fit.history_.pretrain.shape == (300, 1)


def test_members_of_a_bootstrap_and_of_folds_see_other_rows():
    for name in ("ensemble, bootstrap", "ensemble, folds"):
        assert differ(fitted(name), fitted("ensemble"))


# ------------------------------------------------------------ history and early stopping


def test_the_history_has_every_iteration_and_falls():
    history = fitted().history_
    assert history.pretrain.shape == (300, 1)
    assert history.joint_g.shape == history.joint_f.shape == (200, 1)
    assert fitted().n_iter_ == 500
    assert history.pretrain[-50:].mean() < history.pretrain[:50].mean()
    assert history.held_out.shape == (0, 1)


@pytest.fixture
def often(monkeypatch):
    """Look at held-out rows every 20 iterations."""
    schedule = CollaboratingRegressor._schedule
    patched = lambda self, *a: dataclasses.replace(schedule(self, *a), check_every=20)  # noqa: E731
    monkeypatch.setattr(CollaboratingRegressor, "_schedule", patched)


def test_early_stopping_ends_a_phase_and_restores_the_best_weights(often, monkeypatch):
    kept = []
    judge = loop.held_out_loss
    monkeypatch.setattr(loop, "held_out_loss", lambda *a: kept.append(a) or judge(*a))
    changes = {"early_stopping": True, "n_iter_no_change": 3, "tol": 0.0, "method": "g-only"}
    fit = model(**changes, learning_rate_init=0.03, pretrain_iter=2000, max_iter=0).fit(X, Y)
    history = fit.history_
    assert fit.n_iter_ < 2000
    losses = history.held_out[:, 0]
    assert list(history.held_out_iteration) == [20 * (i + 1) for i in range(len(losses))]
    assert losses.argmin() == len(losses) - 1 - 3  # patience ran out three looks after the best
    plan, judge_f, state, data, members = kept[-1]
    restored = dataclasses.replace(state, g=jax.tree.map(jnp.asarray, fit.g_))
    np.testing.assert_allclose(judge(plan, judge_f, restored, data, members)[0], losses.min(), rtol=1e-6)


def test_folds_are_judged_each_by_its_own_rows(often):
    fit = model("ensemble, folds").fit(X, Y)
    assert fit.history_.held_out.shape == (25, 3)
    assert len(np.unique(fit.history_.held_out[0])) == 3


# ------------------------------------------------------------ accidents


@pytest.fixture
def short_chunks(monkeypatch):
    """Chunks of 50 iterations, and a save after each."""
    schedule = CollaboratingRegressor._schedule
    patched = lambda self, *a: dataclasses.replace(schedule(self, *a), chunk=50)  # noqa: E731
    monkeypatch.setattr(CollaboratingRegressor, "_schedule", patched)
    ticks = iter(range(0, 10**9, 60))
    monkeypatch.setattr(loop.time, "monotonic", lambda: float(next(ticks)))


class Killed(Exception):
    pass


@pytest.mark.parametrize("name", ["cn-g", "early stopping", "ensemble, bootstrap"])
@pytest.mark.parametrize("after", [1, 8])
def test_a_killed_fit_resumes_to_the_same_bits(name, after, short_chunks, monkeypatch, tmp_path):
    whole, path, save, count = fitted(name), tmp_path / "c", checkpoint.save, [0]

    def dies(*arguments):
        save(*arguments)
        count[0] += 1
        if count[0] == after:
            raise Killed

    monkeypatch.setattr(checkpoint, "save", dies)
    with pytest.raises(Killed):
        model(name, checkpoint=path).fit(X, Y)
    monkeypatch.setattr(checkpoint, "save", save)
    ran = []
    advance = loop._Run.advance
    monkeypatch.setattr(loop._Run, "advance", lambda self, bar: ran.append(1) or advance(self, bar))
    resumed = model(name, checkpoint=path).fit(X, Y)
    assert len(ran) == 10 - after
    assert_same(resumed, whole)
    np.testing.assert_array_equal(resumed.history_.joint_f, whole.history_.joint_f)
    np.testing.assert_array_equal(resumed.history_.held_out, whole.history_.held_out)
    again = model(name, checkpoint=path).fit(X, Y)  # a finished fit returns at once
    assert len(ran) == 10 - after
    assert_same(again, resumed)


def test_ctrl_c_keeps_the_model_with_a_warning_and_the_fit_can_go_on(short_chunks, monkeypatch, tmp_path):
    advance, count = loop._Run.advance, [0]

    def interrupted(self, bar):
        advance(self, bar)
        count[0] += 1
        if count[0] == 3:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(loop._Run, "advance", interrupted)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.warns(RuntimeWarning, match="interrupted after 150 of 500 iterations; the model is kept"):
        fit = model(checkpoint=tmp_path / "c").fit(X, Y)
    assert signal.getsignal(signal.SIGINT) is handler
    assert fit.n_iter_ == 150
    assert np.isfinite(fit.predict(X)).all()
    assert_same(model(checkpoint=tmp_path / "c").fit(X, Y), fitted())


def test_a_loss_that_becomes_nan_rolls_back_once_and_then_raises(short_chunks, monkeypatch):
    run, bad = loop.run_chunk, {2}
    calls, scales = [0], []

    def broken(*arguments):
        state, losses = run(*arguments)
        scales.append(arguments[-1])
        calls[0] += 1
        return state, losses * (np.nan if calls[0] - 1 in bad else 1.0)

    monkeypatch.setattr(loop, "run_chunk", broken)
    with pytest.warns(
        RuntimeWarning, match="pretrain loss became infinite or NaN; training goes on from 100 iterations"
    ):
        fit = model().fit(X, Y)
    assert scales == [1.0] * 3 + [0.1] * 8
    assert fit.n_iter_ == 500
    calls[0] = 0
    bad.add(3)
    with (
        pytest.warns(RuntimeWarning, match="with a tenth"),
        pytest.raises(FloatingPointError, match="twice, the second time with a tenth of the step; try a smaller"),
    ):
        model().fit(X, Y)


def test_weights_that_become_nan_in_the_last_step_are_noticed(short_chunks, monkeypatch):
    run, calls = loop.run_chunk, []

    def broken(*arguments):
        state, losses = run(*arguments)
        calls.append(arguments[-1])
        if len(calls) == 6:  # the last of 200 + 100 iterations
            state = jax.tree.map(lambda a: a * np.nan if getattr(a, "dtype", None) == np.float32 else a, state)
        return state, losses

    monkeypatch.setattr(loop, "run_chunk", broken)
    with pytest.warns(RuntimeWarning, match="became infinite or NaN"):
        fit = model(pretrain_iter=200, max_iter=100).fit(X, Y)
    assert calls == [1.0] * 6 + [0.1]
    assert np.isfinite(fit.predict(X)).all()


# ------------------------------------------------------------ options


@pytest.mark.parametrize(
    "changes",
    [
        {"consistency": 1.0},
        {"f_first": True},
        {"g_steps": 2},
        {"f_steps": 1},
        {"n_draws": 3},
        {"optimizer": "sgd"},
        {"z_margin": 1.0},
    ],
    ids=str,
)
def test_an_option_changes_the_run(changes):
    short = {"pretrain_iter": 0, "max_iter": 30} if "z_margin" not in changes else {}
    fit = model(**short, **changes).fit(X, Y)
    assert differ(fit, model(**short).fit(X, Y))
    assert np.isfinite(fit.history_.joint_g).all()


def test_g_only_pretrains_for_all_iterations_and_leaves_f_alone():
    fit = fitted("g-only")
    assert fit.history_.pretrain.shape == (500, 1)
    assert fit.history_.joint_g.shape == (0, 1)
    np.testing.assert_array_equal(fit.history_.pretrain[:300], fitted().history_.pretrain)
    start = fitted("untrained")
    np.testing.assert_array_equal(fit.f_.weights[0], start.f_.weights[0])


def test_a_second_fit_of_the_same_shape_does_not_compile_again():
    fitted().predict_quantiles(X, [0.1, 0.9])
    compiled = []

    def listen(event, *_, **__):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    jax.jit(lambda a: a * 3 + len(compiled))(np.float32(1))
    assert len(compiled) == 1  # the listener hears
    try:
        rng = np.random.default_rng(8)
        fit = CollaboratingRegressor(**{**TINY, "random_state": 9}).fit(rng.normal(size=(101, 2)), rng.normal(size=101))
        fit.predict_quantiles(X, [0.1, 0.9])
        assert len(compiled) == 1
    finally:
        jax.monitoring.clear_event_listeners()
