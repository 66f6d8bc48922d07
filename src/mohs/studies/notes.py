"""What a study notes of its runs: which folder each planned run went to, or what stopped it; one JSON file a study."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mohs._core.files import written_whole


@dataclass(frozen=True)
class Notes:
    """`runs/studies/<id>.json`: {key of the planned run: {"folder": ...} or {"error": ...}}."""

    runs: Path
    study: str

    @property
    def file(self) -> Path:
        return self.runs / "studies" / f"{self.study.replace('/', '-')}.json"

    def read(self) -> dict[str, dict[str, str]]:
        """All that was noted so far."""
        made: dict[str, dict[str, str]] = json.loads(self.file.read_text()) if self.file.exists() else {}
        return made

    def folders(self, keys: Iterable[str]) -> list[Path | None]:
        """Where these runs lie; None: a run that there is none of."""
        noted = self.read()
        return [self.runs / noted[key]["folder"] if "folder" in noted.get(key, {}) else None for key in keys]

    def add(self, key: str, *, folder: Path | None = None, error: str = "") -> None:
        """Note where the run lies, or why there is none."""
        entry = {"error": error} if folder is None else {"folder": folder.name}
        with written_whole(self.file) as part:
            part.write_text(json.dumps({**self.read(), key: entry}, indent=1) + "\n")
