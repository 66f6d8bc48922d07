"""`open_data`: whatever a person has (a name, a path, arrays, a data set) as training examples, with the splits it came with.

    open_data()                                    scikit-learn's digits
    open_data("cifar10", root=FOLDER)              a known name (DATA), in `root` or the folder that MOHS_DATA names
    open_data("photos/"), open_data("rows.csv")    a path: class folders, zip, CSV, TSV, Parquet, npz, idx, CIFAR batches
    open_data("hf:NAME:CONFIG")                    the Hugging Face hub
    open_data("mnist->usps")                       a pair of domains: trained on the first, tested on the second
    open_data("pacs", without="photo")             several domains: trained on the others, tested on this one
    open_data((x, y)), open_data(dataset)          arrays, tensors, a mapping of them, a torch Dataset, Examples, Data

A known name goes before a file of that name: write "./digits" for the file. No split is invented: see `split.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mohs._core.errors import DataError
from mohs.data.decode import Size, as_size
from mohs.data.examples import Data, Examples
from mohs.data.image_stores import printable
from mohs.data.images import MEMORY_LIMIT
from mohs.data.read_options import ARROW, FOLDER, Reading
from mohs.data.resize import resized_data
from mohs.data.split import only
from mohs.data.validate import check_examples

TABLES = (".csv", ".tsv", ".parquet")
KINDS = (
    "a folder or .zip of class folders, a .csv, .tsv, .parquet or .npz file, "
    "a folder of Parquet shards, idx files or CIFAR batches, hf:NAME"
)


def open_data(
    data: Any = None,
    *,
    label: str | None = None,
    image_size: int | Size | None = None,
    split: str | None = None,
    root: str | Path | None = None,
    without: str | None = None,
    memory_limit: int = MEMORY_LIMIT,
) -> Data:
    """The data, checked: at least two classes, an example of each. `split`: only this one, as the training examples.

    image_size: pixels a side, or (height, width), of all images; label: the column or array of labels; without: of several
    domains the one that is left out of training, and tested on.
    """
    size = None if image_size is None else as_size(image_size)
    home = os.environ.get(FOLDER) if root is None else root
    reading = Reading(Path(home) if home else None, label, size, memory_limit)
    found = only(_open(data, reading) if without is None else _without(data, without, reading), split)
    found = found if size is None else resized_data(found, size)
    check_examples(found.train)
    return found


def _open(data: Any, reading: Reading) -> Data:
    if data is None:
        return _digits(reading, "")
    if isinstance(data, Data):
        return data
    if isinstance(data, Examples):
        return Data(data)
    if isinstance(data, str) and not data.strip():
        raise ValueError(f"data is empty; give {KINDS}, or one of {', '.join(DATA)}")
    if isinstance(data, str) and ARROW in data and not Path(data).exists():
        return _pair(data, reading)
    if isinstance(data, str) and data.startswith("hf:"):
        return _hub(data.removeprefix("hf:"), reading)
    if isinstance(data, str):
        name, _, rest = data.partition(":")
        if name in DATA:
            return DATA[name].open(reading, rest)
    if isinstance(data, str | os.PathLike):
        return open_path(Path(data), reading)
    return _in_memory(data, reading)


def _pair(data: str, reading: Reading) -> Data:
    from mohs.data.domains import open_pair

    source, target = open_pair(data, **reading.given)
    return Data(source.train, source.val, target.test or target.train)


def _without(data: Any, held: str, reading: Reading) -> Data:
    from mohs.data.domains import leave_one_out, open_domains

    if not isinstance(data, str | os.PathLike):
        raise ValueError(f'without={held!r} needs several domains: "pacs", a folder of them, or names as "mnist+usps"')
    others, test = leave_one_out(open_domains(data if isinstance(data, str) else Path(data), **reading.given), held)
    return Data(others, None, test)


def open_path(path: Path, reading: Reading) -> Data:
    """The data at a path, by what it is."""
    from mohs.data.readers.arrays import npz
    from mohs.data.readers.folder import folder

    shown = printable(str(path))
    if path.is_dir():
        return _open_folder(path, reading)
    if not path.is_file():
        raise DataError(f"{shown}: no such file or folder, and no known name; give {KINDS}, or one of {', '.join(DATA)}")
    kind = path.suffix.lower()
    if kind in (".npz", ".npy"):
        return npz(path, label=reading.label)
    if kind in TABLES:
        from mohs.data.readers.tabular import table

        return table(path, label=reading.label, **reading.images)
    if kind == ".zip":
        from mohs.data.readers.cifar import is_strips, strip_part

        return strip_part(path) if is_strips(path) else folder(path, **reading.images)
    raise DataError(f"{shown}: files that end in {kind!r} are not read; give {KINDS}")


def _open_folder(path: Path, reading: Reading) -> Data:
    from mohs.data.readers.cifar import cifar10, cifar100
    from mohs.data.readers.folder import folder
    from mohs.data.readers.hub import SAVED
    from mohs.data.readers.idx import find_file, mnist

    if any((path / file).is_file() for file in SAVED):
        return _hub(str(path), reading)
    if find_file(path, "train-images") is not None:
        return mnist(path, name=printable(path.name))
    if (path / "data_batch_1").is_file() or (path / "cifar-10-batches-py").is_dir():
        return cifar10(path)
    if (path / "cifar-100-python").is_dir() or ((path / "train").is_file() and (path / "meta").is_file()):
        return cifar100(path)
    if any(path.glob("*.parquet")):
        from mohs.data.readers.tabular import table

        return table(path, label=reading.label, **reading.images)
    return folder(path, **reading.images)


def _in_memory(data: Any, reading: Reading) -> Data:
    from mohs.data.readers.arrays import from_arrays, from_mapping
    from mohs.data.readers.torch_dataset import from_dataset

    if isinstance(data, Mapping):
        return from_mapping(data, label=reading.label)
    if isinstance(data, tuple) and len(data) == 2 and data[1] is None:
        raise ValueError("data: (inputs, None) has no labels: give one an example")
    if isinstance(data, tuple | list) and len(data) == 2 and all(hasattr(one, "__len__") for one in data):
        return Data(from_arrays(data[0], data[1]))
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not hasattr(data, "dtype"):
        return Data(from_dataset(data, **reading.images))
    told = " alone: labels are wanted too, pass (inputs, labels)" if hasattr(data, "dtype") else ""
    raise ValueError(f"data: cannot read a {type(data).__name__}{told}; give {KINDS}, (inputs, labels), a mapping or a Dataset")


def _hub(name: str, reading: Reading) -> Data:
    from mohs.data.readers.hub import hub

    whole = Path(name).exists() or ":" not in name
    name, config = (name, None) if whole else (name.rpartition(":")[0], name.rpartition(":")[2])
    return hub(name, config=config, label=reading.label, **reading.images)


def _digits(reading: Reading, rest: str) -> Data:
    from mohs.data.readers.digits import digits

    return _plain(digits(), "digits", rest)


def _mnist(reading: Reading, rest: str) -> Data:
    from mohs.data.readers.idx import DIGITS, mnist

    return _plain(mnist(reading.home("mnist", "mnist", "MNIST"), classes=DIGITS), "mnist", rest)


def _fashion(reading: Reading, rest: str) -> Data:
    from mohs.data.readers.idx import fashion_mnist

    return _plain(fashion_mnist(reading.home("fashion-mnist", "fashion-mnist", "FashionMNIST")), "fashion-mnist", rest)


def _cifar10(reading: Reading, rest: str) -> Data:
    from mohs.data.readers.cifar import cifar10

    return _plain(cifar10(reading.home("cifar10")), "cifar10", rest)


def _cifar100(reading: Reading, rest: str) -> Data:
    from mohs.data.readers.cifar import cifar100

    return cifar100(reading.home("cifar100"), labels=rest or "fine")


def _usps(reading: Reading, rest: str) -> Data:
    from mohs.data.readers.usps import usps

    return _plain(usps(reading.home("usps", "usps.npz", "usps")), "usps", rest)


def _sphere(reading: Reading, rest: str) -> Data:
    from mohs.data.readers.toy import sphere

    return _plain(sphere(), "sphere", rest)


def _pacs(reading: Reading, rest: str) -> Data:
    from mohs.data.readers.pacs import DOMAINS, pacs

    return pacs(reading.home("pacs"), domains=rest.split("+") if rest else DOMAINS, **reading.images)


def _plain(data: Data, name: str, rest: str) -> Data:
    if rest:
        raise ValueError(f"{name} has no parts to choose from, got {name}:{rest}")
    return data


@dataclass(frozen=True)
class Known:
    """A data set by name: how to open it (with what follows a colon), and what it is."""

    open: Callable[[Reading, str], Data]
    about: str


DATA: dict[str, Known] = {
    "digits": Known(_digits, "1,797 digits of 8 × 8, 10 classes; needs no file"),
    "mnist": Known(_mnist, "60,000 + 10,000 digits of 28 × 28, 10 classes"),
    "fashion-mnist": Known(_fashion, "60,000 + 10,000 pieces of clothing of 28 × 28, 10 classes"),
    "cifar10": Known(_cifar10, "50,000 + 10,000 photographs of 32 × 32, 10 classes"),
    "cifar100": Known(_cifar100, "50,000 + 10,000 photographs of 32 × 32, 100 classes (cifar100:coarse: 20)"),
    "usps": Known(_usps, "7,291 + 2,007 digits of 16 × 16, 10 classes"),
    "sphere": Known(_sphere, "2,000 + 2,000 points on a sphere, 2 classes that overlap; needs no file"),
    "pacs": Known(_pacs, "9,991 images of 7 classes in 4 domains (pacs:photo, pacs:cartoon+sketch)"),
}
