"""The options that several commands share, each with its help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Text = str | None
Number = int | None
DataWord = Annotated[
    Text,
    typer.Argument(
        metavar="DATA",
        help="Folder, file or name of a data set (mohs list data); default: scikit-learn's digits.",
    ),
]
Config = Annotated[
    Path | None, typer.Option(metavar="FILE", help="TOML file of settings, or the run.json of another run; options override it.")
]
Model = Annotated[
    Text,
    typer.Option(
        metavar="SPEC", help="Network (mohs list models), such as resnet20 or mlp:hidden=64; default: by the shape of the data."
    ),
]
Head = Annotated[
    Text,
    typer.Option(
        metavar="SPEC", help="Classification head (mohs list heads), such as arcface:scale=16,margin=0.1; default: linear."
    ),
]
Loss = Annotated[Text, typer.Option(metavar="SPEC", help="Loss (mohs list losses), such as gce:q=0.5; default: cross_entropy.")]
Regularizer = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SPEC", help="Regularizer with its weight (mohs list regularizers), such as adr:weight=0.05,tau=3. Repeatable."
    ),
]
Recipe = Annotated[
    Text,
    typer.Option(
        metavar="SPEC", help="Robust training on wrong labels (mohs list robust): robust, or robust-two for two networks."
    ),
]
Noise = Annotated[
    Text,
    typer.Option(metavar="SPEC", help="Label noise to add to the training set (mohs list noises), such as symmetric:rate=0.4."),
]
Augment = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SPEC", help="Augmentation (mohs list augmentations), such as crop_flip:padding=4, or none. Repeatable."
    ),
]
Optimizer = Annotated[
    Text, typer.Option(metavar="SPEC", help="Optimizer (mohs list optimizers), such as adamw:lr=0.001; default: sgd.")
]
Schedule = Annotated[
    Text, typer.Option(metavar="SPEC", help="Learning-rate schedule (mohs list lr_schedules); default: cosine:warmup=0.05.")
]
ClassWeight = Annotated[
    Text, typer.Option(metavar="SPEC", help="Class weights: auto, or deferred:start=EPOCH; default: unweighted.")
]
Epochs = Annotated[Number, typer.Option(metavar="N", help="Number of training epochs; default: 20, or 60 with a robust recipe.")]
Batch = Annotated[Number, typer.Option(metavar="N", help="Global batch size (summed over processes); default: 128.")]
Accumulate = Annotated[
    Number, typer.Option(metavar="N", help="Number of gradient-accumulation steps per batch, to save memory; default: 1.")
]
Ema = Annotated[
    float | None, typer.Option(metavar="DECAY", help="Decay of an exponential moving average of the weights, such as 0.999.")
]
Precision = Annotated[
    Text, typer.Option(metavar="NAME", help="Mixed precision: no, bf16, fp16, or auto (bf16 on a GPU); default: auto.")
]
Compile = Annotated[
    bool | None, typer.Option("--compile", help="Compile the network with torch.compile: a slow first step, then faster ones.")
]
Graph = Annotated[bool, typer.Option(help="Run each step as one CUDA graph (GPU only).")]
Label = Annotated[Text, typer.Option(metavar="COLUMN", help="Label column of a CSV or Parquet file.")]
Separator = Annotated[
    Text, typer.Option(metavar="SIGN", help="Separator of several labels in a cell of the label column, such as ';'.")
]
Target = Annotated[Text, typer.Option(metavar="COLUMN", help="Column with the target of a regression, instead of class labels.")]
Votes = Annotated[
    Text,
    typer.Option(
        metavar="FILE",
        help="Labels from several annotators: one column per annotator (FILE:COLUMN,COLUMN selects them), one row per vote "
        "(example, annotator, label), or counts per class.",
    ),
]
Group = Annotated[
    Text,
    typer.Option(
        metavar="COLUMN",
        help="Column of groups, such as patients or videos, that stay whole in cross-validation and splits; for folders of "
        "images, a regular expression that finds the group in each path.",
    ),
]
TextColumn = Annotated[Text, typer.Option("--text", metavar="COLUMN", help="Text column of a table.")]
Corrected = Annotated[
    Text,
    typer.Option(
        "--corrected", metavar="FILE", help="Corrected labels to use instead of the original ones: a file written by mohs apply."
    ),
]
TrainEmbed = Annotated[
    Text,
    typer.Option(
        "--embed",
        metavar="NAME",
        help="Pretrained features to train on: auto or an embedder (mohs list embedders); default: none for images, auto for "
        "texts.",
    ),
]
ImageSize = Annotated[
    Number, typer.Option(metavar="PIXELS", help="Image size in pixels (side length); default: depends on the images.")
]
Without = Annotated[
    Text,
    typer.Option(
        metavar="DOMAIN",
        help="Domain to hold out as the test set, for data with several domains (pacs, a folder of them, mnist+usps).",
    ),
]
Seed = Annotated[Number, typer.Option(metavar="SEED", help="Random seed; default: 0.")]
Device = Annotated[str, typer.Option(metavar="DEVICE", help="Device: auto, cpu or cuda.")]
On = Annotated[
    str,
    typer.Option(
        metavar="WHERE",
        help="Where to compute: local, ray (starts a cluster on this machine), or ray:ADDRESS of a cluster (ray:auto finds it).",
    ),
]
Runs = Annotated[Path, typer.Option(metavar="FOLDER", help="Folder that holds the run folders.")]
Out = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Folder of this run; default: a folder in --runs, named by the run's hash.")
]
Tracker = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Experiment tracker: tensorboard, wandb or another that Accelerate supports. Repeatable."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan with estimates of memory and time, and exit.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]
