"""The audited data, opened again for contents that the table lacks: pixels of arrays, whole texts, all fields of a row.

Opening may take a while (it imports torch), so it happens in a thread, and only on demand. Data that changed since
the audit, or that were passed as objects in Python, are not available; the app then shows what the table has.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from PIL import Image

from mohs.review.source import Source

PATIENCE = 60.0  # seconds that a request waits for the data to be opened
LONGEST = 20_000  # characters of a text


class Original:
    """The examples behind a source, opened on demand."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._examples: Any = None
        self._done, self._lock = threading.Event(), threading.Lock()
        self._begun = False

    def picture(self, row: int) -> Image.Image | None:
        """The image of a row."""
        examples = self._opened("images")
        if examples is None:
            return None
        from mohs.audit.thumbnails import thumbnails_of

        pictures = thumbnails_of(examples)
        return None if pictures is None else pictures([row])[0]

    def text(self, row: int) -> str | None:
        """The whole text of a row."""
        examples = self._opened("text")
        return None if examples is None else str(examples.inputs[[row]][0])[:LONGEST]

    def fields(self, row: int) -> dict[str, Any] | None:
        """All fields of a row."""
        examples = self._opened("table")
        if examples is None:
            return None
        import torch

        return dict(examples.inputs[torch.tensor([row])].to_pylist()[0])

    def _opened(self, kind: str) -> Any:
        """The examples, if they are of this kind; the first to ask waits while they are opened."""
        if self.source.call is None or self.source.kind != kind:
            return None
        with self._lock:
            if not self._begun:
                self._begun = True
                threading.Thread(target=self._open, daemon=True).start()
        self._done.wait(PATIENCE)
        examples = self._examples
        return examples if examples is not None and examples.kind == kind else None

    def _open(self) -> None:
        try:
            from mohs.audit.pipeline import audited_data

            examples = audited_data(self.source.call or {}).train
            if examples.fingerprint() == self.source.data_hash:
                self._examples = examples
        except Exception as error:  # whatever is wrong with the data, the review continues without them
            logging.getLogger(__name__).warning("the audited data cannot be opened: %s", error)
        finally:
            self._done.set()
