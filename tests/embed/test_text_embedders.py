"""Text features: wordllama without a network, TF-IDF, and both."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import mohs
from mohs.embed.choose_embedder import create_embedder

TEXTS = [f"the {color} car drives on road {i}" for i in range(15) for color in ("red", "blue")]
OTHERS = [f"a tall tree with {color} leaves and birds, {i}" for i in range(15) for color in ("green", "yellow")]


def run(name, texts):
    return create_embedder(name, kind="text").load(texts)(texts)


@pytest.mark.usefixtures("no_network")
def test_wordllama_needs_no_network():
    pytest.importorskip("wordllama")
    found = run("wordllama", ["a dog", "a puppy", "tax law", ""])
    assert found.shape == (4, 256)
    assert torch.allclose(found.norm(dim=1), torch.tensor([1.0, 1.0, 1.0, 0.0]), atol=1e-5)
    assert found[0] @ found[1] > found[0] @ found[2]


def test_wordllama_matches_the_package():
    pytest.importorskip("wordllama")
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer
    from wordllama.inference import WordLlamaInference

    from mohs.embed.text_embedders import TOKENIZER, WEIGHTS, _wordllama_folder

    folder = _wordllama_folder()
    table = load_file(folder / WEIGHTS)["embedding.weight"]
    theirs = WordLlamaInference(table, Tokenizer.from_file(str(folder / TOKENIZER))).embed(TEXTS[:5], norm=True)
    assert np.allclose(run("wordllama", TEXTS[:5]).numpy(), theirs, atol=1e-5)


@pytest.mark.parametrize("name", ["tfidf", "text"])
def test_topics_are_separated(name):
    if name == "text":
        pytest.importorskip("wordllama")
    found = run(name, TEXTS + OTHERS)
    likeness = found @ found.T
    assert likeness[:30, :30].mean() > likeness[:30, 30:].mean() + 0.2
    blocks = found.split(256, dim=1) if name == "text" else [found]
    for block in blocks:
        assert torch.allclose(block.square().sum(1).mean(), torch.ones(()), atol=1e-3)
        assert block.mean(0).abs().max() < 1e-4


def test_tfidf_is_fitted_to_the_training_texts_alone():
    data = {"text_train": TEXTS + OTHERS, "y_train": ["car"] * 30 + ["tree"] * 30, "text_test": TEXTS[:4], "y_test": ["car"] * 4}
    found = mohs.embed(data, "tfidf", cache=False)
    assert torch.allclose(torch.as_tensor(found.data.test.inputs), found.features[:4], atol=1e-5)


def test_texts_without_common_terms():
    found = run("tfidf", ["", "?", "a", "a b"])
    assert len(found) == 4
    assert not found[0].any()
    with pytest.raises(mohs.DataError, match="share no words"):
        run("tfidf", ["", ""])


def test_equal_texts_and_texts_of_equal_words():
    """Of no variance, which scikit-learn divides by; warnings are errors here."""
    assert run("tfidf", ["the same text"] * 12).std(0).max() < 1e-6
    assert len(run("tfidf", ["word " * 10 + "and", "word " * 20 + "and"] * 6)) == 12


def test_odd_texts():
    found = run("tfidf", ["lone \udcff surrogate", "日本語 の 文章", "x" * 50_000, "🙂 emoji"])
    assert found.isfinite().all()
