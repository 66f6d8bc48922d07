"""`embed`: kinds of data, the cache, resuming, and errors."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image

import mohs
from mohs.embed import embed_data, feature_cache
from mohs.embed.choose_embedder import create_embedder
from mohs.embed.embed_data import Worker, cache_part, inputs_hash
from mohs.embed.feature_cache import open_features, write_features

LABELS = ["a", "b"] * 10


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MOHS_CACHE", str(tmp_path / "cache"))


def images(rows: int = 20, channels: int = 3, side: int = 8) -> torch.Tensor:
    return torch.randint(0, 256, (rows, channels, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def mean_color(batch):
    assert batch.dtype == torch.uint8
    return batch.float().mean((2, 3))


def lengths(batch):
    assert all(isinstance(one, str) for one in batch)
    return np.array([[len(one), one.count("e")] for one in batch])


def test_a_function_embeds_images():
    x = images()
    found = mohs.embed((x, LABELS), mean_color)
    assert torch.allclose(found.features, x.float().mean((2, 3)))
    assert found.train.classes == ["a", "b"]
    assert found.train.kind == "features"
    assert found.embedder.endswith(":mean_color")
    assert "3 dimensions" in found.summary()


def test_a_function_embeds_text():
    found = mohs.embed((["one", "three"] * 10, LABELS), lengths)
    assert found.features[:2].tolist() == [[3, 1], [5, 2]]


def test_floating_point_images_reach_a_function_as_bytes():
    x = torch.rand(20, 3, 8, 8)
    found = mohs.embed((x, LABELS), mean_color)
    assert torch.allclose(found.features / 255, x.mean((2, 3)), atol=1 / 255)


def test_features_are_unchanged():
    x = torch.rand(20, 5)
    found = mohs.embed((x, LABELS), "lite0")
    assert torch.equal(found.features, x)
    assert found.embedder == "features"


def test_tables_are_refused(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("size,color,label\n" + "".join(f"{i},{'red' if i % 3 else ''},{'ab'[i % 2]}\n" for i in range(40)))
    with pytest.raises(mohs.DataError, match="table is not embedded: `mohs audit` judges tables"):
        mohs.embed(file)


def test_the_second_call_reads_the_cache_whatever_the_labels():
    first = mohs.embed((images(), LABELS), mean_color)
    again = mohs.embed((images(), LABELS[::-1]), mean_color)
    other = mohs.embed((images() // 2, LABELS), mean_color)
    assert not first.cached
    assert again.cached
    assert not other.cached
    assert torch.equal(first.features, again.features)
    about = json.loads((first.folders["train"] / "about.json").read_text())
    assert about["rows"] == 20


def test_some_rows_of_cached_features_are_cached_apart():
    whole = mohs.open_data((images(), LABELS)).train
    rows = torch.tensor([0, 3, 4, 17])
    assert not cache_part(whole, rows, mean_color)  # nothing is cached yet
    every = mohs.embed(mohs.Data(whole), mean_color)
    assert cache_part(whole, rows, mean_color)
    part = mohs.embed(mohs.Data(whole.take(rows)), mean_color)
    assert part.cached
    assert torch.equal(part.features, every.features[rows])
    assert not cache_part(whole, rows, lambda batch: batch.float().mean((2, 3)))  # a function without a name is not cached


def test_cached_features_are_not_written_through():
    first = mohs.embed((images(), LABELS), mean_color)
    first.features.zero_()
    assert mohs.embed((images(), LABELS), mean_color).features.abs().sum() > 0


def test_without_a_cache_nothing_is_written(tmp_path):
    found = mohs.embed((images(), LABELS), mean_color, cache=False)
    assert not found.folders
    assert not (tmp_path / "cache").exists()


def test_local_functions_are_not_cached():
    scale = 2.0
    found = mohs.embed((images(), LABELS), lambda batch: batch.float().mean((2, 3)) * scale)
    assert not found.folders


def test_an_interrupted_embedding_resumes(monkeypatch):
    monkeypatch.setattr(feature_cache, "BLOCK_SECONDS", -1.0)
    data = mohs.open_data((images(), LABELS)).train
    rows: list[int] = []

    def run(stop):
        def function(batch):
            rows.append(len(batch))
            if sum(rows) > stop:
                raise KeyboardInterrupt
            return mean_color(batch)

        embedder = embed_data.replace(create_embedder(mean_color, kind="images"), load=lambda inputs: function, batch=4)
        return embed_data.embed_inputs(Worker(embedder, data.inputs), data)

    with pytest.raises(KeyboardInterrupt):
        run(10)
    rows.clear()
    features, folder, cached = run(99)
    assert rows == [4, 4, 4]  # 8 of 20 rows were saved
    assert not cached
    assert not (folder / "progress.json").exists()
    assert torch.allclose(features, data.inputs.float().mean((2, 3)))


def test_a_damaged_cache_is_written_again(monkeypatch):
    first = mohs.embed((images(), LABELS), mean_color)
    folder = first.folders["train"]
    (folder / "DONE").unlink()
    (folder / "progress.json").write_text("{")
    again = mohs.embed((images(), LABELS), mean_color)
    assert not again.cached
    assert torch.equal(again.features, images().float().mean((2, 3)))


def test_large_features_are_kept_in_half_precision(monkeypatch):
    monkeypatch.setattr(feature_cache, "HALF_FROM", 10)
    found = mohs.embed((images(), LABELS), mean_color)
    assert found.features.dtype == torch.float16


def test_an_unwritable_cache_is_reported(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MOHS_CACHE", str(tmp_path / "file"))
    told: list[str] = []
    found = mohs.embed((images(), LABELS), mean_color, tell=told.append)
    assert len(found.features) == 20
    assert "set MOHS_CACHE" in told[0]
    with pytest.raises(mohs.RunError, match="give another cache folder"):
        mohs.embed((images(), LABELS), mean_color, cache=tmp_path / "file")


@pytest.mark.parametrize("limit", [2 * 10**9, 0])
def test_files_are_decoded_on_access_or_at_once(tmp_path, limit):
    for i, pixels in enumerate(images(6).permute(0, 2, 3, 1).numpy()):
        file = tmp_path / "photos" / "ab"[i % 2] / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file)
    seen: list[tuple[int, int]] = []
    found = mohs.embed(tmp_path / "photos", mean_color, batch=4, memory_limit=limit, progress=lambda *at: seen.append(at))
    order = [int(str(key).rpartition("/")[2].partition(".")[0]) for key in found.train.keys]
    assert torch.allclose(found.features, images(6).float().mean((2, 3))[order])
    assert seen == [(4, 6), (6, 6)]


def test_files_that_change_in_place_are_embedded_again(tmp_path):
    for name in "ab":
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.fromarray(images(1)[0].permute(1, 2, 0).numpy()).save(tmp_path / "photos" / name / "0.bmp")
    opened = mohs.open_data(tmp_path / "photos", memory_limit=0).train
    before = inputs_hash(opened.inputs)
    Image.fromarray(255 - images(1)[0].permute(1, 2, 0).numpy()).save(tmp_path / "photos" / "a" / "0.bmp")
    assert inputs_hash(opened.inputs) != before


def test_splits_share_one_embedder():
    x = images(30)
    found = mohs.embed({"x_train": x[:20], "y_train": LABELS, "x_test": x[20:], "y_test": LABELS[:10]}, mean_color)
    assert torch.allclose(torch.as_tensor(found.data.test.inputs), x[20:].float().mean((2, 3)))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda batch: torch.zeros(len(batch)), r"returned torch.float32 \(20,\) for a batch of 20; expected \(20, D\)"),
        (lambda batch: torch.zeros(3, 2), r"\(3, 2\) for a batch of 20; expected \(20, D\)"),
        (lambda batch: torch.full((len(batch), 2), torch.nan), "returned NaN or infinity"),
    ],
)
def test_wrong_results_of_a_function(function, message):
    with pytest.raises(mohs.DataError, match=message):
        mohs.embed((images(), LABELS), function)


def test_an_error_in_a_function_is_named():
    def broken(batch):
        raise IndexError("no such layer")

    with pytest.raises(mohs.RunError, match=r"broken: failed on a batch of 20 \(IndexError: no such layer\)"):
        mohs.embed((images(), LABELS), broken)


def test_a_batch_that_does_not_fit_is_halved():
    sizes: list[int] = []

    def small(batch):
        sizes.append(len(batch))
        if len(batch) > 5:
            raise torch.cuda.OutOfMemoryError
        return mean_color(batch)

    embedder = embed_data.replace(create_embedder(mean_color, kind="images"), load=lambda inputs: small, batch=16)
    data = mohs.open_data((images(), LABELS)).train
    features, _, _ = embed_data.embed_inputs(Worker(embedder, data.inputs), data, cache=False)
    assert torch.allclose(features, data.inputs.float().mean((2, 3)))
    assert sizes[:3] == [16, 8, 4]
    assert sizes[-1] == 4


def test_damaged_features_are_made_again(tmp_path):
    def block(first):
        yield torch.arange(first * 3, 30, dtype=torch.float32).view(-1, 3)

    made = write_features(tmp_path, 10, {"hash": "1"}, block).clone()
    file = tmp_path / "features.npy"
    assert open_features(tmp_path) is not None
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)
    assert open_features(tmp_path) is None
    assert torch.equal(write_features(tmp_path, 10, {"hash": "1"}, block), made)
    assert open_features(tmp_path) is not None


def test_damage_in_the_rows_so_far_is_noticed_when_embedding_resumes(tmp_path, monkeypatch):
    monkeypatch.setattr(feature_cache, "BLOCK_SECONDS", -1.0)
    starts = []

    def blocks(stop):
        def made(first):
            starts.append(first)
            for row in range(first, 10):
                if row == stop:
                    raise KeyboardInterrupt
                yield torch.full((1, 3), float(row))

        return made

    with pytest.raises(KeyboardInterrupt):
        write_features(tmp_path, 10, {"hash": "1"}, blocks(6))
    features = np.load(tmp_path / "features.npy", mmap_mode="r+")
    features[2, 1] = 7.0
    features.flush()
    found = write_features(tmp_path, 10, {"hash": "1"}, blocks(None))
    assert starts == [0, 0]
    assert found[:, 1].tolist() == list(range(10))
