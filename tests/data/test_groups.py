"""Groups of examples: how every reader finds them, what they make of folds and splits, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

import mohs
from mohs._core.errors import DataError
from mohs.data.examples import Data, Examples, joined
from mohs.data.groups import alone, group_folds, held_out_groups
from mohs.data.noise import add_noise
from mohs.data.open_data import open_data
from mohs.data.split import held_out, split
from mohs.train.fold_heads import assign_folds, default_folds

PATIENTS = ["p2", "p2", "p1", None, "p1", "", "p3", "p3"]
NUMBERS = [0, 0, 1, 2, 1, 3, 4, 4]  # in order of appearance; each missing one is a group by itself


def frame(**more: Any) -> pd.DataFrame:
    columns = {"size": np.arange(8) + 0.5, "weight": np.arange(8) % 3 + 0.25, "patient": PATIENTS}
    return pd.DataFrame({**columns, "label": ["a", "b"] * 4, **more})


def groups_of(data: Data) -> list[int]:
    assert data.train.groups is not None
    found: list[int] = data.train.groups.tolist()
    return found


# --- readers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl", "pandas", "arrow", "tuple", "shards"])
def test_a_column_of_groups_is_read_and_is_no_feature(kind: str, tmp_path: Path) -> None:
    rows, data = frame(), None
    if kind == "csv":
        rows.to_csv(tmp_path / "d.csv", index=False)
    elif kind == "parquet":
        rows.to_parquet(tmp_path / "d.parquet")
    elif kind == "jsonl":
        rows.to_json(tmp_path / "d.jsonl", orient="records", lines=True)
    elif kind == "shards":
        rows[:3].to_parquet(tmp_path / "a.parquet")
        rows[3:].to_parquet(tmp_path / "b.parquet")
        data = tmp_path
    else:
        data = {"pandas": rows, "arrow": pa.Table.from_pandas(rows), "tuple": (rows.drop(columns="label"), rows["label"])}[kind]
    found = open_data(tmp_path / f"d.{kind}" if data is None else data, group="Patient")  # case does not matter
    assert groups_of(found) == NUMBERS
    assert list(found.train.columns) == ["size", "weight"]
    assert "5 groups of 8 examples stay whole in cross-validation and splits" in found.notes


def test_names_in_a_csv_file_are_kept_as_written(tmp_path: Path) -> None:
    frame(patient=["007", "7", "07", "007", "7", "07", "NA", "NA"]).to_csv(tmp_path / "d.csv", index=False)
    assert groups_of(open_data(tmp_path / "d.csv", group="patient")) == [0, 1, 2, 0, 1, 2, 3, 3]


def test_groups_follow_the_rows_that_have_a_label_and_their_split(tmp_path: Path) -> None:
    rows = frame(label=["a", "b", "b", None, "b", "a", "b", "a"], split=["test", *["train"] * 6, "test"])
    rows.to_csv(tmp_path / "d.csv", index=False)
    found = open_data(tmp_path / "d.csv", group="patient")
    assert [len(part) for part in found.splits.values()] == [5, 2]
    p2, p1, again, missing, p3 = groups_of(found)  # without the row that has no label
    assert p1 == again
    assert len({p2, p1, missing, p3}) == 4
    assert found.test is not None
    assert found.test.groups is not None
    assert found.test.groups.tolist() == [p2, p3]


def test_splits_that_share_groups_get_a_note(tmp_path: Path) -> None:
    frame(split=["train"] * 5 + ["test"] * 3, patient=list("aabbcacd")).to_csv(tmp_path / "d.csv", index=False)
    notes = open_data(tmp_path / "d.csv", group="patient").notes
    assert notes[-2:] == [
        "3 groups of 5 examples stay whole in cross-validation and splits",
        "2 examples of the test split belong to groups of the train split",
    ]
    frame(split=["train"] * 5 + ["test"] * 3, patient=list("abcdeabx")).to_csv(tmp_path / "d.csv", index=False)
    assert open_data(tmp_path / "d.csv", group="patient").notes[-2:] == [
        "each of the 5 examples is a group by itself: group (--group) has no effect on cross-validation",
        "2 examples of the test split belong to groups of the train split",
    ]


def test_arrays_take_groups_by_name_and_as_values(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(6, 3)), np.array([0, 1] * 3)
    patients = np.array(["p", "p", "q", "q", "r", "r"])
    np.savez(tmp_path / "d.npz", x=x, y=y, patients=patients)
    expected = [0, 0, 1, 1, 2, 2]
    assert groups_of(open_data(tmp_path / "d.npz", group="patients")) == expected
    assert groups_of(open_data({"x": x, "y": y, "patients": patients.tolist()}, group="patients")) == expected
    assert groups_of(open_data((x, y), group=patients)) == expected
    assert groups_of(open_data((x, y), group=torch.tensor([5, 5, 3, 3, 1, 1]))) == expected
    assert groups_of(open_data({"x": x, "y": y}, group=patients.tolist())) == expected
    with pytest.raises(DataError, match="d: no array 'patient' for the groups \\(--group\\); there are x, y, patients"):
        open_data(tmp_path / "d.npz", group="patient")
    with pytest.raises(DataError, match="d: array 'y' holds the labels, so it cannot hold the groups"):
        open_data(tmp_path / "d.npz", group="y")
    with pytest.raises(DataError, match="group has 5 values, data 6 examples: give one for each"):
        open_data((x, y), group=patients[:5])


def test_values_for_all_rows_match_those_that_are_not_skipped(tmp_path: Path) -> None:
    x, labels = np.random.default_rng(0).normal(size=(6, 3)), ["a", None, "b", "a", "b", "b"]
    assert groups_of(open_data((x, labels), group=list("ppqqrr"))) == [0, 1, 1, 2, 2]
    assert groups_of(open_data((x, labels), group=list("pqqrr"))) == [0, 1, 1, 2, 2]  # of those alone
    with pytest.raises(DataError, match="group has 4 values, data 5 examples \\(1 more were skipped\\)"):
        open_data((x, labels), group=list("pqqr"))
    rows = pd.DataFrame({"size": x[:, 0], "label": labels, "split": ["test", "train"] * 3})
    rows.to_csv(tmp_path / "d.csv", index=False)
    with pytest.raises(DataError, match="group has 3 values"):  # which of them belong to skipped rows is not known
        open_data(tmp_path / "d.csv", group=list("ppq"))


def test_groups_of_examples_are_replaced() -> None:
    x, y = np.random.default_rng(0).normal(size=(4, 3)), np.array([0, 1, 0, 1])
    first = open_data((x, y), group=list("aabb"))
    assert groups_of(open_data(first, group=list("abba"))) == [0, 1, 1, 0]
    assert groups_of(open_data(first.train)) == [0, 0, 1, 1]
    with pytest.raises(DataError, match="group='patient' \\(--group\\) names a column, or matches paths of images"):
        open_data(first, group="patient")


def picture(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(len(str(file))).integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(file)


def test_images_in_folders_have_groups_by_their_paths(tmp_path: Path) -> None:
    for name in ("cat/p1_a", "cat/p1_b", "cat/p2_a", "dog/p2_b", "dog/p3_a", "dog/other", "dog/another"):
        picture(tmp_path / "d" / f"{name}.png")
    names = [Path(path).stem for path in open_data(tmp_path / "d").train.paths or ()]
    for pattern in ("p[0-9]", "(p[0-9])_"):
        found = dict(zip(names, groups_of(open_data(tmp_path / "d", group=pattern)), strict=True))
        assert found["p1_a"] == found["p1_b"]
        assert found["p2_a"] == found["p2_b"]
        assert len(set(found.values())) == 5  # an image without a match is a group by itself
    with pytest.raises(DataError, match=r"d: group='patient' \(--group\) matches no path; the first is .*cat"):
        open_data(tmp_path / "d", group="patient")
    with pytest.raises(ValueError, match="group='p\\[' \\(--group\\) is not a regular expression"):
        open_data(tmp_path / "d", group="p[")


def test_a_csv_file_of_images_has_a_column_of_groups(tmp_path: Path) -> None:
    for name in range(6):
        picture(tmp_path / f"{name}.png")
    (tmp_path / "4.png").write_bytes(b"broken")
    rows = pd.DataFrame({"path": [f"{name}.png" for name in range(6)], "label": list("ababab"), "patient": list("xxyyxz")})
    rows.to_csv(tmp_path / "d.csv", index=False)
    found = open_data(tmp_path / "d.csv", group="patient")
    assert found.train.kind == "images"
    assert groups_of(found) == [0, 0, 1, 1, 2]  # of the readable ones
    assert groups_of(open_data(tmp_path / "d.csv", group=list("xyyyyz"))) == [0, 1, 1, 1, 2]
    encoded = [(tmp_path / path).read_bytes() for path in rows["path"]]
    pa.parquet.write_table(
        pa.table({"image": encoded, "label": list("ababab"), "patient": list("xxyyxz")}), tmp_path / "d.parquet"
    )
    assert groups_of(open_data(tmp_path / "d.parquet", group="patient")) == [0, 0, 1, 1, 2]


def test_data_sets_of_the_hub_have_a_column_of_groups(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_pandas(frame(patient=list("aabbccdd"))).save_to_disk(str(tmp_path / "d"))
    found = open_data(tmp_path / "d", group="patient")
    assert groups_of(found) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert list(found.train.columns) == ["size", "weight"]
    with pytest.raises(DataError, match=r"no column 'subject' for the groups \(--group\); its columns: .*patient"):
        open_data(tmp_path / "d", group="subject")
    pictures = [Image.fromarray(np.full((8, 8, 3), 9 * i, np.uint8)) for i in range(4)]
    made = datasets.Dataset.from_dict({"image": pictures, "label": [0, 1, 0, 1], "patient": ["a", "a", None, "b"]})
    made.cast_column("image", datasets.Image()).save_to_disk(str(tmp_path / "images"))
    assert groups_of(open_data(tmp_path / "images", group="patient")) == [0, 0, 1, 2]


def test_columns_that_cannot_hold_groups_are_refused(tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "d.csv", index=False)
    with pytest.raises(
        DataError, match="no column 'patients' for the groups \\(--group\\); its columns: size, weight, patient, label"
    ):
        open_data(tmp_path / "d.csv", group="patients")
    with pytest.raises(DataError, match="column 'label' holds the labels, so it cannot hold the groups \\(--group\\)"):
        open_data(tmp_path / "d.csv", group="label")
    with pytest.raises(DataError, match="data: all examples are in one group: group \\('patient'\\) must tell several apart"):
        open_data(frame(patient="p"), group="patient")
    with pytest.raises(DataError, match="column 'patient' is the label, the split, the key or the group"):
        open_data(tmp_path / "d.csv", group="patient", text="patient")
    with pytest.raises(DataError, match="digits: group='patient' \\(--group\\) names a column, or matches paths"):
        open_data("digits", group="patient")


def test_a_group_for_each_example_has_no_effect() -> None:
    found = open_data(frame(patient=range(8)), group="patient")
    assert found.train.groups is None
    assert found.notes[-1] == "each of the 8 examples is a group by itself: group (--group) has no effect on cross-validation"
    assert list(found.train.columns) == ["size", "weight"]


def test_domains_number_their_groups_apart(tmp_path: Path) -> None:
    for name, patients in (("a", "ppqqrr"), ("b", "xxxyyy")):
        rows = pd.DataFrame({"size": np.arange(6) + 0.5, "label": [0, 1] * 3, "patient": list(patients)})
        rows.to_csv(tmp_path / f"{name}.csv", index=False)
    pair = open_data(f"{tmp_path}/a.csv->{tmp_path}/b.csv", group="patient")
    assert groups_of(pair) == [0, 0, 1, 1, 2, 2]
    assert not any("of groups in the train split" in note for note in pair.notes)
    both = joined([open_data(tmp_path / f"{name}.csv", group="patient").train for name in "ab"])
    assert both.groups is not None
    assert both.groups.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 3, 4, 4, 4]


# --- examples ------------------------------------------------------------------------------------------------------------


def test_groups_stay_with_their_examples() -> None:
    found = open_data(frame(), group="patient").train
    part = found.take(torch.tensor([6, 0, 2]))
    assert part.groups is not None
    assert part.groups.tolist() == [NUMBERS[6], NUMBERS[0], NUMBERS[2]]
    noisy = add_noise(found, "symmetric:rate=0.5", seed=0)
    assert noisy.groups is not None
    assert noisy.groups.tolist() == NUMBERS


def test_decisions_hold_whatever_the_groups_but_runs_do_not() -> None:
    without, grouped = open_data(frame().drop(columns="patient")), open_data(frame(), group="patient")
    assert without.train.fingerprint() == grouped.train.fingerprint()
    assert without.fingerprint() != grouped.fingerprint()
    assert grouped.fingerprint() != open_data(frame(patient=list("aabbccdd")), group="patient").fingerprint()


# --- folds and splits ----------------------------------------------------------------------------------------------------


def examples(labels: Tensor, groups: Tensor) -> Examples:
    names = list(range(int(labels.max()) + 1))
    return Examples(torch.arange(len(labels)).float()[:, None], labels, names, groups=groups)


@st.composite
def labeled_groups(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Labels (N,) and groups (N,), at least three of them, of very different sizes."""
    sizes = draw(st.lists(st.integers(1, 12), min_size=3, max_size=25))
    pure = draw(st.booleans())
    labels = []
    for size in sizes:
        label = draw(st.integers(0, 3))
        labels += [label] * size if pure else draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    order = torch.tensor(draw(st.permutations(range(len(labels)))))
    groups = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)) * 7  # numbers with gaps, as in a part of the data
    return torch.tensor(labels)[order], groups[order]


@settings(deadline=None, derandomize=True, max_examples=200)
@given(labeled_groups(), st.integers(2, 10), st.integers(0, 3))
def test_folds_have_whole_groups_and_are_balanced_as_far_as_groups_allow(
    made: tuple[Tensor, Tensor], folds: int, seed: int
) -> None:
    labels, groups = made
    folds = min(folds, len(groups.unique()))
    fold = assign_folds(labels, folds=folds, seed=seed, groups=groups)
    assert torch.equal(fold, group_folds(labels, groups, folds=folds, seed=seed))  # seeded
    assert len(torch.stack([fold, groups]).unique(dim=1).T) == len(groups.unique())  # no group in two folds
    sizes = torch.bincount(fold, minlength=folds)
    assert bool((sizes > 0).all())
    assert int(sizes.max()) <= len(labels) / folds + int(torch.bincount(groups).max())


@settings(deadline=None, derandomize=True, max_examples=200)
@given(labeled_groups(), st.floats(0.05, 0.6), st.integers(0, 3))
def test_no_group_is_on_both_sides_of_a_split(made: tuple[Tensor, Tensor], share: float, seed: int) -> None:
    labels, groups = made
    held = held_out_groups(labels, groups, share=share, seed=seed)
    assert torch.equal(held, held_out(labels, share=share, seed=seed, groups=groups))
    rest = torch.ones(len(labels), dtype=torch.bool)
    rest[held] = False
    assert not torch.isin(groups[held], groups[rest]).any()
    assert set(labels[rest].tolist()) == set(labels.tolist())  # no class is held out whole
    largest = int(torch.bincount(groups).max())
    assert len(held) <= share * len(labels) + largest
    if not len(held):  # each group has all examples of some class
        assert all(any((groups[labels == c] == g).all() for c in labels.unique()) for g in groups.unique())


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.lists(st.integers(0, 4), min_size=6, max_size=60), st.integers(2, 5), st.integers(0, 5))
def test_without_groups_folds_are_as_ever(labels: list[int], folds: int, seed: int) -> None:
    y = torch.tensor(labels)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    order = order[torch.argsort(y[order], stable=True)]
    expected = torch.empty(len(y), dtype=torch.int64)
    expected[order] = torch.arange(len(y)) % folds
    assert torch.equal(assign_folds(y, folds=folds, seed=seed), expected)
    assert torch.equal(assign_folds(y, folds=folds, seed=seed, groups=None), expected)
    assert alone(y, expected).tolist() == (torch.bincount(y)[y] < 2).tolist()  # only the one example of a class is alone


def test_equal_groups_are_divided_evenly() -> None:
    groups = torch.arange(60).repeat_interleave(5)
    labels = (groups % 3 == 0).long()
    fold = assign_folds(labels, folds=10, seed=0, groups=groups)
    assert torch.bincount(fold * 2 + labels).tolist() == [20, 10] * 10
    assert not torch.equal(fold, assign_folds(labels, folds=10, seed=1, groups=groups))
    held = held_out_groups(labels, groups, share=0.2, seed=0)
    assert torch.bincount(labels[held]).tolist() == [40, 20]


def test_numbers_of_folds() -> None:
    groups = torch.arange(4).repeat_interleave(100)
    assert (default_folds(400), default_folds(400, groups), default_folds(400, torch.arange(400))) == (10, 4, 10)
    with pytest.raises(ValueError, match="folds must be at least 2 and at most 4, the number of groups, got 5"):
        assign_folds(groups % 2, folds=5, groups=groups)


def test_a_large_group_is_held_out_where_none_fits_the_share() -> None:
    groups = torch.arange(4).repeat_interleave(10)
    labels = torch.arange(40) % 2
    rest, held = split(examples(labels, groups), 0.1, 0)
    assert (len(rest), len(held)) == (30, 10)
    with pytest.raises(DataError, match="no group can be held out, as each has all examples of some class"):
        split(examples(groups // 2, groups // 2), 0.3, 0)


def test_a_class_is_alone_in_its_group_or_fold() -> None:
    labels, parts = torch.tensor([0, 0, 1, 1, 2]), torch.tensor([3, 3, 3, 5, 5])
    assert alone(labels, parts).tolist() == [True, True, False, False, True]


# --- a notice where groups were not named ------------------------------------------------------------------------------------


def trees(groups: int = 120, each: int = 8, **more: Any) -> pd.DataFrame:
    rng, tree = np.random.default_rng(0), np.repeat(np.arange(groups), each)
    return pd.DataFrame(
        {"height": rng.normal(size=len(tree)), "tree": tree, "kind": rng.choice(list("xyz"), len(tree))}
        | {"label": rng.choice(["oak", "elm"], groups)[tree]}
        | more
    )


def hints(data: Any, **options: Any) -> list[str]:
    return [note for note in open_data(data, **options).notes if "--group" in note and "stay whole" not in note]


NOTE = (
    "column 'tree' has 120 values with 8 rows each, which nearly always share their label: if it names a patient, video or "
    "place, add --group tree"
)


def test_a_column_that_looks_like_groups_is_named(tmp_path: Path) -> None:
    rows = trees()
    assert hints(rows) == [NOTE]
    assert hints(rows, group="tree") == []  # it was named
    assert hints(rows.assign(tree=[f"tree {one}" for one in rows["tree"]])) == [NOTE]
    assert hints(rows.assign(tree=rows["tree"].astype(float))) == [NOTE]
    rows.sample(frac=1, random_state=0).to_csv(tmp_path / "d.csv", index=False)
    assert hints(tmp_path / "d.csv") == [NOTE]
    assert hints(rows.rename(columns={"tree": "id"}))[0].endswith("add --group id")
    assert hints(rows.rename(columns={"tree": "my tree"}))[0].endswith("add --group 'my tree'")
    moved = rows.assign(label=np.where(np.arange(len(rows)) % 50 == 0, "oak", rows["label"]))
    assert hints(moved) == [NOTE]  # single wrong labels
    uneven = rows.sample(frac=0.6, random_state=0)
    assert "values with about 5 rows each" in hints(uneven)[0]
    assert len(hints(rows.assign(place=rows["tree"] + 1000))) == 1  # one line
    assert hints(rows, target="height") == []


def test_a_column_whose_rows_never_share_their_label_is_named_too() -> None:
    """A firm has one row per year, and the year is the label: rows that resemble each other have other labels by design."""
    rng, firm = np.random.default_rng(0), np.repeat(np.arange(100), 6)
    rows = pd.DataFrame({"sales": rng.normal(size=100)[firm], "firm": firm, "label": [f"y{one % 6}" for one in range(600)]})
    assert hints(rows) == [
        NOTE.replace("tree", "firm").replace("120", "100").replace("8 rows", "6 rows").replace("always", "never")
    ]
    noisy = rows.assign(label=np.where(rng.random(600) < 0.1, rng.choice(rows["label"], 600), rows["label"]))
    assert "nearly never share" in hints(noisy)[0]
    assert hints(rows.assign(label=rng.permutation(rows["label"]))) == []


def test_ordinary_columns_are_not_taken_for_groups(tmp_path: Path) -> None:
    from sklearn import datasets

    for load in (datasets.load_wine, datasets.load_breast_cancer, datasets.load_digits, datasets.load_iris):
        load(as_frame=True).frame.to_csv(tmp_path / "d.csv", index=False)
        assert hints(tmp_path / "d.csv") == []
    rng, n = np.random.default_rng(0), 2000
    uneven = np.arange(1, 31) / np.arange(1, 31).sum()
    rows = pd.DataFrame(
        {
            "city": rng.choice([f"city {i}" for i in range(60)], n),
            "age": rng.integers(18, 90, n),
            "zip": rng.integers(10_000, 10_100, n),
            "sex": rng.choice(["m", "f"], n),
            "score": rng.integers(0, 101, n),
            "vendor": rng.choice([f"vendor {i}" for i in range(30)], n, p=uneven),
            "user": np.arange(n),
        }
    )
    for label in (
        rng.integers(0, 2, n),
        rng.random(n) < 0.02,  # equal labels are no wonder
        rows["score"] > 50,  # a score that the labels were made from
        rows["age"] > 60,
        rows["vendor"].map({f"vendor {i}": i % 3 for i in range(30)}),  # a code that they were made from
    ):
        assert hints(rows.assign(label=np.asarray(label).astype(int))) == []
    assert hints(trees(groups=12)) == []  # too few to tell


def test_public_functions_take_groups() -> None:
    rng = np.random.default_rng(0)
    x, y, groups = rng.normal(size=(60, 4)), np.arange(60) % 2, np.repeat(np.arange(12), 5)
    found = mohs.out_of_fold(x, y, groups=groups, folds=4, epochs=2, landmarks=0)
    assert len(np.unique(np.stack([found.fold.numpy(), groups]), axis=1).T) == 12
    with pytest.raises(ValueError, match=r"groups must have shape \(60,\), one per row of features, got 59"):
        mohs.out_of_fold(x, y, groups=groups[1:], folds=4, epochs=2)
    states: list[dict[str, Any]] = []
    mohs.out_of_fold(x, y, groups=groups, folds=4, epochs=1, landmarks=0, on_epoch=states.append)
    with pytest.raises(ValueError, match="state is from another call"):
        mohs.out_of_fold(x, y, groups=groups[::-1] % 6, folds=4, epochs=2, landmarks=0, state=states[-1])
