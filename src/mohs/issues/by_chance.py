"""From a number that chance explains to a score and a flag.

Copies and outliers are judged by E, the expected number of examples that would look like this one, or more so, by chance in data
of this size. The same E means the same in every data set, so no threshold needs to be chosen for a data set:

    flag     E < 1/2              score    1 / (1 + E^⅛), which is ½ where E = 1 and tends to 1 as E tends to 0
"""

from __future__ import annotations

import numpy as np

from mohs.issues.found import Array

LIMIT = 0.5
SLOPE = 8  # spreads scores out: E = 1e-8 scores 0.91, E = 1e8 scores 0.09


def chance_score(log_expected: Array) -> Array:
    """ln E (N,) -> scores (N,)."""
    score: Array = 1 / (1 + np.exp(np.clip(log_expected / SLOPE, -700, 700)))
    return score


def beyond_chance(log_expected: Array) -> Array:
    """ln E (N,) -> whether chance explains too few (N,)."""
    flag: Array = log_expected < np.log(LIMIT)
    return flag
