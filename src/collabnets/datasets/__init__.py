"""Data to learn and compare on: the paper's real sets, and synthetic ones that know their true distribution."""

from collabnets.datasets.airline import load_airline
from collabnets.datasets.circle import CircularAverage
from collabnets.datasets.dataset import Dataset, Split
from collabnets.datasets.ehr import load_ehr
from collabnets.datasets.files import DatasetFileError
from collabnets.datasets.preprocessing import TablePreprocessing
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
from collabnets.datasets.uci import load_cpu, load_crime, load_energy, load_mpg

__all__ = [
    "BivariateGaussian",
    "CircularAverage",
    "Dataset",
    "DatasetFileError",
    "Split",
    "Synthetic",
    "TablePreprocessing",
    "TwoOutputDistribution",
    "bivariate_gaussian",
    "circular",
    "heteroskedastic_gaussian",
    "load_airline",
    "load_cpu",
    "load_crime",
    "load_ehr",
    "load_energy",
    "load_mpg",
    "paper_splits",
    "sinusoid",
    "weibull",
]
