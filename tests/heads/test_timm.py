"""A margin head on a timm backbone: trained with labels, evaluated, scored and saved without them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import mohs

timm = pytest.importorskip("timm", reason="timm is not installed (the vision extra)")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", ["resnet10t", "vit_tiny_patch16_224", "convnext_atto", "mobilenetv3_small_050"])
def test_arcface_replaces_the_classifier(name: str) -> None:
    torch.manual_seed(0)
    sized = {"img_size": 32} if name.startswith("vit") else {}
    body = timm.create_model(name, num_classes=0, **sized)
    images, labels = torch.randn(8, 3, 32, 32), torch.arange(8) % 4
    width = body.eval()(images[:1]).shape[1]  # some timm models widen their features after num_features
    head = mohs.ArcFaceHead(width, 4)
    model = nn.Sequential(body, head)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.train()
    before = head.weight.detach().clone()
    features = body(images)
    loss = mohs.CrossEntropyLoss()(head(features, labels), labels)
    loss.backward()
    optimizer.step()
    assert loss.isfinite()
    assert not torch.equal(head.weight, before)
    assert next(body.parameters()).grad.abs().sum() > 0
    with pytest.raises(ValueError, match="needs labels for its margin"):
        model(images)
    with torch.no_grad():
        logits = model.eval()(images)  # without the margin
        torch.testing.assert_close(logits, head.logits(body(images)))
        with_margin = head(body(images), labels)
    own = torch.arange(8), labels
    assert (with_margin[own] < logits[own]).all()
    assert mohs.find_head(model).module is head
    table = mohs.score(model, list(zip(images, labels.tolist(), strict=True)))
    assert table.column("avh").null_count == 0
    other = nn.Sequential(timm.create_model(name, num_classes=0, **sized), mohs.ArcFaceHead(width, 4))
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other.eval()(images), logits)
