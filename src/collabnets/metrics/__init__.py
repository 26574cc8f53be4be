"""How good a predictive distribution is: the metrics of the paper's Section 5.1 and those the field expects.

Every metric takes ``(y_true, distribution)`` and optional row weights, for any `PredictiveDistribution`. Four
of them are means of one value a row, which a function named ``..._values`` gives. A metric needs only some
verbs of a distribution (calibration and widths its quantiles, gof and PIT its cdf); one that a distribution
lacks raises that distribution's own error.
"""

from collabnets.metrics.calibration import CalibrationCurve, PITHistogram, calibration_curve, pit, pit_histogram
from collabnets.metrics.paper import (
    PAPER_LEVELS,
    SharpnessCurve,
    calibration_error,
    coverage,
    gof,
    gof_edges,
    mae,
    sharpness_curve,
)
from collabnets.metrics.ranked import crps, crps_from_quantiles, crps_values
from collabnets.metrics.scorers import (
    by_group,
    calibration_scorer,
    crps_scorer,
    evaluate,
    gof_scorer,
    log_score_scorer,
    mae_scorer,
)
from collabnets.metrics.scores import (
    interval_score,
    interval_score_values,
    interval_width,
    log_score,
    log_score_values,
    pinball,
    pinball_values,
    rmse,
)

__all__ = [
    "PAPER_LEVELS",
    "CalibrationCurve",
    "PITHistogram",
    "SharpnessCurve",
    "by_group",
    "calibration_curve",
    "calibration_error",
    "calibration_scorer",
    "coverage",
    "crps",
    "crps_from_quantiles",
    "crps_scorer",
    "crps_values",
    "evaluate",
    "gof",
    "gof_edges",
    "gof_scorer",
    "interval_score",
    "interval_score_values",
    "interval_width",
    "log_score",
    "log_score_scorer",
    "log_score_values",
    "mae",
    "mae_scorer",
    "pinball",
    "pinball_values",
    "pit",
    "pit_histogram",
    "rmse",
    "sharpness_curve",
]
