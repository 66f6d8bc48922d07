"""PACS: 9,991 images of seven classes in four domains, for training on some and testing on another.

    ROOT/{art_painting, cartoon, photo, sketch}/CLASS/NAME          or the same in a zip file

An example's key begins with its domain: "photo/dog/056_0001.webp". D. Li et al., "Deeper, broader and artier domain
generalization" (ICCV 2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mohs._core.errors import DataError
from mohs.data.decode import Size
from mohs.data.examples import Data
from mohs.data.image_stores import FolderFiles, ZipFiles
from mohs.data.images import MEMORY_LIMIT
from mohs.data.readers.image_set import Picture, Pictures, picture_data

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
CLASSES = ["dog", "elephant", "giraffe", "guitar", "horse", "house", "person"]
ZIP = "pacs64.zip"


def pacs(
    root: str | Path,
    *,
    domains: Sequence[str] = DOMAINS,
    image_size: int | Size | None = None,
    memory_limit: int = MEMORY_LIMIT,
) -> Data:
    """The images of these domains as one set, domain after domain."""
    store = _store(Path(root))
    for domain in domains:
        if domain not in DOMAINS:
            raise ValueError(f"domains: unknown {domain!r}; known: {', '.join(DOMAINS)}")
    listing = store.listing()
    prefix = _prefix(listing.folders, store)
    entries = []
    for domain in domains:
        for file in (one for one in listing.files if one.startswith(f"{prefix}{domain}/")):
            own = file[len(prefix) :].split("/")
            if len(own) != 3 or own[1] not in CLASSES:
                raise DataError(f"{store.path(file)}: expected DOMAIN/CLASS/NAME with one of the classes {', '.join(CLASSES)}")
            entries.append(Picture(file, CLASSES.index(own[1]), key="/".join(own)))
    if not entries:
        raise DataError(f"{root}: no images of {', '.join(domains)}")
    name = "pacs" if tuple(domains) == DOMAINS else f"pacs:{'+'.join(domains)}"
    return picture_data(Pictures(store, entries, CLASSES, name), image_size=image_size, memory_limit=memory_limit)


def _store(root: Path) -> FolderFiles | ZipFiles:
    if root.is_file():
        return ZipFiles(root)
    for folder in (root, root / "pacs64", root / "pacs", root / "PACS"):
        if any((folder / domain).is_dir() for domain in DOMAINS):
            return FolderFiles(folder)
    if (root / ZIP).is_file():
        return ZipFiles(root / ZIP)
    raise DataError(f"{root}: PACS not found: neither {ZIP} nor folders called {', '.join(DOMAINS)}")


def _prefix(folders: Sequence[str], store: FolderFiles | ZipFiles) -> str:
    """The path before the domains, in a zip that wraps them in a folder."""
    for one in folders:
        above, _, last = one.rpartition("/")
        if last in DOMAINS:
            return f"{above}/" if above else ""
    raise DataError(f"{store.path('')}: no folder called {', '.join(DOMAINS)}")
