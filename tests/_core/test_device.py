"""The choice of a device."""

from __future__ import annotations

import pytest
import torch

from mohs._core.device import choose_device


def test_words_and_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("auto") == choose_device("cuda") == torch.device("cuda")
    assert choose_device("cuda:1") == choose_device(torch.device("cuda", 1)) == torch.device("cuda:1")
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device(torch.device("meta")) == torch.device("meta")
    with pytest.raises(ValueError, match=r"device=cuda:2, but torch sees only 2 GPU\(s\)"):
        choose_device("cuda:2")


def test_a_missing_gpu_and_an_unknown_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device() == torch.device("cpu")
    for word in ("cuda", "cuda:1"):
        with pytest.raises(ValueError, match=f"device={word}, but torch sees no GPU: use device=cpu"):
            choose_device(word)
    for word in ("gpu", "cuda:", "cuda:x", "tpu:0"):
        with pytest.raises(ValueError, match="device must be auto, cpu, cuda or one GPU"):
            choose_device(word)
