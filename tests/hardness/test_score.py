"""Scoring: features, logits, and any trained model on any data, alone and in two processes."""

from __future__ import annotations

import copy
import re
import sys
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, Subset, SubsetRandomSampler, TensorDataset

from mohs._core.errors import DataError
from mohs.hardness.angular import avc, avh
from mohs.hardness.measure import unscored
from mohs.hardness.neighbors import neighbor_agreement
from mohs.hardness.score import score, score_features, score_logits
from mohs.hardness.scores import with_grade
from mohs.hardness.snapshot import measure_logits, norm, norm_in_class
from mohs.hardness.table import classes_of, column, read_table, write_table

CLASSES, DIM = 5, 8
LOGIT_COLUMNS = ["confidence", "margin", "loss", "el2n", "entropy", "energy"]
FEATURE_COLUMNS = ["avh", "avc", "norm", "norm_in_class"]
score_module = sys.modules["mohs.hardness.score"]


def head(n: int = 40, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return (
        torch.randn(n, DIM, generator=g),
        torch.randn(CLASSES, DIM, generator=g),
        torch.randn(CLASSES, generator=g),
        torch.randint(CLASSES, (n,), generator=g),
    )


def net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, DIM), nn.ReLU(), nn.Dropout(0.5), nn.Linear(DIM, CLASSES))


def examples(n: int = 37) -> TensorDataset:
    g = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(n, 3, generator=g), torch.randint(CLASSES, (n,), generator=g))


def same(a: pa.Table, b: pa.Table, *, close: float = 0.0) -> None:
    assert a.column_names == b.column_names
    for name in a.column_names:
        left, right = column(a, name), column(b, name)
        if left.dtype.kind == "f" and close:
            np.testing.assert_allclose(left, right, atol=close, rtol=close)
        else:
            np.testing.assert_array_equal(left, right)


class Wrapped(Dataset):
    """A data set whose items a function makes of (row, input, label)."""

    def __init__(self, make, n: int = 37) -> None:
        self.make, self.inner = make, examples(n)

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, row: int):
        return self.make(row, *self.inner[row])


# --- features and logits -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 17, 2**20])
def test_features_are_measured_by_the_same_functions(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(score_module, "CHUNK_ENTRIES", chunk)
    x, w, b, y = head()
    table = score_features(x, w, y, b, neighbors=True)
    expected = measure_logits(x @ w.T + b, y) | {
        "avh": avh(x, w, y),
        "avc": avc(x, w),
        "norm": norm(x),
        "norm_in_class": norm_in_class(norm(x), y),
        "neighbors": neighbor_agreement(x, y),
        "label": y,
        "id": torch.arange(40),
    }
    for name, values in expected.items():
        np.testing.assert_allclose(column(table, name), values.numpy(), atol=2e-6, err_msg=name)
    assert table.column("mohs") == with_grade(table, by="margin").column("mohs")
    assert set(table.column_names) == {*expected, "mohs"}


def test_logits_alone_give_the_columns_without_features() -> None:
    x, w, b, y = head()
    table = score_logits(x @ w.T + b, y, ids=[f"e{i}" for i in range(40)], paths=["p"] * 40)
    same(table.drop(["id", "path"]), score_features(x, w, y, b).drop(["id", *FEATURE_COLUMNS]), close=1e-6)
    assert column(table, "id")[3] == "e3"
    own = score_features(x, w, y, logits=x @ w.T + b)
    same(own, score_features(x, w, y, b), close=1e-6)


def test_arrays_memory_maps_and_types(tmp_path: Path) -> None:
    x, w, b, y = (t.numpy() for t in head())
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    same(score_features(mapped, w, y, b), score_features(*(torch.from_numpy(t) for t in (x, w, y, b))))
    assert column(score_features(x.astype(np.float64), w, y, b), "margin").dtype == np.float64
    same(score_features(torch.from_numpy(x).bfloat16(), w, y), score_features(torch.from_numpy(x).bfloat16().float(), w, y))


def test_labels_and_predictions_by_name() -> None:
    x, w, b, y = head()
    names = ["ant", "bee", "cat", "dog", "emu"]
    table = score_features(x, w, [names[i] for i in y], b)
    assert column(table, "label").tolist() == [names[i] for i in y]
    assert column(table, "predicted").tolist() == [names[i] for i in (x @ w.T + b).argmax(1)]
    assert classes_of(table) == names
    same(score_features(x, w, y, b, classes=names), table)


def test_zero_features_and_zero_weights() -> None:
    x, w, b, y = head()
    x[4] = 0.0
    w[2] = 0.0
    table = score_features(x, w, y, b, neighbors=True)
    row = table.slice(4, 1).to_pylist()[0]
    assert [row["avh"], row["avc"]] == pytest.approx([1 / CLASSES] * 2)
    assert row["norm"] == 0
    assert np.isnan(row["neighbors"])
    assert np.isfinite(np.stack([column(table, name) for name in LOGIT_COLUMNS + FEATURE_COLUMNS])).all()


def test_a_row_without_finite_logits_is_kept_without_scores(tmp_path: Path) -> None:
    x, w, b, y = head()
    sound = score_features(x, w, y, b)
    x[7] = torch.nan
    table = score_features(x, w, y, b)
    assert unscored(table).tolist() == [7]
    row = table.slice(7, 1).to_pylist()[0]
    assert row["id"] == 7
    assert row["label"] == int(y[7])
    assert row["predicted"] is None
    assert row["mohs"] is None
    assert all(np.isnan(row[name]) for name in LOGIT_COLUMNS + FEATURE_COLUMNS)
    others = [i for i in range(40) if i != 7]
    same(table.take(others).drop(["norm_in_class", "mohs"]), sound.take(others).drop(["norm_in_class", "mohs"]), close=1e-6)
    write_table(table, tmp_path / "t.parquet")
    assert unscored(read_table(tmp_path / "t.parquet")).tolist() == [7]
    with pytest.raises(DataError, match=r"logits of row 7 \(id 7\) hold NaN or \+inf; 1 row\(s\) do") as caught:
        score_features(x, w, y, b, strict=True)
    assert caught.value.table.num_rows == 40
    logits = head()[0] @ w.T
    logits[3, 1] = torch.inf
    logits[5, 1] = -torch.inf  # a class that is masked out
    assert unscored(score_logits(logits, y)).tolist() == [3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [0] * 39 + [5]}, "labels[39] is 5, outside 0..4"),
        ({"labels": [0] * 39}, "labels must be 40, one per row of features, got 39"),
        ({"features": np.zeros((40, 3), np.float32)}, "got features (40, 3) and weight (5, 8)"),
        ({"weight": np.zeros(8, np.float32)}, "got features (40, 8) and weight (8,)"),
        ({"bias": np.zeros(4, np.float32)}, "bias must have shape (5,), one per row of weight, got (4,)"),
        ({"logits": np.zeros((40, 4), np.float32)}, "logits must have shape (40, 5) for these features, got (40, 4)"),
        ({"ids": [*range(39), 17]}, "id 17 occurs in rows 17 and 39: give every example a distinct id"),
        ({"ids": range(3)}, "ids must be 40, one per row of features, got 3"),
        ({"features": np.zeros((0, 8), np.float32), "labels": np.zeros(0, int)}, "features holds no rows"),
    ],
)
def test_errors_name_argument_and_row(change: dict, message: str) -> None:
    x, w, b, y = (t.numpy() for t in head())
    with pytest.raises(ValueError, match=re.escape(message)):
        score_features(**{"features": x, "weight": w, "labels": y, "bias": b, **change})


# --- models --------------------------------------------------------------------------------------------------------------


def direct() -> pa.Table:
    """What the model's table should be, by hand."""
    model = net().eval()
    inputs, labels = examples().tensors
    with torch.no_grad():
        return score_features(model[:3](inputs), model[3].weight, labels, model[3].bias)


@pytest.mark.parametrize(
    "data",
    [
        examples(),
        DataLoader(examples(), batch_size=7),
        DataLoader(examples(), batch_size=7, shuffle=True, drop_last=True),
        DataLoader(examples(), batch_size=7, sampler=DistributedSampler(examples(), num_replicas=2, rank=1)),
        Wrapped(lambda row, x, y: (x, y, row)),
        Wrapped(lambda row, x, y: {"image": x, "label": y, "idx": row}),
        Wrapped(lambda row, x, y: {"input": x, "targets": int(y)}),
        Wrapped(lambda row, x, y: ((x,), int(y))),
        Wrapped(lambda row, x, y: ({"input": x}, y)),
    ],
    ids=["dataset", "loader", "shuffled", "distributed", "ids", "mapping", "mapping2", "tuple", "keywords"],
)
def test_any_data(data: object) -> None:
    same(score(net(), data, batch_size=11), direct(), close=1e-6)


def test_other_samplers_and_streams_are_read_in_their_order() -> None:
    rows = [5, 2, 30]
    picked = DataLoader(Wrapped(lambda row, x, y: (x, y, row)), batch_size=2, sampler=_Fixed(rows))
    same(score(net(), picked).drop(["norm_in_class", "mohs"]), direct().take(rows).drop(["norm_in_class", "mohs"]), close=1e-6)
    same(score(net(), _Stream(), batch_size=5), direct(), close=1e-6)
    assert score(net(), DataLoader(examples(), sampler=SubsetRandomSampler(range(4)))).num_rows == 4
    assert score(net(), Subset(examples(), range(3))).num_rows == 3


class _Fixed(SubsetRandomSampler):
    def __iter__(self):
        return iter(self.indices)


class _Stream(IterableDataset):
    def __iter__(self):
        return iter(examples())


Output = namedtuple("Output", ["loss", "logits"])


@pytest.mark.parametrize(
    "wrap",
    [lambda z: SimpleNamespace(logits=z), lambda z: (z, None), lambda z: {"logits": z}, lambda z: Output(None, z)],
    ids=["object", "tuple", "mapping", "namedtuple"],
)
def test_any_outputs(wrap) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net()

        def forward(self, pixel_values: torch.Tensor, attention_mask: torch.Tensor | None = None):
            return wrap(self.inner(pixel_values))

    data = Wrapped(lambda row, x, y: {"pixel_values": x, "attention_mask": torch.ones(1), "labels": y, "path": f"{row}.png"})
    table = score(Model(), data)
    assert column(table, "path")[3] == "3.png"
    same(table.drop(["path"]), direct(), close=1e-6)


def test_the_model_state_is_restored() -> None:
    model = net().train()
    model[2].eval()
    before = copy.deepcopy(model.state_dict())
    score(model, examples(), device="cpu")
    assert [m.training for m in model.modules()] == [True, True, True, False, True]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    with pytest.raises(ValueError, match=r"labels\[0\] is 9, not one of"):
        score(model, Wrapped(lambda row, x, y: (x, 9)))
    assert model.training


def test_names_neighbors_and_strictness() -> None:
    names = ["ant", "bee", "cat", "dog", "emu"]
    by_row = score(net(), examples(), classes=names, neighbors=True)
    by_name = score(net(), Wrapped(lambda row, x, y: (x, names[y])), classes=names, neighbors=True)
    same(by_row, by_name)
    features = net().eval()[:3](examples().tensors[0]).detach()
    np.testing.assert_allclose(column(by_row, "neighbors"), neighbor_agreement(features, examples().tensors[1]).numpy())
    broken = Wrapped(lambda row, x, y: (x * torch.nan if row == 12 else x, y))
    assert unscored(score(net(), broken)).tolist() == [12]
    with pytest.raises(DataError, match="logits of row 12"):
        score(net(), broken, strict=True)


def test_an_error_names_the_row_and_keeps_the_rows_before() -> None:
    with pytest.raises(DataError, match=r"labels\[23\] is 5, not one of the head's 5 classes") as caught:
        score(net(), Wrapped(lambda row, x, y: (x, 5 if row == 23 else int(y))), batch_size=10)
    same(caught.value.table.drop(["norm_in_class", "mohs"]), direct().slice(0, 20).drop(["norm_in_class", "mohs"]), close=1e-6)
    assert "20 row(s) were scored" in caught.value.__notes__[0]

    def unreadable(row: int, x: torch.Tensor, y: torch.Tensor) -> tuple:
        if row == 30:
            raise OSError("30.png is truncated")
        return x, y

    with pytest.raises(OSError, match=r"30.png is truncated") as broken:
        score(net(), Wrapped(unreadable), batch_size=10)
    assert broken.value.table.num_rows == 30


def test_repeated_ids_are_an_error_that_keeps_the_table() -> None:
    with pytest.raises(DataError, match="id 8 occurs in rows 8 and 9") as caught:
        score(net(), Wrapped(lambda row, x, y: (x, y, row - row // 9 if row < 18 else row)))
    assert caught.value.table.num_rows == 37


def test_a_layer_that_is_not_the_classifier_is_reported() -> None:
    class Convolved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.conv = nn.Linear(3, 3), nn.Conv2d(3, CLASSES, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.conv(self.gate(x)[:, :, None, None]).flatten(1)

    with pytest.raises(
        ValueError, match=r"logits of shape \(37, 5\) .*layer 'gate' has 3 rows.*features and weight to score_features"
    ):
        score(Convolved(), examples())
    with pytest.raises(ValueError, match=r'layer \'0\' has 8 rows.*pass layer="name".*the last first: \'3\', \'0\''):
        score(net(), examples(), layer="0")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Wrapped(lambda row, x, y: x), "data must give (input, label), (input, label, id) or a mapping, got Tensor at row 0"),
        (Wrapped(lambda row, x, y: (x, y, row, 1)), "got 4 parts at row 0"),
        (Wrapped(lambda row, x, y: {"image": x}), "data gives no label at row 0: of the keys image one must be label or labels"),
        (Wrapped(lambda row, x, y: (x, "cat")), "labels[0] is 'cat', not one of the head's 5 classes (0, 1, 2, 3, 4)"),
        (Wrapped(lambda row, x, y: (x, y), n=0), "data holds no examples"),
        (DataLoader(examples(), batch_size=None), "data gives one example at a time (at row 0), not batches: pass its Dataset"),
        (iter([]), "data must be a Dataset or a DataLoader, got list_iterator"),
    ],
)
def test_data_that_cannot_be_scored(data: object, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        score(net(), data)
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        score(net(), examples(), batch_size=0)


def test_a_model_without_logits() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net()

        def forward(self, x: torch.Tensor) -> dict:
            return {"scores": self.inner(x).softmax(1)}

    with pytest.raises(ValueError, match="the model returns dict without logits"):
        score(Model(), examples())


# --- several processes ---------------------------------------------------------------------------------------------------

RANKS = """
import torch
from torch import distributed as dist, nn
from torch.utils.data import DataLoader, TensorDataset
from mohs._core.errors import DataError
from mohs.hardness.table import write_table
from mohs.hardness.score import score

several = "RANK" in os.environ
if several:
    dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 5))
data = TensorDataset(torch.randn(53, 3), torch.randint(5, (53,)))
rank = dist.get_rank() if several else 0
write_table(score(model, data, batch_size=8, neighbors=True), out / f"set{rank}-{several}.parquet")
write_table(score(model, DataLoader(data, 8, sampler=list(range(52, -1, -1)))), out / f"loader{rank}-{several}.parquet")
data.tensors[1][20] = 7
try:
    score(model, data, batch_size=8)
except DataError as error:
    (out / f"error{rank}-{several}").write_text(f"{error} KEPT {error.table.num_rows}")
if several:
    dist.destroy_process_group()
"""


def test_two_processes_return_the_same_table_as_one(
    run_forked: Callable[..., int], run_ranks: Callable[..., list[int]], tmp_path: Path
) -> None:
    assert run_forked(RANKS, out=tmp_path) == 0
    assert run_ranks(RANKS, out=tmp_path) == [0, 0]
    for kind in ("set", "loader"):
        one = read_table(tmp_path / f"{kind}0-False.parquet")
        assert one.num_rows == 53
        for rank in (0, 1):
            two = read_table(tmp_path / f"{kind}{rank}-True.parquet")
            same(two, one)
            assert two.schema.equals(one.schema, check_metadata=True)
    alone, *both = ((tmp_path / f"error{name}").read_text() for name in ("0-False", "0-True", "1-True"))
    assert alone.startswith("labels[20] is 7, not one of")
    assert alone.endswith("KEPT 16")
    assert both[0].startswith("labels[20] is 7, not one of")
    assert both[1].startswith("rank 0: DataError: labels[20] is 7")  # the second took batches 1, 3 and 5, and goes on
    assert all(text.endswith("KEPT 32") for text in both)


def dense(n: int = 6, shape: tuple[int, ...] = (2, 3)) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(CLASSES, (n, *shape), generator=generator)
    labels.view(n, -1)[1, :2] = -100
    return torch.randn(n, CLASSES, *shape, generator=generator), labels


@pytest.mark.parametrize("convert", [lambda t: t, lambda t: t.numpy()], ids=["tensor", "array"])
def test_positions_are_rows(convert: object) -> None:
    logits, labels = dense()
    kept = labels.flatten() != -100
    flat = score_logits(logits.movedim(1, -1).flatten(0, -2)[kept], labels.flatten()[kept], ids=torch.arange(36)[kept])
    made = score_logits(convert(logits), convert(labels))
    assert column(made, "example")[[0, 6, -1]].tolist() == [0, 1, 5]
    assert column(made, "part")[[0, 6, -1]].tolist() == [0, 2, 5]
    same(made.drop_columns(["example", "part"]), flat)
    table = score_logits(logits, labels, ids=[10, 11, 12, 13, 14, 20], paths=[f"{i}.png" for i in range(6)])
    assert column(table, "id")[[0, 6, -1]].tolist() == [60, 68, 125]
    assert column(table, "path")[[0, 6, -1]].tolist() == ["0.png", "1.png", "5.png"]
    named = score_logits(logits, labels, ids=list("abcdef"))
    assert column(named, "id")[[0, 6, -1]].tolist() == ["a:0", "b:2", "f:5"]
    with pytest.raises(ValueError, match=r"labels must have shape \(N, d1, ...\)"):
        score_logits(logits, labels[:, 0])
    with pytest.raises(ValueError, match="ids must be 6, one per example, got 5"):
        score_logits(logits, labels, ids=range(5))


@pytest.mark.parametrize("last", [False, True], ids=["(N, K, T)", "(N, T, K)"])
@pytest.mark.parametrize("batch_size", [2, 5])
def test_a_model_of_positions_is_scored_by_position(last: bool, batch_size: int) -> None:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.head = nn.Linear(DIM, CLASSES)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(x) if last else self.head(x).movedim(-1, 1)

    generator, model = torch.Generator().manual_seed(0), Tagger()
    x, labels = torch.randn(7, 4, DIM, generator=generator), torch.randint(CLASSES, (7, 4), generator=generator)
    labels[2, 1:] = -100
    kept = labels.flatten() != -100
    weight, bias = model.head.weight, model.head.bias
    expected = score_features(x.flatten(0, 1)[kept], weight, labels.flatten()[kept], bias, ids=torch.arange(28)[kept])
    table = score(model, TensorDataset(x, labels), batch_size=batch_size)
    same(table.drop_columns(["example", "part"]), expected, close=1e-5)
    assert column(score(model, TensorDataset(x, labels, 100 + torch.arange(7))), "id")[0] == 400


def test_ids_as_arrays_and_lists() -> None:
    x, weight, _, labels = head()
    ids = (100 + np.arange(40)).tolist()
    expected = score_logits(x @ weight.T, labels, ids=torch.tensor(ids))
    for given in (ids, np.array(ids), np.array(ids, np.int32)):
        assert column(score_logits(x @ weight.T, labels, ids=given), "id").tolist() == column(expected, "id").tolist()


def test_data_and_features_of_another_type_are_named() -> None:
    x, y = torch.randn(6, 4), torch.zeros(6, dtype=torch.long)
    with pytest.raises(ValueError, match="got a tuple of arrays: wrap tensors in a TensorDataset"):
        score(nn.Linear(4, 3), (x, y))
    with pytest.raises(ValueError, match=r"features must be an array or a tensor of shape \(N, D\), got list"):
        score_features(x.tolist(), torch.randn(3, 4), y)
    with pytest.raises(ValueError, match=r"a list of logits must hold an array \(T, K\) for each sequence"):
        score_logits(x.tolist(), y.tolist())


@pytest.mark.parametrize("layer", ["coarse", "fine"])
def test_the_head_that_is_named_gives_the_logits(layer: str) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.coarse, self.fine = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.coarse(x), self.fine(x)

    model, x, y = Two(), torch.randn(9, 4), torch.randint(3, (9,))
    expected = score_features(x, model.get_submodule(layer).weight, y, model.get_submodule(layer).bias)
    assert score(model, TensorDataset(x, y), layer=layer).equals(expected)
