"""The options that commands share, each with its words of help, said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Text = str | None
Number = int | None
DataWord = Annotated[
    Text, typer.Argument(metavar="[DATA]", help="A folder, a file or a known name (mohs list data); none: scikit-learn's digits.")
]
Config = Annotated[Path | None, typer.Option(help="Settings from a TOML file, or from another run's run.json; options win.")]
Model = Annotated[Text, typer.Option(help="The network (mohs list models), as resnet20 or mlp:hidden=64.")]
Head = Annotated[Text, typer.Option(help="A head on the sphere (mohs list heads), as arcface:scale=16,margin=0.1.")]
Loss = Annotated[Text, typer.Option(help="The loss (mohs list losses), as gce:q=0.5.")]
Regularizer = Annotated[
    list[str] | None, typer.Option(help="Beside the loss, with its weight, as adr:weight=0.05,tau=3; may be repeated.")
]
Noise = Annotated[Text, typer.Option(help="Make labels wrong on purpose, as symmetric:rate=0.4.")]
Augment = Annotated[list[str] | None, typer.Option(help="As crop_flip:padding=4, or none; may be repeated.")]
Optimizer = Annotated[Text, typer.Option(help="sgd, adam or adamw, as sgd:lr=0.1.")]
Schedule = Annotated[Text, typer.Option(help="Of the learning rate: constant, step, cosine, one_cycle, gaussian_ramp.")]
ClassWeight = Annotated[Text, typer.Option(help="auto, or deferred:start=160.")]
Epochs = Annotated[Number, typer.Option(help="How often to go through the data.")]
Batch = Annotated[Number, typer.Option(help="Examples a step, over all processes.")]
Accumulate = Annotated[Number, typer.Option(help="Work on each batch in so many parts, to save memory.")]
Ema = Annotated[float | None, typer.Option(help="Average the weights with this decay, as 0.999.")]
Precision = Annotated[Text, typer.Option(help="no, bf16 or fp16; auto: bf16 on a GPU.")]
Compile = Annotated[
    bool | None, typer.Option("--compile", help="Fuse the network's kernels by torch.compile; quicker steps after a slow first.")
]
Graph = Annotated[bool, typer.Option(help="On a GPU: each step as one CUDA graph, or its kernels one by one.")]
Label = Annotated[Text, typer.Option(help="The column that holds the label, in a CSV or Parquet file.")]
ImageSize = Annotated[Number, typer.Option(help="Resize images to this many pixels.")]
Without = Annotated[
    Text,
    typer.Option(help="Of several domains (pacs, a folder of them, mnist+usps) the one to test on and not to train on."),
]
Seed = Annotated[Number, typer.Option(help="Of the weights, the order of the examples and the noise.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Runs = Annotated[Path, typer.Option(help="Where the folders of runs lie.")]
Out = Annotated[Path | None, typer.Option(help="The folder of this run; default: one under --runs, named by its hash.")]
Tracker = Annotated[list[str] | None, typer.Option(help="tensorboard, wandb and what else Accelerate knows; may be repeated.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan with its memory and time, and stop.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]
