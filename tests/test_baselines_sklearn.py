"""The contract of scikit-learn for every baseline, with nothing expected to fail."""

import pytest
from sklearn.utils.estimator_checks import (
    check_dataframe_column_names_consistency,
    check_param_validation,
    parametrize_with_checks,
)

# One small estimator a baseline; a batch is smaller than any check's table, so that few shapes are ever compiled.
SMALL = []


@parametrize_with_checks(SMALL, expected_failed_checks=None)
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.mark.parametrize("check", [check_dataframe_column_names_consistency, check_param_validation])
@pytest.mark.parametrize("estimator", SMALL, ids=lambda e: type(e).__name__)
def test_check_of_scikit_learn_that_is_not_in_its_list(check, estimator):
    check(type(estimator).__name__, estimator)
