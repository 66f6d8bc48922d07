"""Figures of the papers, drawn from stored results or from short trainings: `mohs study --figures`.

    features       AVH, Figures 2 and 8; AMC, Figure 1     two features of digits: directions are classes
    trajectory     AVH, Figure 22                          an attacked example on its way to another class, in the same features
    degradation    AVH, Figures 11 and 12                  AVH, length and accuracy as images are degraded
    course         AVH, Figures 13 to 15                   AVH, length and accuracy by epoch
    uncertainty    ADR, Figures 2 and 4                    ADR from an uncertain prediction to a certain one
    segmentation   ADR, Figure 8                           segments of photographs and of scenes with known regions

Figures use other data if the paper's are not available; the gallery names them.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from mohs._core.errors import DataError
from mohs.evaluate.outputs import predict
from mohs.losses.adr import adr
from mohs.report.charts import COLORS, save_chart
from mohs.studies.collect import read_results
from mohs.studies.systems.segmentation import Segmentation, scene, segment
from mohs.train.loop import train
from mohs.train.run import Run
from mohs.train.run_data import opened

if TYPE_CHECKING:
    from PIL.Image import Image

    from mohs.data.examples import Data
    from mohs.models.network import Network

FOLDER = Path("docs") / "images"
NUMBERS = {"avh": "mean AVH", "norm": "mean length of the features", "accuracy": "accuracy", "right": "accuracy"}
SHOWN_CLASSES = 5  # of digits
SHOWN = 200  # points in a picture
EPOCHS = 25
ATTACK_STEPS, ATTACK_STEP = 40, 0.008  # pixels are 0 to 1
SIDE = 64  # pixels of a picture that is segmented
METHODS: Mapping[str, Mapping[str, Any]] = {
    "CE": {"continuity": 0.0},
    "CE + ADR": {"continuity": 0.0, "gamma": 0.5},
    "continuity": {},
    "continuity + ADR": {"gamma": 0.5},
}


def draw_figures(root: str | Path = ".", names: Sequence[str] = ()) -> list[Path]:
    """Draw the papers' figures into `docs/images`.

    Args:
        root: The repository: it holds results/ and docs/.
        names: Figures to draw; default: all.

    Returns:
        The files written.
    """
    root = Path(root)
    for name in names:
        if name not in FIGURES:
            raise ValueError(f"no figure {name!r}; known: {', '.join(FIGURES)}")
    (root / FOLDER).mkdir(parents=True, exist_ok=True)
    return [FIGURES[name](root, root / FOLDER / f"paper-{name}") for name in names or FIGURES]


def features(root: Path, path: Path) -> Path:
    """Two features of digits, training and test set, with cross-entropy, alone and with the angular term."""
    import altair

    panels = []
    for title, terms in (("cross-entropy", []), ("cross-entropy + AMC", [{"name": "amc", "margin": 0.5, "weight": 0.1}])):
        network, data = two_features(terms)
        for part, examples in (("training", data.train), ("test", data.test)):
            if examples is not None:
                kept = examples.take((examples.labels < SHOWN_CLASSES).nonzero().flatten()[:SHOWN])
                panels.append(points(predict(network, kept).features, kept.labels, f"{title}, {part} examples"))
    return saved(altair.concat(*panels, columns=2).resolve_scale(x="independent", y="independent"), path)


def trajectory(root: Path, path: Path) -> Path:
    """A test example of digits under attack: its two features after every step, among those of the test set."""
    import altair

    network, data = two_features([])
    test = data.test if data.test is not None else data.train
    one = torch.as_tensor(test.inputs[torch.tensor([0])])
    way = attacked(network, one.float() / 255, test.labels[:1])
    steps = [{"x": float(x), "y": float(y), "step": i} for i, (x, y) in enumerate(way)]
    line = altair.Chart({"values": steps}).mark_line(color="#000000", strokeWidth=2, point={"color": "#000000", "size": 25})
    title = f"digit {int(test.labels[0])} under attack, {ATTACK_STEPS} steps"
    made = points(predict(network, test).features, test.labels, title) + line.encode(x="x:Q", y="y:Q", order="step:Q")
    return saved(made, path)


def two_features(terms: list[dict[str, Any]]) -> tuple[Network, Data]:
    """A network with two features, trained on digits for some seconds on the CPU, and its data."""
    model, optimizer = {"name": "amc_mnist", "embedding": 2, "dropout": 0.0}, {"name": "adam", "lr": 0.003}
    shared: dict[str, Any] = {
        "model": model,
        "optimizer": optimizer,
        "batch": 64,
        "record": False,
        "open": {"test": 0.3, "image_size": 12},
    }
    run = Run(data="digits", regularizers=terms, epochs=EPOCHS, **shared)
    with tempfile.TemporaryDirectory() as folder:
        return train(run, runs=folder, device="cpu").network.eval(), opened(run)


def points(found: Tensor, labels: Tensor, title: str) -> Any:
    """Two features of each example, colored by class."""
    import altair

    rows = [{"x": float(x), "y": float(y), "class": str(int(k))} for (x, y), k in zip(found, labels, strict=True)]
    color = altair.Color("class:N", scale=altair.Scale(scheme="tableau10"), legend=altair.Legend(title="digit"))
    dots = altair.Chart({"values": rows}).mark_circle(size=9, opacity=0.6)
    place = {"x": altair.X("x:Q", title="feature 1"), "y": altair.Y("y:Q", title="feature 2")}
    return dots.encode(**place, color=color).properties(width=230, height=230, title=title)


def attacked(network: Network, x: Tensor, label: Tensor) -> list[list[float]]:
    """The features of one example after every step against its label, by the sign of the gradient."""
    way, x = [], x.clone()
    for _ in range(ATTACK_STEPS + 1):
        x.requires_grad_()
        inner = network.features(x)
        way.append(inner[0].detach().tolist())
        (slope,) = torch.autograd.grad(torch.nn.functional.cross_entropy(network.head(inner), label), x)
        x = (x + ATTACK_STEP * slope.sign()).clamp(0, 1).detach()
    return way


def degradation(root: Path, path: Path) -> Path:
    """Means over the runs of the degradation studies, by level."""
    import altair

    panels = []
    for kind in ("noise", "contrast"):
        found = results_of(root, f"avh/degradation-{kind}")
        for number in ("avh", "norm", "accuracy"):
            levels = [name.removeprefix(f"{number}_") for name in found[0] if name.startswith(f"{number}_")]
            panels.append(lines(found, {level: f"{number}_{level}" for level in levels}, f"level of {kind}", NUMBERS[number]))
    return saved(altair.concat(*panels, columns=3), path)


def course(root: Path, path: Path) -> Path:
    """Means over the runs of the observations, by epoch: held-out images in evaluation mode."""
    import altair

    found = results_of(root, "avh/observations-fashion")
    panels = []
    for number in ("avh", "norm", "right"):
        start = f"test_{number}_epoch_"
        epochs = [name.removeprefix(start) for name in found[0] if name.startswith(start)]
        if not epochs:
            raise DataError("results/avh/observations-fashion.csv: no columns test_..._epoch_n: run the study again")
        panels.append(lines(found, {epoch: f"{start}{epoch}" for epoch in epochs}, "epoch", NUMBERS[number]))
    return saved(altair.concat(*panels, columns=3), path)


def results_of(root: Path, study: str) -> list[dict[str, Any]]:
    """The rows of a study's results that have numbers."""
    return [one for one in read_results(root / "results" / f"{study}.csv") if "error" not in one]


def lines(found: Sequence[Mapping[str, Any]], columns: Mapping[str, str], x: str, y: str) -> Any:
    """One line per row of the results: the mean over its seeds of each column, at the number that is its key."""
    import altair

    names, rows = list(dict.fromkeys(str(one["row"]) for one in found)), []
    for name in names:
        for at, column in columns.items():
            values = [float(one[column]) for one in found if one["row"] == name and column in one]
            rows += [{"row": name, "x": float(at), "y": float(np.mean(values))}] if values else []
    color = altair.Color("row:N", sort=names, scale=altair.Scale(domain=names, range=COLORS), legend=altair.Legend(title=None))
    place = {"x": altair.X("x:Q", title=x), "y": altair.Y("y:Q", title=y, scale=altair.Scale(zero=False))}
    return (
        altair.Chart({"values": rows})
        .mark_line(point={"size": 20})
        .encode(**place, color=color)
        .properties(width=200, height=160)
    )


def uncertainty(root: Path, path: Path) -> Path:
    """F from a uniform prediction to a one-hot one: the probability of the top class, the rest shared equally."""
    import altair

    rows: list[dict[str, Any]] = []
    for classes, tau in ((2, 1), (10, 1), (10, 3), (100, 3)):
        top = torch.linspace(1 / classes + 1e-3, 0.995, 120, dtype=torch.float64)
        for p in top:
            rest = (1 - p) / (classes - 1)
            logits = torch.cat([p.log().view(1), rest.log().expand(classes - 1)])
            rows.append({"p": float(p), "F": float(adr(logits[None], tau=tau)), "row": f"K = {classes}, τ = {tau}"})
    names = list(dict.fromkeys(str(one["row"]) for one in rows))
    largest = {name: max(float(one["F"]) for one in rows if one["row"] == name) for name in names}
    rows = [{**one, "F": float(one["F"]) / largest[str(one["row"])]} for one in rows]
    color = altair.Color("row:N", sort=names, scale=altair.Scale(range=COLORS), legend=altair.Legend(title=None))
    x, y = altair.X("p:Q", title="probability of the top class"), altair.Y("F:Q", title="ADR, relative to its maximum")
    return saved(altair.Chart({"values": rows}).mark_line().encode(x=x, y=y, color=color).properties(width=420, height=260), path)


def segmentation(root: Path, path: Path) -> Path:
    """Segments of two photographs and two scenes, one row each: the image, the regions where they are known, each method."""
    from PIL import Image, ImageDraw

    images = [*((image, None) for image in photographs()), *(scene(SIDE, noise=0.1, seed=seed) for seed in (0, 3))]
    titles, zoom, top = ["image", "regions", *METHODS], 2, 16
    sheet = Image.new("RGB", (len(titles) * (zoom * SIDE + 4), top + len(images) * (zoom * SIDE + 4)), "white")
    pen = ImageDraw.Draw(sheet)
    for j, title in enumerate(titles):
        pen.text((j * (zoom * SIDE + 4) + 2, 2), title, fill="black")
    for i, (image, regions) in enumerate(images):
        cells: list[Any] = [picture(image), None if regions is None else painted(regions)]
        for settings in METHODS.values():
            run = Segmentation(size=SIDE, epochs=100, **settings)
            cells.append(painted(segment(image, run, seed=0)))
        for j, cell in enumerate(cells):
            if cell is not None:
                place = (j * (zoom * SIDE + 4), top + i * (zoom * SIDE + 4))
                sheet.paste(cell.resize((zoom * SIDE, zoom * SIDE), Image.Resampling.NEAREST), place)
    file = path.with_suffix(".webp")
    held = io.BytesIO()
    sheet.save(held, "WEBP", lossless=True)
    file.write_bytes(held.getvalue())
    return file


def photographs() -> list[Tensor]:
    """The two photographs that scikit-learn carries, reduced to a square of SIDE pixels; values from 0 to 1."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    small = [Image.fromarray(one).crop((0, 0, 427, 427)).resize((SIDE, SIDE)) for one in load_sample_images().images]
    return [torch.from_numpy(np.array(one)).permute(2, 0, 1).float() / 255 for one in small]


def picture(image: Tensor) -> Image:
    """An image (3, H, W) with values from 0 to 1 as a picture."""
    from PIL import Image

    return Image.fromarray((image.clamp(0, 1).permute(1, 2, 0).numpy() * 255).astype(np.uint8))


def painted(labels: Tensor) -> Image:
    """Segments (H, W) in colors that follow their size, the largest first."""
    from PIL import Image

    names, places, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    rank = counts.argsort(descending=True).argsort()
    hue = (rank.double() * 0.618034) % 1  # golden ratio: neighbors in size differ in color
    value = torch.stack([hue * 255, torch.full_like(hue, 150), 255 - 120 * (rank / max(1, len(names)))], -1)
    return Image.fromarray(value[places].numpy().astype(np.uint8), "HSV").convert("RGB")


def saved(chart: Any, path: Path) -> Path:
    """Write the chart as SVG."""
    file = path.with_suffix(".svg")
    save_chart(chart.configure(background="white"), file)
    return file


FIGURES: dict[str, Callable[[Path, Path], Path]] = {
    "features": features,
    "trajectory": trajectory,
    "degradation": degradation,
    "course": course,
    "uncertainty": uncertainty,
    "segmentation": segmentation,
}
