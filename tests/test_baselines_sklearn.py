"""The contract of scikit-learn for every baseline, with nothing expected to fail."""

import pytest
from linear_gaussian import LinearGaussian
from sklearn.utils.estimator_checks import (
    check_dataframe_column_names_consistency,
    check_param_validation,
    parametrize_with_checks,
)

from collabnets.baselines import (
    CalibratedRegressor,
    ConcreteDropoutRegressor,
    ConformalQuantileRegressor,
    DeepEnsembleRegressor,
    GaussianProcessRegressor,
    MCDropoutRegressor,
    MeanNetworkRegressor,
    ParametricGPRegressor,
    QuantileNetworkRegressor,
)

# One small estimator a baseline; a batch is smaller than any check's table, so that few shapes are ever compiled.
NETWORK = {
    "hidden_layer_sizes": (8,),
    "learning_rate_init": 2e-2,
    "batch_size": 8,
    "max_iter": 60,
    "random_state": 0,
    "verbose": 0,
}
SMALL = [
    MCDropoutRegressor(**NETWORK, precisions=(1.0, 10.0), dropout_rates=0.01, n_passes=16),
    ConcreteDropoutRegressor(**NETWORK, n_passes=16),
    DeepEnsembleRegressor(**NETWORK, dampings=(0.3, 1.0), n_members=2, decay_rate=0.0),
    QuantileNetworkRegressor(**NETWORK),
    MeanNetworkRegressor(**NETWORK),
    GaussianProcessRegressor(max_iter=20, random_state=0, verbose=0),
    ParametricGPRegressor(n_inducing=3, max_iter=20, batch_size=8, random_state=0, verbose=0),
    CalibratedRegressor(LinearGaussian(), random_state=0),
    ConformalQuantileRegressor(n_estimators=40, random_state=0),
]


@parametrize_with_checks(SMALL, expected_failed_checks=None)
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.mark.parametrize("check", [check_dataframe_column_names_consistency, check_param_validation])
@pytest.mark.parametrize("estimator", SMALL, ids=lambda e: type(e).__name__)
def test_check_of_scikit_learn_that_is_not_in_its_list(check, estimator):
    check(type(estimator).__name__, estimator)
