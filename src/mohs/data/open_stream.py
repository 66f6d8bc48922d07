"""`open_stream`: any number of labeled images or texts, read a block at a time.

    photos/                 class folders of images                         a block: up to BLOCK_ROWS files
    shards/, data.tar       WebDataset: .tar files of images with labels    a block: a .tar file
    shards/, data.parquet   encoded images, paths of images, or text        a block: row groups of up to BLOCK_ROWS rows in all

Files are read in the order of their names. Addresses (s3://, gs://, hf://) work for .tar and .parquet files.
"""

from __future__ import annotations

from pathlib import Path

from mohs._core.errors import DataError
from mohs._core.folders import refuse_output
from mohs._core.remote import is_remote, list_files
from mohs.data.readers.folder_stream import folder_stream
from mohs.data.readers.parquet_stream import parquet_stream
from mohs.data.readers.tar_stream import tar_stream
from mohs.data.stream import Stream

TARS, PARQUET = (".tar", ".tar.gz", ".tgz"), (".parquet",)


def open_stream(data: str | Path, *, label: str | None = None, text: str | None = None) -> Stream:
    """Open data that need not fit in memory; only names of files are read, and the headers of Parquet files.

    Args:
        data: Folder of class folders, .tar file or folder of them, .parquet file or folder of them; or the address of such files.
        label: Column of the labels, in .tar files the ending of the label's file or its key in the .json file.
        text: Column with the text.

    Returns:
        The data in blocks.
    """
    name = str(data)
    if not is_remote(name) and Path(name).is_dir():
        refuse_output(Path(name))
    tars = _files(name, TARS)
    if tars:
        return tar_stream(tars, name, label=label)
    shards = _files(name, PARQUET)
    if shards:
        return parquet_stream(shards, name, label=label, text=text)
    if is_remote(name):
        raise DataError(f"{name}: holds no .parquet or .tar files; images at an address must be in such files")
    path = Path(name)
    if not path.is_dir():
        what = "is neither .tar nor .parquet" if path.exists() else "no such file or folder"
        raise DataError(f"{name}: {what}; give class folders of images, or .tar or .parquet files")
    return folder_stream(path)


def _files(name: str, endings: tuple[str, ...]) -> list[str]:
    """The files with one of these endings that a path or address names, by name."""
    if is_remote(name) and name.endswith((*TARS, *PARQUET)):
        return [name] if name.endswith(endings) else []
    if is_remote(name):
        return sorted(file for ending in endings for file in list_files(name, ending))
    path = Path(name)
    if path.is_dir():
        return sorted(str(file) for file in path.iterdir() if file.name.endswith(endings) and not file.name.startswith("."))
    return [name] if path.is_file() and name.endswith(endings) else []
