"""Collaborating Networks: calibrated predictive distributions for regression."""

__version__ = "0.1.0"

from collabnets.distribution import PredictiveDistribution
from collabnets.modelfile import load_model
from collabnets.regressor import CollaboratingRegressor, fit_together

__all__ = ["CollaboratingRegressor", "PredictiveDistribution", "fit_together", "load_model"]
