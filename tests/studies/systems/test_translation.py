"""Transformers side by side: each is torch's, trains as it would alone, and learns to translate a synthetic language."""

from __future__ import annotations

import builtins
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mohs._core.errors import DataError
from mohs.studies.recipe import read_recipe
from mohs.studies.run_study import run_study
from mohs.studies.systems import translation_data
from mohs.studies.systems.translation import Translation, batches, mean_losses, padded, rate, train_networks
from mohs.studies.systems.translation_data import END, PAD, START, Corpus, read_corpus, synthetic
from mohs.studies.systems.translation_net import Transformers

pytest.importorskip("sacrebleu", reason="sacrebleu is not installed (the translation extra)")
RECIPE = Path(__file__).parents[3] / "recipes/el/translation.toml"
SMALL: dict[str, Any] = {"data": "synthetic", "width": 32, "hidden": 64, "layers": 1, "tokens": 200, "warmup": 60, "dropout": 0.0}


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return synthetic()


def torchs(net: Transformers, at: int, source: Tensor, target: Tensor) -> Tensor:
    """The logits of one network, by the layers of torch.nn."""
    own = {name: value[at] for name, value in net.weights.items()}

    def attention(layer: nn.MultiheadAttention, name: str) -> None:
        layer.in_proj_weight.data = torch.cat([own[f"{name}_query"], own[f"{name}_key_value"]], 1).T
        layer.in_proj_bias.data = torch.cat([own[f"{name}_query_bias"], own[f"{name}_key_value_bias"]])
        linear(layer.out_proj, f"{name}_out")

    def linear(layer: nn.Linear, name: str) -> None:
        layer.weight.data, layer.bias.data = own[name].T, own[f"{name}_bias"]

    def norm(layer: nn.LayerNorm, name: str) -> None:
        layer.weight.data, layer.bias.data = own[f"{name}_norm"]

    shape = {"dim_feedforward": 12, "dropout": 0.0, "batch_first": True, "norm_first": True}
    encoder, decoder = (kind(8, 2, **shape) for kind in (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer))
    for side, layer in (("encoder0", encoder), ("decoder0", decoder)):
        attention(layer.self_attn, f"{side}_self")
        linear(layer.linear1, f"{side}_feed_in")
        linear(layer.linear2, f"{side}_feed_out")
    attention(decoder.multihead_attn, "decoder0_cross")
    for layer, names in ((encoder, ("self", "feed")), (decoder, ("self", "cross", "feed"))):
        for i, name in enumerate(names, 1):
            norm(getattr(layer, f"norm{i}"), f"{'decoder' if layer is decoder else 'encoder'}0_{name}")
    ends = [nn.LayerNorm(8), nn.LayerNorm(8)]
    norm(ends[0], "encoder")
    norm(ends[1], "decoder")
    memory = ends[0](encoder(net.embed(source[None].expand(2, -1, -1))[at], src_key_padding_mask=source == PAD))
    later = nn.Transformer.generate_square_subsequent_mask(target.shape[1]).isinf()
    given = net.embed(target[None].expand(2, -1, -1))[at]
    out = ends[1](decoder(given, memory, tgt_mask=later, memory_key_padding_mask=source == PAD))
    return out @ own["table"].T


def test_each_network_is_torchs() -> None:
    net = Transformers(20, [3, 4], width=8, hidden=12, heads=2, layers=1)
    draw = torch.Generator().manual_seed(0)
    for weight in net.parameters():  # biases too
        weight.data += 0.1 * torch.randn(weight.shape, generator=draw)
    net.eval()
    source, target = (padded([torch.randint(4, 20, (n,), generator=draw).tolist() for n in (5, 3, 7)]) for _ in range(2))
    ours = net(source.expand(2, -1, -1), target.expand(2, -1, -1))
    for i in range(2):
        torch.testing.assert_close(ours[i], torchs(net, i, source, target), rtol=1e-4, atol=1e-5)


def test_networks_side_by_side_end_as_alone(corpus: Corpus) -> None:
    """With other losses beside them too: weights and batches belong to the seed; only the order of lengths is shared."""
    one, other = (Translation(**SMALL, epochs=2, seed=s, loss=loss) for s, loss in ((5, "cross_entropy"), (6, "encouraging")))
    together = train_networks([one, other], corpus, torch.device("cpu"))
    for run, found in zip((one, other), together, strict=True):
        (alone,) = train_networks([run], corpus, torch.device("cpu"))
        assert found["loss"] == pytest.approx(alone["loss"], rel=1e-3)
    assert together[0]["loss"] != pytest.approx(together[1]["loss"], rel=0.01)


def test_it_learns_to_translate(corpus: Corpus) -> None:
    before, after = (train_networks([Translation(**SMALL, epochs=n)], corpus, torch.device("cpu"))[0] for n in (1, 25))
    assert after["bleu"] > 10 > before["bleu"]


def test_translations_end(corpus: Corpus) -> None:
    net = Transformers(len(corpus.pieces), [0, 1], width=8, hidden=8, heads=2, layers=1).eval()
    source = padded(corpus.pairs["test"][0])
    made = net.translate(source.expand(2, -1, -1), longest=9)
    assert made.shape[:2] == (2, len(source))
    assert made.shape[2] <= 9
    greedy = net(source.expand(2, -1, -1), torch.cat([torch.full((2, len(source), 1), START), made], -1))[:, :, :-1].argmax(-1)
    assert torch.equal(greedy, made)


def test_batches_hold_every_sentence_once_and_are_about_equally_long(corpus: Corpus) -> None:
    draws = [torch.Generator().manual_seed(seed) for seed in (0, 1)]
    made = list(batches(corpus.pairs["train"], 100, draws, epoch=0))
    assert all(one.shape[1] * 4 <= 100 + 7 for one in made)  # the shortest sentence has 4 pieces, the longest 7
    for at in (0, 1):
        assert sorted(row for one in made for row in one[at].tolist()) == list(range(200))
    assert any(not torch.equal(one[0], one[1]) for one in made)


def test_the_mean_loss_leaves_out_padding() -> None:
    loss = Translation(loss="cross_entropy").create_loss()
    loss.ignore_index, loss.reduction = PAD, "none"
    logits = torch.randn(2, 3, 4, 9, generator=torch.Generator().manual_seed(0))
    wanted = torch.full((2, 3, 4), PAD)
    wanted[0, :2] = torch.tensor([5, 6, 7, END])
    wanted[1, 2, :3] = torch.tensor([5, 8, END])
    found = mean_losses(loss, logits, wanted)
    for i in range(2):
        want = nn.functional.cross_entropy(logits[i].flatten(0, 1), wanted[i].flatten(), ignore_index=PAD)
        assert found[i].item() == pytest.approx(want.item(), rel=1e-5)


def test_the_learning_rate_rises_and_falls() -> None:
    assert [rate(step, 100) for step in (1, 50, 100, 400)] == pytest.approx([0.01, 0.5, 1, 0.5])


def test_pieces_are_read_without_sentencepiece(tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """A corpus written on one machine is the same on another, which has only the texts."""
    pytest.importorskip("sentencepiece", reason="sentencepiece is not installed (the translation extra)")
    import gzip

    home = tmp_path / "tiny"
    home.mkdir()
    for part, file in translation_data.PARTS.items():
        lines = [f"Sätze, {text}!" for text in corpus.references[part]]
        for language in translation_data.LANGUAGES:
            (home / f"{file}.{language}.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    monkeypatch.setenv("MOHS_DATA", str(tmp_path))
    made = read_corpus("tiny", pieces=45)
    assert made.text(made.pairs["test"][1][0]) == made.references["test"][0] == f"Sätze, {corpus.references['test'][0]}!"
    made.save(home / "pieces-45.npz")
    imported = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "sentencepiece":
            raise ModuleNotFoundError(name=name)
        return imported(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    assert read_corpus("tiny", pieces=45) == made
    (home / "pieces-45.npz").unlink()
    with pytest.raises(ModuleNotFoundError, match=r"write pieces-45.npz on another machine"):
        read_corpus("tiny", pieces=45)
    shutil.rmtree(home)
    with pytest.raises(DataError, match=r"train.en.gz: no such file"):
        read_corpus("tiny", pieces=45)


def test_the_recipe_runs(tmp_path: Path) -> None:
    recipe = read_recipe(RECIPE, scale="smoke")
    results = run_study(recipe, runs=tmp_path, device="cpu")
    assert [one["row"] for one in results] == [row.label for row in recipe.rows]
    assert all({"bleu", "bleu_2017", "val_bleu", "loss", "git"} <= set(one) for one in results)
