"""Data to learn and compare on; the synthetic sets know their true conditional distribution."""

from collabnets.datasets.synthetic import (
    BivariateGaussian,
    CircularAverage,
    Synthetic,
    TwoOutputDistribution,
    bivariate_gaussian,
    circular,
    heteroskedastic_gaussian,
    paper_splits,
    sinusoid,
    weibull,
)

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
