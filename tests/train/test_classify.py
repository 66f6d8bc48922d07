"""`Trained.predict`: new inputs are read and embedded as those of the training were, found by the names of their columns."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from PIL import Image

from mohs._core.errors import DataError
from mohs.data.examples import Data, Examples
from mohs.data.open_data import open_data
from mohs.train.loop import train
from mohs.train.run_features import FITTED_TO
from mohs.train.trained import Trained, load_run

NAMES = ("age", "city", "paid", "since")
ANIMALS = ("cat", "dog", "horse", "bird")


def write_rows(path: Path, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    return path


def customers(number: int, seed: int) -> list[list[Any]]:
    """Rows whose class, the last cell, is decided by the city and the age."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(number):
        age, city = int(random.integers(18, 80)), str(random.choice(["Oslo", "Rome", "Bern"]))
        day = f"2024-{random.integers(1, 13):02}-{random.integers(1, 29):02}"
        leaves = city == "Rome" or (city == "Oslo" and age > 50)
        age_cell = "" if random.random() < 0.05 else age
        found.append([age_cell, city, "yes" if random.random() < 0.5 else "no", day, "leaves" if leaves else "stays"])
    return found


@pytest.fixture(scope="module")
def table_run(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("table")
    path = write_rows(folder / "customers.csv", [*NAMES, "label"], customers(500, 0))
    return train(str(path), out=folder / "run", epochs=15, optimizer="sgd:lr=0.05", validation=0, device="cpu")


def test_a_table_is_encoded_and_its_run_classifies_new_rows(table_run: Trained, tmp_path: Path) -> None:
    assert table_run.run.embed == "columns"
    new = customers(200, 1)
    found = load_run(table_run.folder).predict(write_rows(tmp_path / "new.csv", [*NAMES, "label"], new))
    assert found.column_names == ["id", "predicted", "confidence"]
    predicted = found.column("predicted").to_pylist()
    assert np.mean([one == row[-1] for one, row in zip(predicted, new, strict=True)]) > 0.9
    other = [[row[i] for i in (3, 1, 0, 2)] for row in new]  # without labels, in another order
    assert table_run.predict(write_rows(tmp_path / "other.csv", ["since", "city", "age", "paid"], other)).equals(found)
    frame = pa.table({name: [str(row[i]) for row in new] for i, name in enumerate(NAMES)})
    assert table_run.predict(frame, probs=True).column("p_stays").to_numpy() == pytest.approx(
        [
            one if guess == "stays" else 1 - one
            for one, guess in zip(found.column("confidence").to_pylist(), predicted, strict=True)
        ],
        abs=1e-5,
    )


def test_rows_one_at_a_time_are_classified_as_all_together(table_run: Trained, tmp_path: Path) -> None:
    new = customers(5, 2)
    together = table_run.predict(write_rows(tmp_path / "all.csv", [*NAMES, "label"], new)).column("confidence").to_pylist()
    for i, row in enumerate(new):
        alone = table_run.predict(write_rows(tmp_path / f"{i}.csv", [*NAMES, "label"], [row]))
        assert alone.column("confidence").to_pylist() == pytest.approx([together[i]], abs=1e-5)


def test_cells_that_were_not_seen_are_no_error_but_missing_columns_are(table_run: Trained, tmp_path: Path) -> None:
    odd = write_rows(
        tmp_path / "odd.csv", NAMES, [["old", "Atlantis", "perhaps", "soon"], ["", "", "", ""], [33, "Rome", "yes", ""]]
    )
    assert len(table_run.predict(odd)) == 3
    lacking = write_rows(tmp_path / "lacking.csv", ["age", "town", "paid", "since"], [[33, "Rome", "yes", ""]])
    with pytest.raises(DataError, match=r"lacking\.csv: no column 'city'; its columns: age, town, paid, since"):
        table_run.predict(lacking)
    with pytest.raises(DataError, match="no rows below the header"):
        table_run.predict(write_rows(tmp_path / "empty.csv", NAMES, []))
    (table_run.folder / FITTED_TO).rename(tmp_path / "kept")
    try:
        with pytest.raises(DataError, match="train the run again"):
            load_run(table_run.folder).predict(odd)
    finally:
        (tmp_path / "kept").rename(table_run.folder / FITTED_TO)


def test_numbers_are_found_by_the_names_of_their_columns(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 3))
    labels = np.where(x[:, 0] > x[:, 1], "a", "b")
    names = ["first", "second", "third"]
    path = write_rows(
        tmp_path / "train.csv", [*names, "label"], [[*row, one] for row, one in zip(x.tolist(), labels, strict=True)]
    )
    run = train(str(path), out=tmp_path / "run", epochs=10, optimizer="sgd:lr=0.1", validation=0, device="cpu")
    assert run.run.embed is None
    assert json.loads((run.folder / "run.json").read_text())["inputs"]["columns"] == names
    turned = write_rows(
        tmp_path / "new.csv", ["third", "extra", "second", "first"], [[row[2], 0, row[1], row[0]] for row in x.tolist()]
    )
    predicted = run.predict(turned).column("predicted").to_pylist()
    assert np.mean(np.array(predicted) == labels) > 0.95
    assert run.predict(x.astype(np.float32)).column("predicted").to_pylist() == predicted
    for cell, message in (("", "is missing"), ("many", "is 'many', not a number")):
        bad = write_rows(tmp_path / "bad.csv", names, [[1, 2, 3], [1, cell, 3]])
        with pytest.raises(DataError, match=rf"bad\.csv, line 3: 'second' {message}; 1 row\(s\) lack it: fill them in"):
            run.predict(bad)
    with pytest.raises(DataError, match=r"has features of shape \(2,\), not \(3,\)"):
        run.predict(np.zeros((4, 2), dtype=np.float32))


def test_texts_are_embedded_by_what_the_run_kept(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    words = {"sea": "wave boat fish harbor tide", "hill": "rock goat snow valley path"}

    def sentences(number: int) -> list[list[str]]:
        return [[" ".join(random.choice(words[one].split(), 6)), one] for one in random.choice(list(words), number)]

    path = write_rows(tmp_path / "texts.csv", ["review", "label"], sentences(120))
    for embed in ("tfidf", None):  # one that is fitted to the texts, and the default
        run = train(
            str(path),
            open={"text": "review"},
            embed=embed,
            out=tmp_path / f"run-{embed}",
            epochs=10,
            validation=0,
            device="cpu",
        )
        assert (run.folder / FITTED_TO).is_file() == (embed == "tfidf")
        new = sentences(40)
        strings = run.predict([one for one, _ in new])
        assert np.mean([a == b for a, (_, b) in zip(strings.column("predicted").to_pylist(), new, strict=True)]) > 0.9
        file = write_rows(tmp_path / "new.csv", ["number", "review"], [[i, one] for i, (one, _) in enumerate(new)])
        assert run.predict(file).column("confidence").to_pylist() == pytest.approx(
            strings.column("confidence").to_pylist(), abs=1e-4
        )
        frame = pd.DataFrame({"number": range(40), "review": [one for one, _ in new]})
        for same in (frame, pa.Table.from_pandas(frame), frame["review"], frame["review"].to_numpy()):
            assert run.predict(same).column("predicted").equals(strings.column("predicted"))
    with pytest.raises(DataError, match=r"no column 'essay' for the text"):
        run.predict(file, text="essay")
    with pytest.raises(DataError, match=r"no column 'review' for the text; its columns: body"):
        run.predict(frame[["review"]].rename(columns={"review": "body"}))


def test_images_by_their_pixels(tmp_path: Path) -> None:
    digits = open_data("digits").train
    run = train(
        Data(digits.take(torch.arange(600))), out=tmp_path / "run", model="cnn:width=8", epochs=3, validation=0, device="cpu"
    )
    (tmp_path / "scans").mkdir()
    some = digits.take(torch.arange(600, 640))
    images = (torch.as_tensor(some.inputs)[:, 0].float() * (255 / torch.as_tensor(digits.inputs).max())).round().byte()
    for i, pixels in enumerate(images.numpy()):
        Image.fromarray(np.kron(pixels, np.ones((2, 2), np.uint8))).save(tmp_path / "scans" / f"{i:02}.png")
    (tmp_path / "scans" / "notes.txt").write_text("no image")
    found = run.predict(tmp_path / "scans")
    assert found.column_names == ["id", "path", "predicted", "confidence", "left_out"]
    assert len(found) == 41
    left = {"id": "notes.txt", "path": str(tmp_path / "scans" / "notes.txt"), "predicted": None, "confidence": None}
    assert found.to_pylist()[40] == {**left, "left_out": "not an image that Pillow can read"}
    assert Path(found.column("path")[0].as_py()).name == "00.png"
    files = sorted((tmp_path / "scans").glob("*.png"))[:3]
    expected = found.column("confidence").to_pylist()
    for one in (files[0], str(files[0])):
        alone = run.predict(one)
        assert (alone.column("id").to_pylist(), alone.column("path").to_pylist()) == (["00.png"], [str(files[0])])
        assert alone.column("confidence").to_pylist() == pytest.approx(expected[:1], abs=1e-5)
    for several in (files, [str(file) for file in files]):
        listed = run.predict(several)
        assert listed.column("path").to_pylist() == [str(file) for file in files]
        assert listed.column("confidence").to_pylist() == pytest.approx(expected[:3], abs=1e-5)
    with pytest.raises(
        DataError, match=r"data: none of the 1 file\(s\) could be read as an image \(the first: gone\.png: No such"
    ):
        run.predict([Path("gone.png")])
    with pytest.raises(DataError, match=r"notes\.txt: inputs without labels are a folder or \.zip of images, image files"):
        run.predict(tmp_path / "scans" / "notes.txt")
    with pytest.raises(DataError, match=r"features, but .* was trained on images"):
        run.predict(np.zeros((3, 64), np.float32))


def test_every_input_has_a_row_in_its_place(tmp_path: Path) -> None:
    texts = [["x", "a boat in the harbor", "sea"], ["y", "a goat on the path", "hill"]] * 20
    path = write_rows(tmp_path / "texts.csv", ["name", "text", "label"], texts)
    run = train(str(path), embed="tfidf", out=tmp_path / "run", epochs=2, validation=0, device="cpu")
    new = write_rows(tmp_path / "new.csv", ["text", "id"], [["a boat", "p"], ["", "q"], ["a, goat", "r"], [" ", "s"]])
    found = run.predict(new)
    assert found.column_names == ["id", "text", "predicted", "confidence", "left_out"]
    rows = found.to_pylist()
    assert [(row["id"], row["text"], row["left_out"]) for row in rows] == [
        ("p", "a boat", None),
        ("q", None, "no text"),
        ("r", "a, goat", None),
        ("s", None, "no text"),
    ]
    assert [row["predicted"] is None for row in rows] == [False, True, False, True]
    listed = run.predict(["", "a boat", "a goat"]).to_pylist()
    assert [(row["id"], row["text"]) for row in listed] == [(0, None), (1, "a boat"), (2, "a goat")]


def test_missing_and_unreadable_images_in_a_file_of_rows_keep_their_places(tmp_path: Path) -> None:
    for name, level in ((f"{c}{i}", level) for i in range(4) for c, level in (("a", 20), ("b", 230))):
        (tmp_path / name[0]).mkdir(exist_ok=True)
        Image.new("L", (8, 8), level).save(tmp_path / name[0] / f"{name}.png")
    images = write_rows(tmp_path / "train.csv", ["path", "label"], [[f"{c}/{c}{i}.png", c] for i in range(4) for c in "ab"])
    run = train(str(images), out=tmp_path / "run", model="mlp:hidden=4", epochs=1, validation=0, device="cpu")
    (tmp_path / "broken.png").write_text("x")
    rows = [["gone.png"], ["a/a0.png"], ["broken.png"], [""], ["b/b0.png"]]
    found = run.predict(write_rows(tmp_path / "new.csv", ["path"], rows))
    assert found.column("id").to_pylist() == [0, 1, 2, 3, 4]
    reasons = found.column("left_out").to_pylist()
    assert [reasons[i] is None for i in range(5)] == [False, True, False, False, True]
    assert (reasons[2], "no such file" in reasons[0]) == ("not an image that Pillow can read", True)


def test_the_labels_of_given_examples_play_no_part(tmp_path: Path, blobs: Data) -> None:
    run = train(blobs, out=tmp_path / "run", epochs=3, validation=0, device="cpu")
    held = blobs.test
    assert held is not None
    other = Examples(held.inputs, torch.zeros(len(held), dtype=torch.int64), ["anything"])
    assert run.predict(other).equals(run.predict(torch.as_tensor(held.inputs).numpy()))
    assert set(run.predict(other).column("predicted").to_pylist()) <= set(blobs.classes)


def test_a_table_is_not_embedded_by_name(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "customers.csv", [*NAMES, "label"], customers(60, 0))
    with pytest.raises(
        ValueError, match=r"embed='minilm' \(--embed\): a table is not embedded; its columns are encoded without it"
    ):
        train(str(path), embed="minilm", out=tmp_path / "run", device="cpu")


def test_a_column_of_groups_is_no_input_of_texts_either(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    words = (["soup", "bread", "salt", "oven"], ["goal", "team", "coach", "ball"])
    rows = [[" ".join(random.choice(words[i % 2], 6)) + f" {i}", f"cook {i // 4}", "ab"[i % 2]] for i in range(120)]
    path = write_rows(tmp_path / "notes.csv", ["note", "cook", "label"], rows)
    run = train(str(path), out=tmp_path / "run", group="cook", embed="tfidf", epochs=2, device="cpu")
    assert run.predict(path).column("text").to_pylist() == [row[0] for row in rows]
    assert run.predict(pd.DataFrame({"note": [row[0] for row in rows[:3]]})).num_rows == 3  # nor is it needed
