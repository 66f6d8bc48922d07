"""Features as the inputs of a run: pretrained ones of texts and images, encoded columns of a table.

A run on features trains a small network on them. `run.json` names the embedder so that it gives the same features on every
device. The inputs an embedder was fitted to, or the rows whose statistics encode a table, are kept in the run's folder, so that
the run alone suffices to classify new inputs (`classify`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from mohs.data.columns import from_table
from mohs.data.examples import Data, Examples
from mohs.data.row_inputs import TableRows, Texts
from mohs.embed.choose_embedder import create_embedder
from mohs.embed.embed_data import Worker, embed, embed_inputs
from mohs.embed.embedder import Embedder, spread_places
from mohs.embed.text_embedders import fit_sample
from mohs.hardness.table import read_parquet, write_table
from mohs.train.run import Run
from mohs.train.table_views import smooth_view

FITTED_TO = "embedder.parquet"  # texts or rows that the features are fitted to
COLUMNS = "columns"  # name of the encoding of a table in run.json
MOST_ROWS = 5000  # of a table whose statistics encode it
Progress = Callable[[int, int], None]


def embeds(run: Run, examples: Examples) -> bool:
    """Whether the run trains on features of these examples: always for texts and tables; for images if it names an embedder."""
    return examples.kind in ("text", "table") or (examples.kind == "images" and run.embed is not None)


def with_features(run: Run, data: Data, *, device: str = "auto", progress: Progress | None = None) -> tuple[Run, Data]:
    """The run with its embedder named, and the data with features as inputs; both unchanged if the run embeds nothing."""
    if not embeds(run, data.train):
        return run, data
    if data.train.kind == "table":
        if run.embed not in (None, "auto", COLUMNS):
            raise ValueError(f"embed={run.embed!r} (--embed): a table is not embedded; its columns are encoded without it")
        sample = sampled_rows(data.train)
        made = {name: replace(part, inputs=encoded(part, sample)) for name, part in data.splits.items()}
        return replace(run, embed=COLUMNS), Data(made["train"], made.get("val"), made.get("test"))
    embedder = create_embedder(run.embed or "auto", kind=data.train.kind, device=device, examples=len(data.train))
    name = embedder.exact or embedder.name
    return replace(run, embed=name), embed(data, name, device=device, progress=progress).data


def keep_fitted(run: Run, examples: Examples, folder: Path, *, device: str) -> None:
    """If the run's features are fitted to its inputs, write those inputs into the run's folder."""
    if not embeds(run, examples):
        return
    if examples.kind == "table":
        write_table(sampled_rows(examples), folder / FITTED_TO)
    elif _embedder(run, examples.kind, device).fitted:
        write_table(pa.table({"text": fit_sample(examples.inputs)}), folder / FITTED_TO)


def fitted_to(folder: Path) -> pa.Table:
    """What `keep_fitted` wrote into the folder of a run."""
    return read_parquet(folder / FITTED_TO, lost="new inputs cannot be encoded", repair="train the run again")


def features_for(
    run: Run, examples: Examples, folder: Path, *, device: str = "auto", progress: Progress | None = None
) -> Examples:
    """New examples with the same kind of features as the run in this folder trained on; unchanged if it embeds nothing."""
    if not embeds(run, examples):
        return examples
    if examples.kind == "table":
        return replace(examples, inputs=encoded(examples, fitted_to(folder)))
    embedder = _embedder(run, examples.kind, device)
    fitted = Texts(fitted_to(folder).column("text").to_pylist()) if embedder.fitted else examples.inputs
    features, _, _ = embed_inputs(Worker(embedder, fitted), examples, progress=progress)
    return replace(examples, inputs=features)


def sampled_rows(examples: Examples) -> pa.Table:
    """Rows of a table, spread over all of it, whose statistics encode it."""
    sample: pa.Table = examples.inputs[torch.tensor(spread_places(len(examples), MOST_ROWS))]
    return sample


def encoded(examples: Examples, sample: pa.Table) -> Tensor:
    """The rows of a table as features (N, D), by the statistics of sampled rows."""
    rows: Any = examples.inputs
    assert isinstance(rows, TableRows)
    return torch.from_numpy(smooth_view(from_table(rows.table), seen=from_table(sample))).float()


def _embedder(run: Run, kind: str, device: str) -> Embedder:
    return create_embedder(run.embed or "auto", kind=kind, device=device)
