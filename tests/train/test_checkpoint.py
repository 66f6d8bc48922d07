"""Checkpoints: whole or not at all, any tree, no pickle."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mohs import DataError
from mohs._core.files import written_whole
from mohs.train.checkpoint import host_copy, load_tree, save_tree


def test_a_tree_round_trips(tmp_path: Path) -> None:
    shared = torch.arange(6.0).view(2, 3)
    tree = {
        "a": shared,
        "the same memory": shared[0],
        "numbers": {0: {"step": torch.tensor(3)}, 1: {"x": 1.5}},
        "list": [1, None, "text", True, torch.zeros(0, dtype=torch.int8)],
        "half": torch.tensor([1.5, float("nan")], dtype=torch.bfloat16),
    }
    save_tree(tree, tmp_path / "c.safetensors")
    back = load_tree(tmp_path / "c.safetensors")
    assert torch.equal(back["a"], shared)
    assert torch.equal(back["the same memory"], shared[0])
    assert back["numbers"][0]["step"] == 3
    assert back["numbers"][1] == {"x": 1.5}
    assert back["list"][:4] == [1, None, "text", True]
    assert back["list"][4].dtype == torch.int8
    assert back["half"].dtype == torch.bfloat16


def test_a_copy_on_the_host_stays_as_it_was() -> None:
    tree = {
        "odd": torch.tensor([True, False, True]),
        "image": torch.arange(24.0).view(1, 2, 3, 4).contiguous(memory_format=torch.channels_last),
        "numbers": {0: {"step": torch.tensor(3), "none": torch.zeros(0, 4)}},
        "half": torch.tensor([1.5], dtype=torch.bfloat16),
        "history": [{"epoch": 0}],
    }
    copy = host_copy(tree)
    for tensor in (tree["odd"], tree["image"], tree["numbers"][0]["step"], tree["half"]):  # type: ignore[index]
        tensor.zero_()
    tree["history"].append({"epoch": 1})  # type: ignore[attr-defined]
    assert copy["odd"].tolist() == [True, False, True]
    assert torch.equal(copy["image"], torch.arange(24.0).view(1, 2, 3, 4))
    assert copy["numbers"][0]["step"] == 3
    assert copy["numbers"][0]["none"].shape == (0, 4)
    assert copy["half"].item() == 1.5
    assert copy["history"] == [{"epoch": 0}]


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "c"
    path.write_text("old")

    def fail() -> None:
        with written_whole(path) as part:
            part.write_text("half of the ne")
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("text", ["", "no checkpoint", "x" * 5000])
def test_a_damaged_file_is_named_with_what_to_do(tmp_path: Path, text: str) -> None:
    path = tmp_path / "checkpoint.safetensors"
    path.write_text(text)
    with pytest.raises(DataError, match=r"checkpoint.safetensors is damaged .* remove this file and run the same command again"):
        load_tree(path)
