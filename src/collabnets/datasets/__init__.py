"""Data to learn and compare on; the synthetic sets know their true conditional distribution."""

from collabnets.datasets.circle import CircularAverage
from collabnets.datasets.synthetic import (
    Synthetic,
    bivariate_gaussian,
    circular,
    heteroskedastic_gaussian,
    paper_splits,
    sinusoid,
    weibull,
)
from collabnets.datasets.two_outputs import BivariateGaussian, TwoOutputDistribution

__all__ = [
    "BivariateGaussian",
    "CircularAverage",
    "Synthetic",
    "TwoOutputDistribution",
    "bivariate_gaussian",
    "circular",
    "heteroskedastic_gaussian",
    "paper_splits",
    "sinusoid",
    "weibull",
]
