"""The course of training by grade, against a loop."""

from __future__ import annotations

import numpy as np
import torch

from mohs.audit.trajectory import course_by_hardness
from mohs.hardness.table import make_table


def test_means_by_bin_match_a_loop() -> None:
    random = np.random.default_rng(0)
    grades = random.integers(1, 9, 40)  # none of 9 and 10: an empty bin
    trace = {name: torch.from_numpy(random.random((3, 40))).half() for name in ("norm", "avh", "right")}
    trace["norm"][1, :5] = torch.nan  # not seen at that epoch
    made = course_by_hardness(trace, make_table({"mohs": grades}))
    assert made["epoch"].tolist() == [0, 1, 2]
    for name, source in (("norm", "norm"), ("avh", "avh"), ("accuracy", "right")):
        values = trace[source].float().numpy()
        for epoch in range(3):
            for b in range(5):
                mine = [v for v, g in zip(values[epoch], grades, strict=True) if 2 * b < g <= 2 * b + 2 and not np.isnan(v)]
                want = np.mean(mine) if mine else np.nan
                np.testing.assert_allclose(made[name][epoch, b], want, rtol=1e-5)
