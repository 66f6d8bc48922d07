"""Features to a file that `open_data` and `mohs audit` read, with the same ids, labels and splits.

.npz        features, labels, ids, classes; of other splits val_features, val_labels, val_ids, ...
.parquet    id, label, features (a list per row), source (the file an example came from), split where there are several

Data without labels have neither labels nor classes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch

from mohs._core.files import written_whole
from mohs._core.forward import row_slices
from mohs.data.examples import Data, Examples

ROWS = 8192  # rows per row group of a Parquet file
ENDINGS = (".npz", ".parquet")


def check_out(path: str | Path) -> Path:
    """The path; raises unless its extension is supported."""
    path = Path(path)
    if path.suffix.lower() not in ENDINGS:
        raise ValueError(f"{path}: features are written to files that end in {' or '.join(ENDINGS)}")
    return path


def write_embedded(data: Data, path: str | Path) -> Path:
    """Write features, labels and ids of all splits, as .npz or .parquet."""
    path = check_out(path)
    with written_whole(path) as part:
        if path.suffix.lower() == ".npz":
            with part.open("wb") as file:
                np.savez(file, **_arrays(data))
        else:
            _write_parquet(data, part)
    return path


def feature_column(features: np.ndarray[Any, Any]) -> pa.Array:
    """Features (N, D), float32, as a column: a list of D numbers per row."""
    return pa.FixedSizeListArray.from_arrays(pa.array(features.reshape(-1)), features.shape[1])


def _arrays(data: Data) -> dict[str, Any]:
    found: dict[str, Any] = {"classes": np.array(data.classes)} if data.classes else {}
    for split, examples in data.splits.items():
        before = "" if split == "train" else f"{split}_"
        found[f"{before}features"] = torch.as_tensor(examples.inputs).numpy()
        if data.classes:
            found[f"{before}labels"] = np.array(data.classes)[examples.labels.numpy()]
        found[f"{before}ids"] = np.array(_ids(examples))
    return found


def _write_parquet(data: Data, file: Path) -> None:
    several = len(data.splits) > 1
    width = data.train.shape[0]
    ids = [one for examples in data.splits.values() for one in _ids(examples)]
    kinds: dict[str, pa.DataType] = {
        "id": pa.array(ids).type,
        **({"label": pa.array(data.classes).type} if data.classes else {}),
        "features": pa.list_(pa.float32(), width),
        **({"source": pa.string()} if any(one.paths is not None for one in data.splits.values()) else {}),
        **({"split": pa.string()} if several else {}),
    }
    with pyarrow.parquet.ParquetWriter(file, pa.schema(kinds)) as writer:
        for split, examples in data.splits.items():
            names = _ids(examples)
            for rows in row_slices(len(examples), ROWS):
                features = torch.as_tensor(examples.inputs)[rows].float().contiguous().numpy()
                number = len(features)
                columns: dict[str, Any] = {
                    "id": pa.array(names[rows], kinds["id"]),
                    "label": [data.classes[i] for i in examples.labels[rows].tolist()] if data.classes else None,
                    "features": feature_column(features),
                    "source": pa.array(examples.paths[rows] if examples.paths is not None else [None] * number, pa.string()),
                    "split": pa.array([split] * number, pa.string()),
                }
                writer.write_table(pa.table({name: columns[name] for name in kinds}, schema=pa.schema(kinds)))


def _ids(examples: Examples) -> list[Any]:
    """Keys of the examples, or their positions; as text if they have several types."""
    keys = list(range(len(examples)) if examples.keys is None else examples.keys)
    return keys if len({type(key) for key in keys}) <= 1 else [str(key) for key in keys]
