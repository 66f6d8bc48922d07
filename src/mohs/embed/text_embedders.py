"""Text as features without a network: static word embeddings, TF-IDF with a truncated SVD, or both side by side.

    wordllama   mean of the 256-dimensional embeddings of the tokens (Llama 2's vocabulary), of length 1
    tfidf       sublinear TF-IDF of words (1-2) and of characters within words (3-5), reduced to 256 dimensions
    text        wordllama, and TF-IDF of the same tokens and their pairs, reduced to 256 dimensions

`tfidf` and `text` are fitted to the texts themselves; labels are not used. Their blocks are centered and have the same total
variance; empty texts lie at the mean. The files in the wheel of `wordllama` are read directly: its own `load` looks for the
tokenizer in another folder than the wheel's, and then downloads one.
Miller, "WordLlama: recycled token embeddings from large language models" (2024). Deerwester et al., "Indexing by latent
semantic analysis" (JASIS 1990).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mohs._core.errors import DataError, RunError
from mohs.embed.embedder import Embedder, Run, Spec, hash_file, spread_places, unit_rows

WEIGHTS, TOKENIZER = "weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json"
FITTED = 20_000  # maximum number of texts that TF-IDF and its SVD are fitted to
WIDTH = 256  # dimensions of the reduced TF-IDF
VOCABULARY = 2**15  # maximum number of terms of each kind
LONGEST = 4000  # characters of a text that are read: about 600 words
BATCH = 2048
FEW = 20  # with at least this many texts, a term must occur in two of them
FITTED_VERSION = f"{FITTED}-{WIDTH}-{VOCABULARY}-{LONGEST}-sklearn{version('scikit-learn')}"
Array = np.ndarray[Any, Any]
Encode = Callable[[Sequence[str]], Array]


def has_wordllama() -> bool:
    """Whether wordllama's wheel is installed."""
    return importlib.util.find_spec("wordllama") is not None and importlib.util.find_spec("tokenizers") is not None


def wordllama(spec: Spec, device: torch.device, kind: str = "text") -> Embedder:
    """Mean token embeddings."""
    folder, version = _wordllama_folder(), _wordllama_version()
    about = "wordllama (static embeddings)"
    return Embedder("wordllama", about, version, lambda texts: _function([WordLlama(folder).means]), batch=BATCH)


def tfidf(spec: Spec, device: torch.device, kind: str = "text") -> Embedder:
    """TF-IDF of words and characters, reduced by SVD."""

    def load(texts: Any) -> Run:
        sample = fit_sample(texts)
        terms = ({"ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"}, {"analyzer": "char_wb", "ngram_range": (3, 5)})
        found = _fit_axes(sample, list, terms)
        if found is None:
            raise DataError("the texts share no words and no characters: TF-IDF cannot be fitted; name another embedder")
        return _function([found], fitted_to=sample)

    return Embedder("tfidf", "TF-IDF of words and characters", FITTED_VERSION, load, batch=BATCH, fitted=True)


def text(spec: Spec, device: torch.device, kind: str = "text") -> Embedder:
    """Mean token embeddings, and TF-IDF of tokens and their pairs."""
    folder, version = _wordllama_folder(), f"{_wordllama_version()}-{FITTED_VERSION}"

    def load(texts: Any) -> Run:
        sample, model = fit_sample(texts), WordLlama(folder)
        axes = _fit_axes(sample, model.tokens, ({"analyzer": list}, {"analyzer": _pairs}))
        return _function([one for one in (model.means, axes) if one is not None], fitted_to=sample)

    return Embedder("text", "wordllama (static embeddings) and TF-IDF", version, load, batch=BATCH, fitted=True)


def _wordllama_folder() -> Path:
    found = importlib.util.find_spec("wordllama")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("wordllama is not installed: pip install 'mohs[text]'", name="wordllama")
    folder = Path(found.submodule_search_locations[0])
    missing = next((folder / name for name in (WEIGHTS, TOKENIZER) if not (folder / name).is_file()), None)
    if missing is not None:
        raise RunError(f"{missing}: missing in the installed wordllama; pip install 'mohs[text]' again, or use tfidf")
    return folder


def _wordllama_version() -> str:
    folder = _wordllama_folder()
    return f"{hash_file(folder / WEIGHTS)}-{hash_file(folder / TOKENIZER)}"


class WordLlama:
    """Tokens of texts and the means of their embeddings."""

    def __init__(self, folder: Path) -> None:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        self.table = load_file(folder / WEIGHTS)["embedding.weight"].astype(np.float32)
        self.tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Token numbers of each text."""
        last = len(self.table) - 1
        return [[min(i, last) for i in one.ids] for one in self.tokenizer.encode_batch(list(texts), add_special_tokens=False)]

    def means(self, texts: Sequence[str]) -> Array:
        """Mean embeddings of length 1; zeros for an empty text."""
        from scipy.sparse import csr_matrix

        tokens = self.tokens(texts)
        ends = np.cumsum([0, *map(len, tokens)])
        ids = np.fromiter((i for one in tokens for i in one), np.int64, int(ends[-1]))
        bags = csr_matrix((np.ones(len(ids), np.float32), ids, ends), shape=(len(texts), len(self.table)))
        means: Array = unit_rows(bags @ self.table)
        return means


def _fit_axes(sample: Sequence[str], documents: Callable[[Sequence[str]], Any], terms: Sequence[dict[str, Any]]) -> Encode | None:
    """TF-IDF of several kinds of terms, reduced by SVD to at most WIDTH dimensions; None if texts share no term.

    Args:
        sample: texts to fit to.
        documents: function from texts to the documents of the vectorizers.
        terms: options of a TfidfVectorizer for each kind of terms.
    """
    from scipy.sparse import hstack
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    read, fitted = documents(sample), []
    common = {"sublinear_tf": True, "dtype": np.float32, "max_features": VOCABULARY, "min_df": 2 if len(sample) >= FEW else 1}
    for options in terms:
        with suppress(ValueError):  # no term occurs often enough
            fitted.append(TfidfVectorizer(**{**common, **options}).fit(read))
    if not fitted:
        return None

    def weights(texts: Sequence[str]) -> Any:
        return hstack([one.transform(documents(texts)) for one in fitted], format="csr")

    whole = weights(sample)
    width = min(WIDTH, whole.shape[0] - 1, whole.shape[1] - 1)
    if width < 1:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):  # the share of no variance, of texts with the same terms, is not used
        svd = TruncatedSVD(width, n_iter=2, random_state=0).fit(whole)
    return lambda texts: svd.transform(weights(texts))


def _function(encoders: Sequence[Encode], *, fitted_to: Sequence[str] | None = None) -> Run:
    """Concatenate blocks; centered and scaled to the same total variance if they are fitted to texts."""
    scales: list[tuple[Any, Any]] = [(0.0, 1.0)] * len(encoders)
    if fitted_to is not None:
        scales = [_scale(encode([one for one in fitted_to if one] or list(fitted_to))) for encode in encoders]

    def run(batch: list[str]) -> Tensor:
        texts = clean(batch)
        blocks = [(encode(texts) - mean) / size for encode, (mean, size) in zip(encoders, scales, strict=True)]
        features = np.hstack(blocks).astype(np.float32)
        features[[not one for one in texts]] = 0
        return torch.from_numpy(features)

    return run


def _scale(block: Array) -> tuple[Array, float]:
    """The mean of a block, and the square root of its total variance."""
    mean = block.mean(0)
    return mean, float(np.sqrt(((block - mean) ** 2).sum(1).mean())) or 1.0


def fit_sample(texts: Any) -> list[str]:
    """Texts to fit to: all, or FITTED of them evenly spaced."""
    places = spread_places(len(texts), FITTED)
    return clean([texts[i] for i in places] if isinstance(texts, list) else texts[torch.tensor(places)])


def clean(texts: Sequence[str]) -> list[str]:
    """White space collapsed, lone surrogates (which tokenizers refuse) replaced, at most LONGEST characters."""
    return [" ".join(one[: 2 * LONGEST].encode("utf-8", "replace").decode().split())[:LONGEST] for one in texts]


def _pairs(tokens: Sequence[int]) -> list[tuple[int, int]]:
    return list(pairwise(tokens))
