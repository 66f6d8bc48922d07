"""One source of data (a name, a path, arrays, a data set) as training examples, with its own splits.

`open_data` is the public function; it also takes pairs of domains. A known name takes precedence over a file of that name:
write "./digits" for the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mohs._core.errors import DataError
from mohs._core.folders import refuse_output
from mohs._core.remote import is_remote
from mohs._core.vocabulary import INDEX
from mohs.data.decode import Size
from mohs.data.empty_classes import without_empty_classes
from mohs.data.examples import Data, Examples
from mohs.data.image_stores import printable
from mohs.data.read_options import Reading
from mohs.data.resize import resized_data
from mohs.data.split import only
from mohs.data.validate import check_examples, check_labels, warn_of_labels

if TYPE_CHECKING:
    import pyarrow as pa

NAMED = 8  # maximum number of files and folders that an error lists
KINDS = (
    "a folder or .zip of class folders, a .csv, .tsv, .jsonl, .parquet or .npz file, "
    "a folder of Parquet shards, idx files or CIFAR batches, hf:NAME"
)


def open_single(data: Any = None, *, split: str | None = None, **options: Any) -> Data:
    """The data of one source, validated; the options are those of `open_data`, except `without`."""
    reading = Reading.of(**options)
    return prepared(_open(data, reading), split=split, image_size=reading.image_size, is_new=not isinstance(data, Data))


def prepared(data: Data, *, split: str | None = None, image_size: Size | None = None, is_new: bool = True) -> Data:
    """The data, or one of their splits, with images of this size; at least two classes, each with an example.

    Classes without examples in a subset of a data set are removed, with a note.
    is_new: Warn of doubtful labels. Data that were opened before have been warned of.
    """
    data = only(data, split)
    data = data if image_size is None else resized_data(data, image_size)
    check_labels(data.train)
    if data.train.kind != "predictions" and data.train.votes is None:  # which have a column per class
        data = without_empty_classes(data, lacks="an example")
    check_examples(data.train)
    if is_new:
        warn_of_labels(data.train)
    return data


def _open(data: Any, reading: Reading) -> Data:
    if data is None:
        return _digits(reading, "")
    if isinstance(data, Data):
        return data
    if isinstance(data, Examples):
        return Data(data)
    if isinstance(data, str) and not data.strip():
        raise ValueError(f"data is empty; give {KINDS}, or one of {', '.join(DATA)}")
    if isinstance(data, str) and data.startswith("hf:"):
        return _hub(data.removeprefix("hf:"), reading)
    if isinstance(data, str) and is_remote(data):
        raise DataError(
            f"{data} is an address: download it and give the file or folder; only --stream reads s3://, gs:// and hf://"
        )
    if isinstance(data, str):
        name, _, rest = data.partition(":")
        if name in DATA:
            return DATA[name].open(reading, rest)
    if isinstance(data, str | os.PathLike):
        return open_path(Path(data), reading)
    return _in_memory(data, reading)


def open_path(path: Path, reading: Reading) -> Data:
    """The data at a path: the reader is chosen by the file's ending or by what the folder holds."""
    from mohs.data.readers.arrays import npz
    from mohs.data.readers.tabular import table
    from mohs.data.readers.tabular_file import FILES, SAVE_AS

    shown = printable(str(path))
    if path.is_dir():
        return _open_folder(path, reading)
    if not path.is_file():
        near = _nearby(path)
        known = f"give {KINDS}, or one of {', '.join(DATA)}"
        raise DataError(f"{shown}: no such file or folder, and not a known name; {near or known}")
    kind = path.suffix.lower()
    if kind in (".npz", ".npy"):
        return npz(path, label=reading.label, group=reading.group)
    if kind in FILES:
        return table(path, **reading.rows, **reading.images)
    if kind == ".zip":
        from mohs.data.readers.cifar import is_strips, strip_part

        return strip_part(path) if is_strips(path) else _class_folders(path, reading)
    if kind in SAVE_AS:
        raise DataError(f"{shown}: files ending in {kind!r} are not supported: {SAVE_AS[kind]}")
    raise DataError(f"{shown}: files ending in {kind!r} are not supported; give {KINDS}")


def _nearby(path: Path) -> str:
    """A hint for a path that does not exist: the existing path before a colon, or other names in its folder; "" if there is
    none.
    """
    before = Path(str(path).rpartition(":")[0])
    if str(before) != "." and before.exists():
        return f"{printable(str(before))} exists: give it alone, without the part after the colon"
    folder = path.parent
    names = sorted(one.name for one in folder.iterdir() if not one.name.startswith(".")) if os.access(folder, os.R_OK) else []
    if str(folder) == "." or not names:
        return ""
    shown = ", ".join(printable(name) for name in names[:NAMED])
    return f"{printable(str(folder))} has {shown}{', ...' if len(names) > NAMED else ''}"


def _open_folder(path: Path, reading: Reading) -> Data:
    from mohs.data.readers.cifar import cifar10, cifar100
    from mohs.data.readers.hub import SAVED
    from mohs.data.readers.idx import find_file, mnist

    refuse_output(path)
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

        return table(path, **reading.rows, **reading.images)
    return _class_folders(path, reading)


def _class_folders(path: Path, reading: Reading) -> Data:
    """Images in class folders, with a note if columns of a table were named."""
    from mohs.data.readers.folder import folder

    data = folder(path, **reading.images)
    columns = [name for name, value in reading.rows.items() if value is not None and name != "group"]
    if not columns:
        return data
    shown = " and ".join(f"{name} (--{name})" for name in columns)
    note = f"{shown} {'is' if len(columns) == 1 else 'are'} for tables, and not used: the names of the folders are the classes"
    return replace(data, train=replace(data.train, notes=[*data.train.notes, note]))


def _in_memory(data: Any, reading: Reading) -> Data:
    from mohs.data.readers.arrays import from_arrays, from_mapping
    from mohs.data.readers.tabular import in_memory_table
    from mohs.data.readers.torch_dataset import from_dataset

    if _is_of_datasets(data):
        from mohs.data.readers.hub import hub_splits

        return hub_splits(
            data if isinstance(data, Mapping) else {"train": data}, "data", "data", **reading.columns, **reading.images
        )
    columns = as_arrow(data)
    if columns is not None:
        return in_memory_table(columns, **reading.rows)
    if isinstance(data, Mapping):
        return from_mapping(data, **reading.columns)
    if isinstance(data, tuple) and len(data) == 2 and data[1] is None:
        raise ValueError("data: (inputs, None) has no labels: give one label per example")
    if isinstance(data, tuple | list) and len(data) == 2 and all(hasattr(one, "__len__") for one in data):
        columns = as_arrow(data[0])
        if columns is not None:
            columns, label = _labeled(columns, data[1])
            made = in_memory_table(columns, label=label, group=reading.group)
            return Data(**{split: replace(part, label_column="") for split, part in made.splits.items()})
        return Data(from_arrays(data[0], data[1]))
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not hasattr(data, "dtype"):
        return Data(from_dataset(data, **reading.images))
    alone = " without labels: pass (inputs, labels)" if hasattr(data, "dtype") else ""
    raise ValueError(f"data: cannot read a {type(data).__name__}{alone}; give {KINDS}, (inputs, labels), a mapping or a Dataset")


def _labeled(columns: pa.Table, labels: Any) -> tuple[pa.Table, str]:
    """A table of inputs with a column of labels, and the name of that column."""
    import pyarrow as pa

    name = "label"
    while name in columns.column_names:
        name += "_"
    if len(labels) != columns.num_rows:
        raise DataError(f"data: {columns.num_rows} rows but {len(labels)} labels")
    values = labels.tolist() if hasattr(labels, "tolist") else labels.to_list() if hasattr(labels, "to_list") else list(labels)
    try:
        given = pa.array(values, from_pandas=True)  # NaN is missing
    except pa.ArrowException as error:
        raise DataError(f"data: labels must be strings or integers, all of one type ({error})") from error
    return columns.append_column(name, given), name


def _is_of_datasets(data: Any) -> bool:
    """Whether this is a Dataset or a DatasetDict of the datasets package."""
    return type(data).__module__.partition(".")[0] == "datasets" and type(data).__name__ in ("Dataset", "DatasetDict")


def as_arrow(data: Any) -> pa.Table | None:
    """An Arrow table, or a pandas or Polars frame or a Dataset of the datasets package as one; None for anything else."""
    import pyarrow as pa

    if isinstance(data, pa.Table):
        return data
    if _is_of_datasets(data) and not isinstance(data, Mapping):
        table: pa.Table = data.with_format("arrow")[:]
        return table
    package = type(data).__module__.partition(".")[0]
    if type(data).__name__ != "DataFrame" or package not in ("pandas", "polars"):
        return None
    return _from_pandas(data) if package == "pandas" else data.to_arrow()


def _from_pandas(frame: Any) -> pa.Table:
    """A pandas frame as an Arrow table; a column of values of several types becomes one of strings, as in a CSV file.

    An index of distinct strings or integers becomes the column INDEX, which holds the ids, unless it only numbers the rows.
    """
    import pyarrow as pa

    names = [str(name) for name in frame.columns]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"data: two columns are called {twice!r}: rename one")
    columns = {}
    for place, name in enumerate(names):
        values = frame.iloc[:, place]
        try:
            columns[name] = pa.Array.from_pandas(values)
            if _is_extension(columns[name].type):  # intervals and periods
                raise pa.ArrowTypeError
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            missing = values.isna().tolist()
            columns[name] = pa.array([None if lost else str(one) for one, lost in zip(values, missing, strict=True)], pa.string())
    index = frame.index
    counts = index.nlevels > 1 or (index.inferred_type == "integer" and index.equals(index.__class__(range(len(index)))))
    if not counts and index.is_unique and index.inferred_type in ("integer", "string") and INDEX not in columns:
        columns[INDEX] = pa.array(index.tolist())
    return pa.table(columns)


def _is_extension(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return isinstance(kind.value_type if pa.types.is_dictionary(kind) else kind, pa.BaseExtensionType)


def _hub(name: str, reading: Reading) -> Data:
    from mohs.data.readers.hub import hub

    whole = Path(name).exists() or ":" not in name
    name, config = (name, None) if whole else (name.rpartition(":")[0], name.rpartition(":")[2])
    return hub(name, config=config, **reading.columns, **reading.images)


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


def _olivetti(reading: Reading, rest: str) -> Data:
    from mohs.data.readers.olivetti import olivetti

    return _plain(olivetti(reading.home("olivetti", "olivetti.npz", "olivetti")), "olivetti", rest)


def _sphere(reading: Reading, rest: str) -> Data:
    from mohs.data.readers.toy import sphere

    return _plain(sphere(), "sphere", rest)


def _pacs(reading: Reading, rest: str) -> Data:
    from mohs.data.readers.pacs import DOMAINS, pacs

    return pacs(reading.home("pacs"), domains=rest.split("+") if rest else DOMAINS, **reading.images)


def _plain(data: Data, name: str, rest: str) -> Data:
    if rest:
        raise ValueError(f"{name}:{rest}: {name} has no parts; its splits are {', '.join(data.splits)}: write {name} alone")
    return data


@dataclass(frozen=True)
class Known:
    """A data set by name: how to open it (the string is what follows a colon), and a description."""

    open: Callable[[Reading, str], Data]
    about: str


DATA: dict[str, Known] = {
    "digits": Known(_digits, "1,797 digits of 8 × 8, 10 classes; built in"),
    "mnist": Known(_mnist, "60,000 + 10,000 digits of 28 × 28, 10 classes"),
    "fashion-mnist": Known(_fashion, "60,000 + 10,000 images of clothing of 28 × 28, 10 classes"),
    "cifar10": Known(_cifar10, "50,000 + 10,000 photographs of 32 × 32, 10 classes"),
    "cifar100": Known(_cifar100, "50,000 + 10,000 photographs of 32 × 32, 100 classes (cifar100:coarse: 20)"),
    "usps": Known(_usps, "7,291 + 2,007 digits of 16 × 16, 10 classes"),
    "olivetti": Known(_olivetti, "400 faces of 64 × 64, 40 classes (people)"),
    "sphere": Known(_sphere, "2,000 + 2,000 points on a sphere, 2 classes that overlap; built in"),
    "pacs": Known(_pacs, "9,991 images of 7 classes in 4 domains (pacs:photo, pacs:cartoon+sketch)"),
}
