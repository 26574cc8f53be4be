"""The methods that the paper compares with, one a file, all with the face of ``CollaboratingRegressor``."""

from collabnets.baselines.calibrated import CalibratedRegressor
from collabnets.baselines.concrete_dropout import ConcreteDropoutRegressor
from collabnets.baselines.conformal import ConformalQuantileRegressor
from collabnets.baselines.dropout import MCDropoutRegressor
from collabnets.baselines.ensemble import DeepEnsembleRegressor
from collabnets.baselines.gaussian_process import GaussianProcessRegressor
from collabnets.baselines.mixture import MixtureDistribution
from collabnets.baselines.parametric_gp import ParametricGPRegressor
from collabnets.baselines.quantile_network import MeanNetworkRegressor, QuantileNetworkRegressor

__all__ = [
    "CalibratedRegressor",
    "ConcreteDropoutRegressor",
    "ConformalQuantileRegressor",
    "DeepEnsembleRegressor",
    "GaussianProcessRegressor",
    "MCDropoutRegressor",
    "MeanNetworkRegressor",
    "MixtureDistribution",
    "ParametricGPRegressor",
    "QuantileNetworkRegressor",
]
