"""Collaborating Networks: calibrated predictive distributions for regression."""

__version__ = "0.1.0"

from collabnets.distribution import PredictiveDistribution
from collabnets.fitting import fit_together
from collabnets.modelfile import load_model
from collabnets.regressor import CollaboratingRegressor

__all__ = ["CollaboratingRegressor", "PredictiveDistribution", "fit_together", "load_model"]
