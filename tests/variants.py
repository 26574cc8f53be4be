"""One small fitted model of every variant and every baseline, each fitted once a session: the table of the laws.

``VARIANTS`` are Collaborating Networks, ``BASELINES`` all other estimators; a new row inherits every law.
"""

from functools import lru_cache

import numpy as np
from scipy import stats

from collabnets import CollaboratingRegressor
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

TINY = {
    "hidden_layer_sizes": (8,),
    "hidden_layer_sizes_f": (8,),
    "init": "ordinary",
    "learning_rate_init": 5e-3,
    "learning_rate_init_f": 5e-3,
    "batch_size": 16,
    "pretrain_iter": 300,
    "max_iter": 200,
    "random_state": 0,
    "verbose": 0,
}
TINY_NETWORK = {
    "hidden_layer_sizes": (8,),
    "learning_rate_init": 2e-2,
    "batch_size": 16,
    "max_iter": 40,
    "random_state": 0,
    "verbose": 0,
}


def normal_thresholds(q, X):
    """A fixed f: a normal distribution around the first column."""
    return 3.0 * stats.norm.ppf(q)[None, :] + np.asarray(X, float)[:, :1]


VARIANTS = {
    "cn-g": {},
    "cn-f": {"method": "cn-f"},
    "g-only": {"method": "g-only"},
    "q beta": {"q_distribution": ("beta", 0.5, 0.5)},
    "q scipy": {"q_distribution": stats.beta(2, 3), "moment_matching": "none"},
    "q beta, cn-f": {"q_distribution": ("beta", 0.5, 0.5), "method": "cn-f"},
    "z marginal": {"z_distribution": "marginal"},
    "z marginal, cn-f": {"z_distribution": "marginal", "method": "cn-f"},
    "z scipy": {"z_distribution": stats.norm(0, 6)},
    "z function": {"z_distribution": normal_thresholds},
    "z function, g-only": {"z_distribution": normal_thresholds, "method": "g-only"},
    "moments of the batch": {"moment_matching": "batch"},
    "moments of the batch, q beta": {"moment_matching": "batch", "q_distribution": ("beta", 0.5, 0.5)},
    "no moment matching": {"moment_matching": "none"},
    "batch normalisation": {"normalization": "batch"},
    "no normalisation": {"normalization": "none"},
    "ensemble": {"n_members": 3},
    "ensemble, g-only": {"n_members": 3, "method": "g-only"},
    "ensemble, bootstrap": {"n_members": 3, "member_rows": "bootstrap"},
    "ensemble, folds": {"n_members": 3, "member_rows": "folds", "early_stopping": True},
    "ensemble, cn-f": {"n_members": 3, "method": "cn-f"},
    "units of the data": {"standardize": False},
    "early stopping": {"early_stopping": True},
    "untrained": {"pretrain_iter": 0, "max_iter": 0},
    "overtrained": {"learning_rate_init": 0.1, "learning_rate_init_f": 0.1},
}


def network(kind, **settings):
    return lambda **changes: kind(**{**TINY_NETWORK, **settings, **changes})


# Name: a function that makes a small estimator; its keywords change parameters.
BASELINES = {
    "DP": network(MCDropoutRegressor, precisions=(1.0, 4.0), dropout_rates=(0.0, 0.05), n_passes=50),
    "CDP": network(ConcreteDropoutRegressor, n_passes=50),
    "EN": network(DeepEnsembleRegressor, dampings=(0.1, 1.0), n_members=3),
    "EN, mixture": network(DeepEnsembleRegressor, dampings=0.5, n_members=3, combine="mixture"),
    "QR": network(QuantileNetworkRegressor),
    "MSE": network(MeanNetworkRegressor),
    "GPR": lambda **changes: GaussianProcessRegressor(**{"max_iter": 30, "random_state": 0, "verbose": 0, **changes}),
    "PPGPR": lambda **changes: ParametricGPRegressor(
        **{"n_inducing": 10, "max_iter": 40, "batch_size": 16, "random_state": 0, "verbose": 0, **changes}
    ),
    "CQR": lambda **changes: ConformalQuantileRegressor(
        **{"n_estimators": 40, "min_samples_leaf": 5, "random_state": 0, **changes}
    ),
    "CR": lambda **changes: CalibratedRegressor(
        CollaboratingRegressor(**TINY), **{"n_levels": 10, "random_state": 0, **changes}
    ),
}
# Baselines that give quantiles and intervals, but no CDF, density, moments or samples.
QUANTILES_ONLY = {"CQR"}
ESTIMATORS = [*VARIANTS, *BASELINES]


def model(name="cn-g", **changes):
    if name in BASELINES:
        return BASELINES[name](**changes)
    return CollaboratingRegressor(**{**TINY, **VARIANTS[name], **changes})


@lru_cache
def table(n=100):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 2))
    y = 2.0 * X[:, 0] + (0.5 + np.abs(X[:, 1])) * rng.gumbel(size=n)
    return X, y


@lru_cache
def fitted(name="cn-g"):
    return model(name).fit(*table())
