"""`mohs embed`: a file of features, and what it says."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import mohs
from mohs.cli import app


@pytest.fixture
def texts(tmp_path, monkeypatch):
    monkeypatch.setenv("MOHS_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "reviews.csv"
    rows = [f"{i},a good film number {i},pos\n{i + 50},bad boring film number {i},neg\n" for i in range(20)]
    file.write_text("id,review,label\n" + "".join(rows))
    return file


def test_text_to_parquet(texts, tmp_path):
    out = tmp_path / "features.parquet"
    words = ["embed", str(texts), "--with", "tfidf", "--text", "review", "--out", str(out)]
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 0, found.output
    assert "Features: TF-IDF of words and characters" in found.output
    data = mohs.open_data(out).train
    assert list(data.keys)[:3] == [0, 50, 1]
    again = CliRunner().invoke(app, [*words, "--json"])
    assert json.loads(again.stdout)["cached"]


def test_what_is_left_out_is_told(tmp_path):
    file, out = tmp_path / "rows.csv", tmp_path / "out.npz"
    file.write_text("text,label\na b,x\nc d,y\n,x\ne f,\n")
    words = ["embed", str(file), "--with", "tfidf", "--out", str(out)]
    found = CliRunner().invoke(app, words)
    assert f"2 left out (the first: {file}, line 5: no label)" in found.output, found.output
    assert json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)["skipped"] == 2


def test_texts_without_labels(texts, tmp_path):
    rows = texts.read_text().splitlines()
    texts.write_text("\n".join(row.rpartition(",")[0] for row in rows))
    out = tmp_path / "features.npz"
    found = CliRunner().invoke(app, ["embed", str(texts), "--with", "tfidf", "--text", "review", "--out", str(out)])
    assert found.exit_code == 0, found.output
    assert "40 examples without labels in" in found.output
    again = CliRunner().invoke(app, ["audit", str(out)])
    assert "features: 'features' has no labels beside it: call theirs one of label, " in str(again.exception)


def test_wrong_endings_are_refused_first(texts):
    found = CliRunner().invoke(app, ["embed", str(texts), "--out", "features.csv"])
    assert isinstance(found.exception, ValueError)
    assert "end in .npz or .parquet" in str(found.exception)


def test_a_function_in_the_working_folder(tmp_path, texts, monkeypatch):
    (tmp_path / "my_counts.py").write_text("def counts(texts):\n    return [[len(t), t.count('o')] for t in texts]\n")
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(app, ["embed", texts.name, "--with", "my_counts:counts", "--out", "features.npz"])
    assert found.exit_code == 0, found.output
    assert "2 dimensions" in found.output
    assert mohs.open_data(tmp_path / "features.npz").train.shape == (2,)
