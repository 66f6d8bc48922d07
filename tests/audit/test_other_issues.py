"""Issues besides labels in an audit: the file, the shares, leaks between splits, a second data set, gates and the report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import mohs
from mohs.audit.gate import parse_gate
from mohs.audit.options import AuditOptions
from mohs.audit.other_issues import other_issues
from mohs.audit.pipeline import run_audit
from mohs.data.examples import Data, Examples
from mohs.issues.found import Found
from mohs.report.page import write_report


@pytest.fixture(scope="module")
def audited(few_images: Examples, tmp_path_factory: pytest.TempPathFactory) -> mohs.AuditResult:
    """Digits of which row 1 is a copy of row 0 with another label, and row 2 is empty."""
    inputs, labels = few_images.inputs.clone(), few_images.labels.clone()
    inputs[1], labels[1] = inputs[0], (labels[0] + 1) % 10
    inputs[2] = 0
    return run_audit(Data(replace(few_images, inputs=inputs, labels=labels)), out=tmp_path_factory.mktemp("issues") / "audit")


def test_issues_are_kept_in_the_folder(audited: mohs.AuditResult) -> None:
    assert (audited.folder / "issues.parquet").exists()
    assert audited.issues is not None
    again = mohs.load_audit(audited.folder)
    assert again.issues is not None
    assert again.issues.table.schema.equals(audited.issues.table.schema, check_metadata=True)
    assert again.issues.shares == audited.issues.shares
    assert again.issues.names()[:2] == ["conflicting_duplicate exact_duplicate near_duplicate"] * 2


def test_the_report_shows_them(audited: mohs.AuditResult, tmp_path: Path) -> None:
    page = write_report(audited, tmp_path / "report.html").read_text()
    assert 'id="issue-conflicting_duplicate"' in page
    assert "Copies with different labels <span>2, 0.8%</span>" in page
    assert 'id="issue-low_information"' in page
    assert 'id="issue-near_duplicate"' in page
    assert "The exact ones are shown above." in page
    section = page[page.index('id="issues"') : page.index('id="hardness"')]
    assert section.count("<img") >= 5
    assert "Checked and not found: " in section
    assert "Besides labels: copies with different labels (2, 0.8%)" in page


def test_a_report_without_issues_has_no_section(audited: mohs.AuditResult, tmp_path: Path) -> None:
    assert 'id="issues"' not in write_report(replace(audited, issues=None), tmp_path / "report.html").read_text()


def test_names_in_details_cannot_run(audited: mohs.AuditResult, tmp_path: Path) -> None:
    flag = np.arange(len(audited.table)) == 0
    found = Found(flag.astype(float), flag, details=[{"<b>column": "</script><script>window.hit = 1</script>"}])
    page = write_report(replace(audited, issues=mohs.Issues(len(flag), {"outlier": found})), tmp_path / "report.html").read_text()
    assert "window.hit = 1</script>" not in page
    assert "&lt;b&gt;column" in page


def test_gates_bound_issues_and_complain_where_they_were_not_looked_for(audited: mohs.AuditResult) -> None:
    shares = audited.shares
    assert not parse_gate("exact_duplicate<=0", ("exact_duplicate",)).holds(shares)
    assert parse_gate("dark<=5%", ("dark",)).holds(shares)
    with pytest.raises(ValueError, match="this audit has no leak: the data do not allow it, or --issues left it out"):
        parse_gate("leak<=0", ("leak",)).holds(shares)


def split(few_images: Examples) -> Data:
    """240 training digits, two of which are among 40 test digits: one as it is, one moved by a pixel."""
    images = few_images.inputs
    test = torch.randint(0, 256, (40, *images.shape[1:]), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    test[3], test[5] = images[10], images[20]
    return Data(few_images, test=replace(few_images.take(torch.arange(40)), inputs=test))


def test_leaks_between_splits(few_images: Examples) -> None:
    found = other_issues(split(few_images), AuditOptions(issues="leak"))
    assert found is not None
    assert list(found.found) == ["leak"]
    assert np.flatnonzero(found.found["leak"].flag).tolist() == [10, 20]
    assert [(one["training example"], one["split"], one["copy"]) for one in found.found["leak"].details] == [
        ("10", "test", "3"), ("20", "test", "5"),
    ]  # fmt: skip


def test_leaks_of_features_and_texts(few_features: Data) -> None:
    train = few_features.train
    copies = replace(train.take(torch.arange(30)), inputs=torch.cat([train.inputs[:2], torch.rand(28, train.shape[0])]))
    found = other_issues(Data(train, val=copies), AuditOptions(issues="leak"))
    assert found is not None
    assert {0, 1} <= set(np.flatnonzero(found.found["leak"].flag).tolist())
    words = [
        f"{a} {b} {c}"
        for a in ("red", "old", "big", "wet")
        for b in ("car", "dog", "sea", "hat", "pot")
        for c in ("sat", "ran", "fell")
    ]
    texts, given = words[:50], [i % 2 for i in range(50)]
    opened = mohs.open_data((texts, given)).train
    held = mohs.open_data((words[48:], [0, 1] * 6)).train
    found = other_issues(Data(opened, test=held), AuditOptions(issues="leak", embed="tfidf"))
    assert found is not None
    assert np.flatnonzero(found.found["leak"].flag).tolist() == [48, 49]


def test_a_second_data_set_and_sizes_of_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, count in (("train", 40), ("test", 20)):
        for label in ("a", "b"):
            (tmp_path / name / label).mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(0, 256, (24, 24, 3), dtype=np.uint8)
                Image.fromarray(pixels).resize((200, 20) if (name, label, i) == ("train", "a", 7) else (48, 48)).save(
                    tmp_path / name / label / f"{i:02}.png"
                )
    (tmp_path / "test/b/00.png").write_bytes((tmp_path / "train/a/03.png").read_bytes())
    train = mohs.open_data(tmp_path / "train")
    assert train.train.sizes is not None
    assert train.train.sizes[7].tolist() == [20, 200]
    found = other_issues(train, AuditOptions(issues="leak,odd_aspect", against=str(tmp_path / "test")))
    assert found is not None
    assert np.flatnonzero(found.found["leak"].flag).tolist() == [3]
    assert found.found["leak"].details[0]["split"] == "test train"
    assert np.flatnonzero(found.found["odd_aspect"].flag).tolist() == [7]


def test_nothing_is_looked_for_unless_wanted(few_images: Examples) -> None:
    assert other_issues(Data(few_images), AuditOptions(issues="none")) is None
    with pytest.raises(ValueError, match="issue 'leak' needs a validation or test split"):
        run_audit(Data(few_images), issues="leak")
    with pytest.raises(ValueError, match="unknown issue 'leeks'"):
        AuditOptions(issues="leeks")


def test_constant_columns_that_the_reader_dropped_are_counted(tmp_path: Path) -> None:
    rows = [f"{'rgb'[i % 3]},same,{'x' if i % 2 else 'y'}" for i in range(60)]
    (tmp_path / "rows.csv").write_text("\n".join(["color,one,label", *rows]))
    found = other_issues(mohs.open_data(tmp_path / "rows.csv"), AuditOptions(issues="constant_column"))
    assert found is not None
    assert found.found["constant_column"].details == [{"column": "one", "value": "one or none; dropped"}]
    assert found.shares == {"constant_column": 0.5}
