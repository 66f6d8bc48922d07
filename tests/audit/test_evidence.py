"""What an audit stores for the review: the plane of the map, the most probable classes and the neighbors, row by row."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import torch
from sklearn.decomposition import PCA

from mohs._core.errors import DataError
from mohs.audit.evidence import evidence_table, principal_plane, write_evidence
from mohs.audit.file_names import EVIDENCE_ROWS
from mohs.audit.pipeline import call_of
from mohs.data.corrections import with_corrections
from mohs.data.examples import Data, Examples
from mohs.hardness.neighbors import nearest_with_cosines


def test_the_plane_is_that_of_the_principal_components() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 20)) @ np.diag([9, 5, *[1] * 18])
    found = principal_plane(torch.from_numpy(x))
    expected = PCA(2).fit_transform(x)
    for axis in range(2):
        assert abs(np.corrcoef(found[:, axis], expected[:, axis])[0, 1]) > 0.999
    np.testing.assert_array_equal(found, principal_plane(torch.from_numpy(x)))


@pytest.mark.parametrize("shape", [(1, 5), (4, 1), (3, 2)])
def test_small_and_broken_features_have_a_place(shape: tuple[int, int]) -> None:
    x = torch.randn(shape)
    x[0, 0] = torch.nan
    found = principal_plane(x)
    assert found.shape == (shape[0], 2)
    assert np.isfinite(found).all()


def test_cosines_are_those_of_the_neighbors() -> None:
    x = torch.randn(60, 8)
    rows, cosines = nearest_with_cosines(x, k=4)
    unit = torch.nn.functional.normalize(x, dim=1)
    torch.testing.assert_close(cosines, (unit.unsqueeze(1) * unit[rows]).sum(2))


def test_evidence_is_stored_row_by_row(tmp_path: Path) -> None:
    count = EVIDENCE_ROWS + 10
    probs = np.random.default_rng(0).dirichlet(np.ones(7), count)
    near = (torch.arange(count).unsqueeze(1).expand(-1, 2), torch.ones(count, 2))
    write_evidence(evidence_table(probs, list("abcdefg"), near), tmp_path / "evidence.parquet")
    file = pyarrow.parquet.ParquetFile(tmp_path / "evidence.parquet")
    assert json.loads(file.schema_arrow.metadata[b"classes"]) == list("abcdefg")
    last = file.read_row_group(1).to_pylist()[-1]
    assert last["nearest"] == [count - 1] * 2
    assert last["classes"] == np.argsort(-probs[-1])[:5].tolist()
    np.testing.assert_allclose(last["probs"], np.sort(probs[-1])[::-1][:5], rtol=1e-6)


def test_corrected_labels_belong_to_their_data(few_images: Examples, tmp_path: Path) -> None:
    names = [str(few_images.classes[label]) for label in few_images.labels.tolist()]
    rows = [[i, name, name, ""] for i, name in enumerate(names)]
    rows[0][1:4:2] = ["9", "change"]
    rows[1][1:4:2] = ["", "exclude"]
    (tmp_path / "labels.csv").write_text("id,label,previous,decision\n" + "".join(f"{a},{b},{c},{d}\n" for a, b, c, d in rows))
    found = with_corrections(Data(few_images), tmp_path / "labels.csv").train
    assert len(found) == len(few_images) - 1
    assert found.classes[found.labels[0]] == 9
    assert found.truth is not None
    assert few_images.truth is not None
    assert found.truth[0] == few_images.truth[0]  # what is known of the truth stays known
    with pytest.raises(DataError, match="was not made for"):
        with_corrections(Data(few_images.take(torch.arange(100))), tmp_path / "labels.csv")
    (tmp_path / "labels.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="cannot be read as corrected labels"):
        with_corrections(Data(few_images), tmp_path / "labels.csv")


def test_how_an_audit_was_called_is_known_if_it_can_be_repeated(tmp_path: Path) -> None:
    found = call_of(tmp_path, {"label": "x"}, None, {"seed": 3, "tell": print})
    assert found == {"data": str(tmp_path.resolve()), "open_as": {"label": "x"}, "corrected": None, "options": {"seed": 3}}
    assert call_of((np.ones((2, 2)), [0, 1]), None, None, {}) is None
    assert call_of(None, None, None, {"embed": print}) is None
