"""The contract of scikit-learn: its own checks, with nothing expected to fail, and life inside its tools."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import StackingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import (
    check_dataframe_column_names_consistency,
    check_param_validation,
    parametrize_with_checks,
)

from collabnets import CollaboratingRegressor, metrics

SMALL = {
    "hidden_layer_sizes": (8,),
    "hidden_layer_sizes_f": (8,),
    "init": "ordinary",
    "learning_rate_init": 1e-2,
    "learning_rate_init_f": 1e-2,
    "batch_size": 8,  # fewer than any check has rows, so that few shapes are ever compiled
    "n_draws": 4,
    "pretrain_iter": 400,
    "max_iter": 100,
    "verbose": 0,
}


def small(**changes):
    return CollaboratingRegressor(**{**SMALL, "random_state": 0, **changes})


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=120), "b": rng.normal(size=120)}, index=[f"row {i}" for i in range(120)])
    return X, X["a"] + 0.2 * rng.normal(size=120)


@parametrize_with_checks([small()], expected_failed_checks=None)
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.mark.parametrize("check", [check_dataframe_column_names_consistency, check_param_validation])
def test_check_of_scikit_learn_that_is_not_in_its_list(check):
    check("CollaboratingRegressor", small())


def test_every_parameter_survives_clone_and_set_params():
    model = small(method="cn-f", q_distribution=("beta", 0.5, 0.5), n_members=3, member_rows="folds")
    assert clone(model).get_params() == model.get_params()
    assert CollaboratingRegressor().set_params(**model.get_params()).get_params() == model.get_params()


def test_clone_of_a_fitted_model_is_not_fitted(table):
    X, y = table
    copy = clone(small().fit(X, y))
    assert not any(name.endswith("_") and not name.startswith("_") for name in vars(copy))


def test_pickle_before_fit_after_fit_and_after_predict(table):
    X, y = table
    model = pickle.loads(pickle.dumps(small())).fit(X, y)
    before = pickle.loads(pickle.dumps(model))
    expected = model.predict(X)
    after = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(before.predict(X), expected)
    np.testing.assert_array_equal(after.predict(X), expected)


def test_pickle_of_a_distribution(table):
    X, y = table
    dist = small().fit(X, y).predict_dist(X)
    copy = pickle.loads(pickle.dumps(dist))
    np.testing.assert_array_equal(copy.icdf([0.1, 0.9]), dist.icdf([0.1, 0.9]))


def test_pipeline_that_hands_over_data_frames(table):
    X, y = table
    pipeline = make_pipeline(StandardScaler(), small()).set_output(transform="pandas").fit(X, y)
    assert list(pipeline[-1].feature_names_in_) == ["a", "b"]
    assert pipeline.predict(X).shape == (120,)
    quantiles = pipeline[-1].predict_quantiles(pipeline[:-1].transform(X), [0.1, 0.9])
    assert quantiles.index.equals(X.index)


def test_grid_search_by_crps(table):
    X, y = table
    grid = {"method": ["cn-g", "g-only"]}
    search = GridSearchCV(small(), grid, scoring=metrics.crps_scorer, cv=2, error_score="raise").fit(X, y)
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert (scores < 0).all()
    assert search.best_score_ == scores.max()


def test_score_is_r2_of_the_point_prediction(table):
    X, y = table
    model = small().fit(X, y)
    residual = y - model.predict(X)
    assert model.score(X, y) == pytest.approx(1 - (residual**2).sum() / ((y - y.mean()) ** 2).sum())
    assert cross_val_score(small(), X, y, cv=2).shape == (2,)


def test_stacking_on_a_data_frame(table):
    X, y = table
    stacked = StackingRegressor([("cn", small()), ("linear", LinearRegression())], cv=2).fit(X, y)
    assert stacked.predict(X).shape == (120,)


def test_transformed_target_on_a_data_frame(table):
    X, y = table
    model = TransformedTargetRegressor(small(), func=np.exp, inverse_func=np.log).fit(X, y)
    assert model.predict(X).shape == (120,)
