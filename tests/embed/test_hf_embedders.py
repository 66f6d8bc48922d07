"""Models of transformers from a folder: which vector is taken."""

from __future__ import annotations

import json

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
