"""Sentence pairs as pieces of words: Multi30k English-German, or a synthetic language that needs no files.

`multi30k-en-de/` in the folder that MOHS_DATA names holds `PART.en.gz` and `PART.de.gz`, one sentence per line. A byte-pair
encoding of both languages together (sentencepiece) is learned from the training sentences. On a machine without sentencepiece,
put a file that `Corpus.save` wrote elsewhere into the folder: `pieces-SIZE.npz`.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mohs._core.errors import DataError
from mohs.data.read_options import Reading

PAD, UNKNOWN, START, END = range(4)
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
WORD = "▁"  # begins a word, as sentencepiece writes it
LANGUAGES = ("en", "de")
PARTS = {"train": "train", "val": "val", "test": "test_2016_flickr", "test_2017": "test_2017_flickr"}
SYNTHETIC = "synthetic"
Sentences = list[list[int]]


@dataclass(frozen=True)
class Corpus:
    """The pieces, the sentence pairs of each part as their numbers (source, target), and the target sentences as text."""

    pieces: list[str]
    pairs: dict[str, tuple[Sentences, Sentences]]
    references: dict[str, list[str]]

    def text(self, numbers: Sequence[int]) -> str:
        """A sentence from its pieces, up to the end mark."""
        numbers = [*numbers, END]
        kept = (self.pieces[n] for n in numbers[: numbers.index(END)] if n >= len(SPECIAL))
        return "".join(kept).replace(WORD, " ").strip()

    def save(self, path: str | Path) -> None:
        """Write the pieces of all sentences, for `read_corpus` on a machine without sentencepiece."""
        arrays = {"pieces": np.array(self.pieces)}
        for part, pair in self.pairs.items():
            for language, sentences in zip(LANGUAGES, pair, strict=True):
                arrays[f"{part}.{language}"] = np.array([n for one in sentences for n in (*one, END)], dtype=np.uint16)
        np.savez_compressed(path, allow_pickle=False, **arrays)


def read_corpus(name: str, *, pieces: int) -> Corpus:
    """The corpus of this name, with a vocabulary of this many pieces."""
    if name == SYNTHETIC:
        return synthetic()
    home = Reading.of().home(name, name)
    texts = {part: [read_lines(home / f"{file}.{language}.gz") for language in LANGUAGES] for part, file in PARTS.items()}
    references = {part: target for part, (_, target) in texts.items()}
    stored = home / f"pieces-{pieces}.npz"
    if stored.is_file():
        with np.load(stored, allow_pickle=False) as held:
            pairs = {part: tuple(split_sentences(held[f"{part}.{language}"]) for language in LANGUAGES) for part in PARTS}
            return Corpus(held["pieces"].tolist(), pairs, references)  # type: ignore[arg-type]
    return encode(texts, references, pieces)


def read_lines(file: Path) -> list[str]:
    """The lines of a compressed text."""
    if not file.is_file():
        raise DataError(f"{file}: no such file; the folder holds one .gz per part and language")
    return gzip.decompress(file.read_bytes()).decode().splitlines()


def encode(texts: dict[str, list[list[str]]], references: dict[str, list[str]], size: int) -> Corpus:
    """The corpus of these texts, with pieces learned from the training part."""
    try:
        import sentencepiece
    except ModuleNotFoundError as error:
        hint = f"pip install 'mohs[translation]', or write pieces-{size}.npz on another machine (`Corpus.save`)"
        raise ModuleNotFoundError(f"sentencepiece is not installed: {hint}", name="sentencepiece") from error
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for side in texts["train"] for line in side]), model_writer=model, vocab_size=size,
        model_type="bpe", character_coverage=1.0, pad_id=PAD, unk_id=UNKNOWN, bos_id=START, eos_id=END, minloglevel=2,
    )  # fmt: skip
    encoder = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    pairs = {part: (encoder.encode(sides[0]), encoder.encode(sides[1])) for part, sides in texts.items()}
    return Corpus([encoder.id_to_piece(i) for i in range(size)], pairs, references)


def split_sentences(flat: np.ndarray) -> Sentences:
    """Sentences from their pieces one after another, each followed by END."""
    return [part[:-1].tolist() for part in np.split(flat, np.flatnonzero(flat == END) + 1)[:-1]]


def synthetic(count: int = 200) -> Corpus:
    """Sentences of 2 to 5 letters of 12, "translated" into the capital letters in reverse order."""
    draw = np.random.default_rng(0)
    letters = "abcdefghijkl"
    pieces = [*SPECIAL, *(WORD + letter for letter in letters + letters.upper())]
    pairs: dict[str, tuple[Sentences, Sentences]] = {}
    for part in PARTS:
        drawn = [draw.integers(len(letters), size=draw.integers(2, 6)) for _ in range(count if part == "train" else 20)]
        source = [(one + len(SPECIAL)).tolist() for one in drawn]
        target = [(one[::-1] + len(SPECIAL) + len(letters)).tolist() for one in drawn]
        pairs[part] = (source, target)
    made = Corpus(pieces, pairs, {})
    return Corpus(pieces, pairs, {part: [made.text(one) for one in target] for part, (_, target) in pairs.items()})
