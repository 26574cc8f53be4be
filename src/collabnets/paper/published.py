"""The paper's own numbers, as printed: mean and standard deviation over ten replications."""

from __future__ import annotations

from typing import NamedTuple

N_PUBLISHED = 10


class Published(NamedTuple):
    """A printed value.

    Attributes
    ----------
    mean, sd
        Mean and standard deviation over the replications; the latter None where one split was used.
    """

    mean: float
    sd: float | None = None


def _rows(metrics: tuple[str, ...], rows: dict[str, tuple[float | None, ...]]) -> dict[str, dict[str, Published]]:
    """Read rows of mean, sd, mean, sd, ...; a None mean was not printed."""
    out: dict[str, dict[str, Published]] = {}
    for method, values in rows.items():
        pairs = zip(metrics, values[::2], values[1::2], strict=True)
        out[method] = {name: Published(mean, sd) for name, mean, sd in pairs if mean is not None}
    return out


_SYNTHETIC = ("cal", "gof", "coverage90", "mae")

# Table 1, the heteroskedastic Gaussian of Section 5.3.1; cal and coverage in percent.
TABLE_1 = _rows(
    _SYNTHETIC,
    {
        "TH": (1.535, 0.388, -1.668, 0.037, 87.767, 1.651, None, None),
        "CN-g": (1.418, 0.741, -1.684, 0.039, 89.233, 1.667, 0.064, 0.029),
        "CN-f": (2.401, 0.865, -1.779, 0.070, 86.267, 2.318, 0.066, 0.034),
        "g-only": (1.631, 0.671, -1.701, 0.034, 89.200, 1.851, 0.108, 0.060),
        "DP": (2.934, 0.738, -1.782, 0.047, 86.485, 1.452, 0.131, 0.034),
        "CDP": (2.378, 1.243, -1.686, 0.038, 90.129, 2.065, 0.176, 0.038),
        "GPR": (4.283, 1.446, -1.777, 0.043, 89.767, 1.745, 0.103, 0.024),
        "PPGPR": (4.197, 1.478, -1.825, 0.088, 82.967, 2.705, 0.300, 0.055),
        "EN": (1.721, 0.464, -1.684, 0.050, 88.348, 2.152, 0.175, 0.023),
        "CQR": (1.936, 1.022, None, None, 89.600, 1.873, 0.728, 0.073),
    },
)

# Table 2, the Weibull data of Section 5.3.2.
TABLE_2 = _rows(
    _SYNTHETIC,
    {
        "TH": (2.169, 0.874, -1.816, 0.032, 86.700, 1.402, None, None),
        "CN-g": (2.158, 1.398, -1.843, 0.037, 88.633, 2.335, 0.036, 0.011),
        "CN-f": (3.661, 1.385, -2.066, 0.147, 83.400, 3.408, 0.037, 0.010),
        "g-only": (2.928, 1.629, -1.865, 0.052, 88.667, 2.352, 0.053, 0.019),
        "DP": (22.424, 1.110, -2.384, 0.037, 98.766, 0.395, 0.087, 0.019),
        "CDP": (6.544, 1.500, -1.914, 0.049, 95.566, 1.106, 0.072, 0.009),
        "GPR": (10.337, 2.031, -2.096, 0.043, 93.800, 1.492, 0.082, 0.013),
        "PPGPR": (4.418, 2.023, -2.057, 0.119, 82.900, 2.599, 0.109, 0.018),
        "EN": (2.845, 0.892, -1.906, 0.052, 91.333, 1.842, 0.093, 0.009),
        "CQR": (3.007, 1.382, None, None, 89.633, 1.791, 0.246, 0.025),
    },
)
