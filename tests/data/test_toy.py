"""Points on the sphere: where they lie, and that the posterior is the share of classes one finds there."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from mohs.data.readers.toy import posterior, sphere


def test_points_lie_on_the_sphere_and_are_deterministic() -> None:
    data = sphere(each=50)
    assert data.train.shape == (3,)
    assert torch.bincount(data.train.labels).tolist() == [50, 50]
    assert torch.allclose(data.train.inputs.norm(dim=1), torch.ones(100))
    assert data.train.fingerprint() == sphere(each=50).train.fingerprint() != data.test.fingerprint()
    assert data.train.fingerprint() != sphere(each=50, seed=1).train.fingerprint()
    assert len(sphere().train) == 2000
    with pytest.raises(ValueError, match="each must be"):
        sphere(each=0)


def test_the_posterior_is_the_share_of_the_first_class() -> None:
    data = sphere(each=100_000, seed=3)
    p, first = posterior(data.train.inputs), (data.train.labels == 0).double()
    edges = torch.linspace(0, 1, 11)
    for low, high in pairwise(edges):
        inside = (p >= low) & (p < high)
        assert float(first[inside].mean()) == pytest.approx(float(p[inside].mean()), abs=0.015)
    assert float(posterior(torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))[0]) == pytest.approx(0.5)
    a, b = posterior(torch.tensor([[0.6, 0.8, 0.0], [0.6, -0.8, 0.0]])).tolist()
    assert a == pytest.approx(1 - b)
