"""Names under which labels, ids, paths and inputs are recognized: columns of a table, keys of a mapping, arrays of a file.

Every reader uses these lists, so that a name which works in one place works everywhere. Earlier names take precedence, and
case and surrounding blanks do not matter: `find_name(["Id", "Class"], LABELS)` is "Class".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

LABELS = ("label", "labels", "target", "targets", "class", "y")
IDS = ("id", "ids", "index", "idx", "sample_id", "key")
INDEX = "__index_level_0__"  # pandas' name in a Parquet file for an index without a name
PATHS = ("path", "paths", "file", "filename", "file_name", "filepath", "image_path")
IMAGES = ("image", "images", "img", "picture")
FEATURES = ("features", "feature", "embedding", "embeddings", "x")
INPUTS = ("input", "inputs", *IMAGES, *FEATURES, "data")
TEXTS = (
    "text",
    "texts",
    "sentence",
    "content",
    "review",
    "question",
    "title",
    "body",
    "message",
    "comment",
    "description",
    "document",
    "utterance",
    "headline",
    "tweet",
    "abstract",
)
CLASSES = ("classes", "class_names")
SPLIT = "split"


def find_name(names: Iterable[str], known: Sequence[str]) -> str | None:
    """The first known name that occurs among these names, in their spelling; None if there is none."""
    lower: dict[str, str] = {}
    for name in names:
        lower.setdefault(plain_name(str(name)), name)
    return next((lower[one] for one in map(plain_name, known) if one in lower), None)


def plain_name(name: str) -> str:
    """The name without what does not matter: case and surrounding blanks."""
    return name.strip().lower()
