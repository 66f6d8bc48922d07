"""Training on the votes of several people: the network learns their shares."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import mohs
from mohs.data.examples import Examples

SHARES = [[1.0, 0.0, 0.0], [2 / 3, 1 / 3, 0.0], [0.0, 1 / 3, 2 / 3]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three kinds of inputs on which three people vote alike within a kind; the labels say something else."""
    kind = np.arange(240) % 3
    votes = np.array([[0, 0, 0], [0, 1, 0], [2, 1, 2]])[kind]
    np.savez(tmp_path / "data.npz", x=np.eye(3)[kind], y=np.roll(kind, 1))
    np.savez(tmp_path / "votes.npz", **{f"annotator{a}": votes[:, a] for a in range(3)})
    return tmp_path


@pytest.mark.parametrize("loss", ["cross_entropy", "gce:q=0.1", "focal:gamma=0.1"])
def test_the_network_learns_the_shares_of_the_votes(loss: str, data: Path) -> None:
    given = {"votes": str(data / "votes.npz")}
    trained = mohs.train(
        str(data / "data.npz"), model="mlp", loss=loss, epochs=30, batch=32, optimizer="adamw:lr=0.02", open=given,
        runs=data / "runs", record=False,
    )  # fmt: skip
    with torch.no_grad():
        probs = torch.softmax(trained.network.eval()(torch.eye(3)), 1)
    torch.testing.assert_close(probs, torch.tensor(SHARES), atol=0.12, rtol=0)


def test_runs_on_other_votes_are_other_runs(data: Path) -> None:
    def folder(**options: str) -> str:
        return mohs.train(str(data / "data.npz"), model="mlp", epochs=0, open=options, runs=data / "runs").folder.name

    np.savez(data / "other.npz", anna=np.zeros(240, int))
    names = {folder(), folder(votes=str(data / "votes.npz")), folder(votes=str(data / "other.npz"))}
    assert len(names) == 3


def test_losses_and_noise_that_do_not_go_with_votes_are_refused() -> None:
    examples = Examples(torch.randn(40, 2), torch.arange(40) % 2, ["a", "b"])
    voted = mohs.open_data(examples, votes=[["a"]] * 40)
    with pytest.raises(ValueError, match="training on votes needs a loss that takes soft labels: MeanSquaredErrorLoss"):
        mohs.train(mohs.Run(loss="mse", epochs=1), voted)
    with pytest.raises(ValueError, match=r"leave out noise \(--noise\) or votes \(--votes\)"):
        mohs.train(mohs.Run(noise="symmetric:rate=0.1", epochs=1), voted)
