"""The folder of a self-training says what was asked for, and is refused to another one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mohs._core.errors import RunError
from mohs._core.files import written_whole


def describe(folder: Path, about: Mapping[str, Any]) -> None:
    """Write adapt.json with its hash, or refuse the folder of another adaptation."""
    text = json.dumps(about, sort_keys=True, default=str)
    name, file = hashlib.sha256(text.encode()).hexdigest()[:8], folder / "adapt.json"
    if not file.exists():
        with written_whole(file) as part:
            part.write_text(json.dumps({"hash": name, **about}, indent=1, default=str) + "\n")
        return
    old = json.loads(file.read_text())["hash"]
    if old != name:
        raise RunError(f"{folder} holds another adaptation ({old}, this one is {name}): choose another folder")
