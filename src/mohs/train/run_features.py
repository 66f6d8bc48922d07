"""Pretrained features as the inputs of a run: what `Run.embed` names, for the run's data and later for new inputs.

A run on features trains a small network on the outputs of a frozen one. `run.json` names the embedder so that it gives the same
features on every device; what an embedder was fitted to is kept in the run's folder, so that the run alone can classify new
inputs (`classify`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from mohs.data.examples import Data, Examples
from mohs.data.row_inputs import Texts
from mohs.embed.choose_embedder import create_embedder
from mohs.embed.embed_data import Worker, embed, embed_inputs
from mohs.embed.embedder import Embedder
from mohs.embed.text_embedders import fit_sample
from mohs.hardness.table import read_parquet, write_table
from mohs.train.run import Run

FITTED_TO = "embedder.parquet"  # texts that the embedder was fitted to, one per row
Progress = Callable[[int, int], None]


def embeds(run: Run, examples: Examples) -> bool:
    """Whether the run trains on features of these examples: of texts always, of images if it names an embedder."""
    return examples.kind == "text" or (examples.kind == "images" and run.embed is not None)


def with_features(run: Run, data: Data, *, device: str = "auto", progress: Progress | None = None) -> tuple[Run, Data]:
    """The run with its embedder named, and the data with features as inputs; both as they are if the run embeds nothing."""
    if not embeds(run, data.train):
        return run, data
    made = create_embedder(run.embed or "auto", kind=data.train.kind, device=device, examples=len(data.train))
    found = embed(data, made.exact or made.name, device=device, progress=progress)
    return replace(run, embed=made.exact or made.name), found.data


def keep_fitted(run: Run, examples: Examples, folder: Path, *, device: str) -> None:
    """Write what the run's embedder is fitted to, if it is, into the run's folder."""
    if embeds(run, examples) and _embedder(run, examples.kind, device).fitted:
        write_table(pa.table({"text": fit_sample(examples.inputs)}), folder / FITTED_TO)


def features_for(
    run: Run, examples: Examples, folder: Path, *, device: str = "auto", progress: Progress | None = None
) -> Examples:
    """New examples with features of the embedder that the run in this folder trained on; as they are if it embeds nothing."""
    if not embeds(run, examples):
        return examples
    embedder = _embedder(run, examples.kind, device)
    fitted = examples.inputs
    if embedder.fitted:
        kept = read_parquet(folder / FITTED_TO, lost="the embedder cannot be fitted again", repair="train the run again")
        fitted = Texts(kept.column("text").to_pylist())
    features, _, _ = embed_inputs(Worker(embedder, fitted), examples, progress=progress)
    return replace(examples, inputs=features)


def _embedder(run: Run, kind: str, device: str) -> Embedder:
    return create_embedder(run.embed or "auto", kind=kind, device=device)
