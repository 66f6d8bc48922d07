"""The hardness table of a trained model, of its features, or of its logits: every measurement of a single forward pass.

    score(model, data)                             any model with a linear head, any Dataset or DataLoader
    score_features(features, weight, labels, bias) the inputs of the head, and the head
    score_logits(logits, labels)                   its outputs: no angles, no norms

Examples may have several labels, of classes, tokens or pixels: every labeled part is then a row, with the columns `example` and
`part` (`parts`), and `by_example` takes the worst of each.

Work is done in chunks of rows: beyond the inputs and one number per example and column, memory does not grow with N. A row
whose logits hold NaN or +∞ is kept, with NaN for its scores (`unscored(table)` lists them); with `strict=True` it is an error
at the end. A label that the head has no row for, and a repeated id, raise an error that names the row. An error during
`score` carries the rows scored so far as `error.table`.

Under torch.distributed every process calls `score` with the same data, scores its share of the batches, and returns the
whole table, bit-identical to that of a single process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from mohs._core.device import choose_device, device_of
from mohs._core.distributed import gathered, ranks
from mohs._core.errors import DataError
from mohs._core.forward import inference, row_slices
from mohs._core.graphs import graph_inputs, is_graph
from mohs.angle import products
from mohs.hardness.batches import Batch, batches
from mohs.hardness.classes import decode, encode
from mohs.hardness.measure import Columns, finished, host, joined, measure, repeated, sound, with_table
from mohs.hardness.parts import BINARY, id_of_part, parts_of, several_classes
from mohs.heads.find_head import FoundHead, candidates, find_head
from mohs.margin import NO_LABEL

CHUNK_ENTRIES = 2**20  # logits per chunk: 4 MB, and a few copies of it


def score_features(
    features: Any,
    weight: Any,
    labels: Any,
    bias: Any = None,
    *,
    logits: Any = None,
    classes: Sequence[Any] | None = None,
    ids: Any = None,
    paths: Any = None,
    neighbors: bool = False,
    human: bool = False,
    strict: bool = False,
) -> pa.Table:
    """Score examples from the features that enter a linear head, and the head.

    Args:
        features: (N, D), an array, a tensor, or anything that can be sliced by rows, such as a memory map.
        weight: Weights of the head (K, D).
        labels: (N,), class names or rows of the head.
        bias: Biases of the head (K,).
        logits: The model's own logits (N, K), if they differ from features · weight + bias.
        classes: Class names in the order of the head's rows.
        ids: Ids of the examples (N,); default: row numbers.
        paths: Files of the examples (N,).
        neighbors: Also find nearest neighbors, which needs all features in memory.
        human: Also predict the share of people who would choose the label (`predict_agreement`), by a model trained on votes.
        strict: Raise an error if a row's logits hold NaN or +∞.

    Returns:
        The hardness table, one row per example.
    """
    weight, bias = checked_head(features, weight, bias)
    index, names, known = _checked("features", features, labels, weight.shape[0], classes, ids=ids, paths=paths)
    if logits is not None and tuple(logits.shape) != (len(index), weight.shape[0]):
        raise ValueError(f"logits must have shape {(len(index), weight.shape[0])} for these features, got {tuple(logits.shape)}")
    parts = []
    for rows in chunks(len(index), weight.shape[0]):
        x = as_tensor(features[rows], weight.device)
        z = linear(x, weight, bias) if logits is None else as_tensor(logits[rows], weight.device)
        parts.append(host(measure(z, torch.from_numpy(index[rows]), x, weight)))
    whole = {"features": as_tensor(features[:], weight.device)} if neighbors else {}
    return sound(finished({**joined(parts), **known, **whole}, names, device=weight.device, human=human), strict=strict)


def score_logits(
    logits: Any,
    labels: Any,
    *,
    classes: Sequence[Any] | None = None,
    ids: Any = None,
    paths: Any = None,
    human: bool = False,
    strict: bool = False,
) -> pa.Table:
    """Score examples from logits alone: without angles, norms and neighbors.

    Args:
        logits: (N, K), an array, a tensor, or anything that can be sliced by rows; (N, K, d1, ...) for tokens or pixels, an array
            or tensor; or a list of (T, K), one per sequence.
        labels: (N,), class names or indices; (N, K) of 0 and 1, if an example can have several classes; (N, d1, ...); or a list
            of (T,). Entries of −100 are left out.
        classes: Class names in the order of the logits.
        ids: Ids of the examples (N,), an array, a tensor or a list; default: row numbers.
        paths: Files of the examples (N,).
        human: Also predict the share of people who would choose the label (`predict_agreement`), by a model trained on votes.
        strict: Raise an error if a row's logits hold NaN or +∞.

    Returns:
        The hardness table, one row per example, or one per part with the columns `example` and `part`.
    """
    if not isinstance(logits, list | tuple) and len(logits.shape) < 2:
        raise ValueError(f"logits must have shape (N, K) or (N, K, d1, ...), got {tuple(logits.shape)}")
    own: Columns = {}
    if isinstance(logits, list | tuple) or len(logits.shape) > 2 or several_classes(logits.shape, np.shape(labels)):
        logits, labels, classes, own = _flat(logits, labels, classes, ids, paths)
        ids, paths = own.pop("id"), own.pop("path", None)
    index, names, known = _checked("logits", logits, labels, logits.shape[1], classes, ids=ids, paths=paths)
    parts = [
        host(measure(as_tensor(logits[rows]), torch.from_numpy(index[rows]))) for rows in chunks(len(index), logits.shape[1])
    ]
    return sound(finished({**joined(parts), **known, **own}, names, human=human), strict=strict)


def _flat(
    logits: Any, labels: Any, classes: Sequence[Any] | None, ids: Any, paths: Any
) -> tuple[Tensor, Any, Sequence[Any] | None, Columns]:
    """Logits with parts as rows (R, K), their labels (R,) and classes, and the columns id, example, part and path (R,)."""
    listed = isinstance(logits, list | tuple)
    logits = [as_tensor(one) for one in logits] if listed else as_tensor(logits)
    examples = len(logits)
    given = host({"ids": np.arange(examples) if ids is None else ids})
    given |= {} if paths is None else {"paths": np.asarray(paths)}
    for name, values in {"labels": labels, **given}.items():
        if len(values) != examples:
            raise ValueError(f"{name} must be {examples}, one per example, got {len(values)}")
    labels = list(labels) if listed else host({"labels": labels})["labels"]
    several = not listed and several_classes(logits.shape, labels.shape)
    parts = parts_of(logits, labels)
    own = part_columns(parts.place, given["ids"][parts.example], classes if several else None)
    own["id"] = parts.ids(given["ids"])
    own |= {} if paths is None else {"path": given["paths"][parts.example]}
    return parts.logits, parts.labels, BINARY if several else classes, own


def part_columns(place: Any, example: Any, classes: Sequence[Any] | None) -> Columns:
    """The columns example and part (R,); classes: names of the parts, where these are classes."""
    return {"example": example, "part": place if classes is None else decode(place, classes)}


def score(
    model: nn.Module,
    data: Any,
    *,
    device: str | torch.device | None = None,
    classes: Sequence[Any] | None = None,
    layer: str | None = None,
    batch_size: int = 256,
    neighbors: bool = False,
    human: bool = False,
    strict: bool = False,
) -> pa.Table:
    """Score the examples of a data set by a trained model with a linear head, in evaluation mode.

    Args:
        model: The classifier; its state is restored afterwards.
        data: A Dataset or DataLoader whose items are (input, label), (input, label, id), mappings, or graphs of PyTorch
            Geometric; or a single graph, whose nodes are the examples.
        device: Device to run on; default: the model's.
        classes: Class names in the order of the head's rows; labels may then be names.
        layer: Name of the head, if it is not the last linear layer.
        batch_size: Batch size, if `data` is a Dataset.
        neighbors: Also find nearest neighbors in feature space.
        human: Also predict the share of people who would choose the label (`predict_agreement`), by a model trained on votes.
        strict: Raise an error if a row's logits hold NaN or +∞.

    Returns:
        The hardness table, one row per example, in the order of the data set.
    """
    found = find_head(model, layer=layer)
    rank, number = ranks()
    parts: list[Columns] = []
    failure: Exception | None = None
    chosen = None if device is None else choose_device(device)
    place = chosen or device_of(model) or torch.device("cpu")
    with inference(model, device=chosen) as run:
        try:
            for batch in batches(data, batch_size=batch_size, rank=rank, ranks=number):
                parts.append(_score_batch(found, run, batch, classes, keep_features=neighbors))
        except Exception as error:  # raised again below with the rows scored so far, after the other processes were notified
            failure = error
    message = "" if failure is None else f"rank {rank}: {type(failure).__name__}: {failure}"
    everyone = gathered((joined([host(part) for part in parts]), message))
    scored = joined([columns for columns, _ in everyone if columns])
    names = list(range(found.weight.shape[0])) if classes is None else list(classes)
    table = finished(*_in_order(scored, names), device=place, human=human) if scored else None
    message = next(filter(None, (words for _, words in everyone)), "")
    if message:
        raise with_table(failure or DataError(message), table)
    if table is None:
        raise DataError("data holds no examples: there is nothing to score")
    return sound(table, strict=strict)


def _score_batch(
    found: FoundHead, run: Callable[..., Any], batch: Batch, classes: Sequence[Any] | None, *, keep_features: bool
) -> Columns:
    weight = found.weight.detach()
    arguments, keywords = batch.arguments, batch.keywords
    if len(arguments) == 1 and is_graph(arguments[0]):
        arguments, keywords = graph_inputs(found.model, arguments[0])
    logits, features = run(found.logits_and_features, *arguments, **keywords)
    labels, example, places = batch.labels, np.arange(len(batch)), {}
    head: tuple[Tensor, ...] = (features, weight.to(features.device))
    several = several_classes(logits.shape, np.shape(labels)) and features.shape[0] == len(batch)
    if several or (logits.dim() > 2 and logits.numel() == features.shape[0] * weight.shape[0]):
        labels = host({"labels": labels})["labels"]
        kept = torch.from_numpy(labels.reshape(-1) != NO_LABEL)
        parts = parts_of(logits, labels)
        logits, labels, example = parts.logits, parts.labels, parts.example
        places = {"class" if several else "position": parts.place}
        head = () if several else (features[kept.to(features.device)], head[1])  # one angle is not informative for K labels
    if not several and (logits.shape != (len(example), weight.shape[0]) or head[0].shape[0] != len(example)):
        raise ValueError(
            f"the model gives logits of shape {tuple(logits.shape)} for {len(batch)} examples, but layer {found.name!r} has "
            f'{weight.shape[0]} rows and saw {features.shape[0]}: it is not the classifier; pass layer="name" of the one that '
            f"is ({candidates(found.model)}) or, where the classifier is a convolution, features and weight to score_features"
        )
    allowed = BINARY if several else range(weight.shape[0]) if classes is None else classes
    try:
        index, _ = encode(labels, num_classes=logits.shape[1], classes=allowed, first_row=batch.start)
    except ValueError as error:
        raise DataError(str(error)) from error
    made: Columns = {"row": batch.start + example, **places, **measure(logits, torch.from_numpy(index), *head)}
    made |= {"features": features[torch.from_numpy(example)] if several else head[0]} if keep_features else {}
    given = host({name: value for name, value in (("id", batch.ids), ("path", batch.paths)) if value is not None})
    return made | {name: value[example] for name, value in given.items()}


def linear(features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """features (n, D), weight (K, D), bias (K,) -> logits (n, K)."""
    z = products(features, weight)
    return z if bias is None else z + bias.to(z.dtype)


def as_tensor(values: Any, device: torch.device | None = None) -> Tensor:
    """A floating tensor of this array or tensor, on the device; an array is copied because it may be read-only."""
    tensor = values if isinstance(values, Tensor) else torch.from_numpy(np.array(values))
    tensor = tensor.detach() if tensor.is_floating_point() else tensor.float()
    return tensor if device is None else tensor.to(device)


def chunks(rows: int, classes: int) -> Iterator[slice]:
    """Slices of rows whose logits fit in a chunk."""
    return row_slices(rows, max(1, CHUNK_ENTRIES // classes))


def checked_head(features: Any, weight: Any, bias: Any) -> tuple[Tensor, Tensor | None]:
    """weight and bias as tensors; raise unless they fit each other and the features."""
    weight = as_tensor(weight)
    if not hasattr(features, "shape"):
        raise ValueError(f"features must be an array or a tensor of shape (N, D), got {type(features).__name__}")
    if weight.dim() != 2 or len(features.shape) != 2 or features.shape[1] != weight.shape[1]:
        raise ValueError(
            "features must have shape (N, D) and weight (K, D) with the same D, "
            f"got features {tuple(features.shape)} and weight {tuple(weight.shape)}"
        )
    bias = None if bias is None else as_tensor(bias, weight.device)
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias must have shape ({weight.shape[0]},), one per row of weight, got {tuple(bias.shape)}")
    return weight, bias


def _checked(
    name: str, values: Any, labels: Any, num_classes: int, classes: Sequence[Any] | None, **named: Any
) -> tuple[np.ndarray[Any, Any], list[Any], Columns]:
    """Rows of the head, class names, and ids and paths where given; raise unless all have as many rows as `values`."""
    index, names = encode(labels, num_classes=num_classes, classes=classes)
    given = {kind: value for kind, value in named.items() if value is not None}
    for kind, value in {"labels": labels, **given}.items():
        if len(value) != values.shape[0]:
            raise ValueError(f"{kind} must be {values.shape[0]}, one per row of {name}, got {len(value)}")
    if not len(index):
        raise DataError(f"{name} holds no rows: there is nothing to score")
    message = repeated(host(given)["ids"]) if "ids" in given else None
    if message is not None:
        raise DataError(message)
    return index, names, {kind.removesuffix("s"): value for kind, value in host(given).items()}


def _in_order(columns: Columns, classes: Sequence[Any]) -> tuple[Columns, Sequence[Any]]:
    """The rows of all processes in the data's order, by the number `row`, the id by default; and the classes of these rows."""
    several = "class" in columns
    parts = columns.pop("class" if several else "position", None)
    order = np.argsort(columns["row"], kind="stable") if parts is None else np.lexsort((parts, columns["row"]))
    columns = {name: values[order] for name, values in columns.items()}
    columns = {"id": columns.pop("row"), **columns}
    if parts is None:
        return columns, classes
    columns |= part_columns(parts[order], columns["id"], classes if several else None)
    columns["id"] = id_of_part(columns["id"], parts[order], len(classes) if several else int(parts.max()) + 1)
    return columns, BINARY if several else classes
