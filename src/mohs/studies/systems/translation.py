"""Translation: small Transformers of several losses and seeds, trained side by side and compared by BLEU.

Every network has its own initial weights, dropout and batches. At each step the batches of all have the same number of
sentences of about the same length, so that they are one array. The learning rate rises linearly for `warmup` steps and then
falls with the inverse square root of the step. The weights are averaged over the ends of the last `average` epochs.
Translations are greedy. Zhao et al., "Well-classified examples are underestimated" (AAAI 2022), Table 1.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from mohs._core.device import choose_device
from mohs._core.validation import check_between
from mohs.studies.systems.system import Numbers, System
from mohs.studies.systems.translation_data import END, PAD, START, Corpus, Sentences, read_corpus
from mohs.studies.systems.translation_net import Transformers

JITTER = 3.0  # pieces: how far sentences of different lengths mix
TOGETHER = {"cpu": 4, "cuda": 30}  # networks side by side
EVALUATED = 250  # sentences translated at once by each network
LONGER = 20  # pieces by which a translation may exceed its source


@dataclass(frozen=True, kw_only=True)
class Translation(System):
    """Settings of one run.

    Attributes:
        data: Folder of the sentence pairs below MOHS_DATA, or "synthetic".
        pieces: Size of the vocabulary.
        width: Width of the embeddings.
        hidden: Width of the feed-forward layers.
        heads: Number of attention heads.
        layers: Number of layers of the encoder, and of the decoder.
        dropout: Probability of dropout.
        lr: Highest learning rate of Adam.
        warmup: Number of steps until then.
        tokens: Number of target pieces per step, padding included.
        epochs: Number of training epochs.
        average: Number of last epochs whose weights are averaged.
    """

    data: str = "multi30k-en-de"
    pieces: int = 6000
    width: int = 128
    hidden: int = 256
    heads: int = 4
    layers: int = 4
    dropout: float = 0.3
    lr: float = 5e-3
    warmup: int = 1000
    tokens: int = 4096
    epochs: int = 30
    average: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("pieces", "width", "hidden", "heads", "layers", "warmup", "tokens", "epochs", "average"):
            check_between(name, getattr(self, name), 1)
        check_between("dropout", self.dropout, 0, 1, ends="[)")
        check_between("lr", self.lr, 0, ends="(]")

    @property
    def kind(self) -> Hashable:
        return repr(dataclasses.replace(self, seed=0, loss="cross_entropy"))

    @classmethod
    def train(cls, runs: Sequence[Self], *, device: str) -> list[Numbers]:
        import sacrebleu  # noqa: F401  (before the training, not after it)

        place = choose_device(device)
        corpus, size = read_corpus(runs[0].data, pieces=runs[0].pieces), TOGETHER[place.type]
        return [numbers for at in range(0, len(runs), size) for numbers in train_networks(runs[at : at + size], corpus, place)]


def train_networks(runs: Sequence[Translation], corpus: Corpus, device: torch.device) -> list[Numbers]:
    """Train one network per run and translate the test sentences."""
    run = runs[0]
    shape = {name: getattr(run, name) for name in ("width", "hidden", "heads", "layers", "dropout")}
    net = Transformers(len(corpus.pieces), [one.seed for one in runs], **shape).to(device)
    losses = losses_of(runs)
    optimizer = torch.optim.Adam(net.parameters(), lr=run.lr, betas=(0.9, 0.98), fused=device.type == "cuda")
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step + 1, run.warmup))
    source, target = (padded(sentences).to(device) for sentences in corpus.pairs["train"])
    draws = [torch.Generator().manual_seed(one.seed) for one in runs]
    average: list[Tensor] = [torch.zeros_like(weight) for weight in net.parameters()]
    torch.manual_seed(run.seed)  # of dropout
    fit = torch.zeros(len(runs), device=device)
    for epoch in range(run.epochs):
        net.train()
        total, steps = torch.zeros(len(runs), device=device), 0
        for chosen in batches(corpus.pairs["train"], run.tokens, draws, epoch=epoch):
            rows = chosen.to(device)
            given, wanted = trimmed(source[rows]), trimmed(target[rows])
            with precision(device):
                logits = net(given, wanted[..., :-1])
            each = torch.cat([mean_losses(loss, logits[own].float(), wanted[own, :, 1:]) for own, loss in losses])
            optimizer.zero_grad()
            torch.autograd.backward(each.sum())
            optimizer.step()
            schedule.step()
            total[[place for own, _ in losses for place in own]] += each.detach()
            steps += 1
        fit = total / steps
        if epoch >= run.epochs - run.average:
            for mean, weight in zip(average, net.parameters(), strict=True):
                mean += weight.detach() / min(run.average, run.epochs)
    for mean, weight in zip(average, net.parameters(), strict=True):
        weight.data = mean
    scores = {part: bleu(net, corpus, part, device) for part in ("val", "test", "test_2017")}
    return [
        {"epochs": run.epochs, "bleu": scores["test"][r], "bleu_2017": scores["test_2017"][r], "val_bleu": scores["val"][r]}
        | {"loss": float(fit[r])}
        for r in range(len(runs))
    ]


def losses_of(runs: Sequence[Translation]) -> list[tuple[list[int], Any]]:
    """The losses, each with the places of its runs."""
    places: dict[str, list[int]] = {}
    for place, run in enumerate(runs):
        places.setdefault(repr(run.loss), []).append(place)
    made = [(own, runs[own[0]].create_loss()) for own in places.values()]
    for _, loss in made:
        loss.ignore_index, loss.reduction = PAD, "none"
    return made


def mean_losses(loss: Any, logits: Tensor, wanted: Tensor) -> Tensor:
    """The mean loss of each network; logits (networks, batch, length, pieces), wanted pieces (networks, batch, length)."""
    each: Tensor = loss(logits.flatten(0, 2), wanted.flatten()).view(len(wanted), -1)
    return each.sum(1) / (wanted != PAD).flatten(1).sum(1)


def rate(step: int, warmup: int) -> float:
    """The learning rate at a step, counted from 1, as a share of the highest."""
    return min(step / warmup, math.sqrt(warmup / step))


def batches(pairs: tuple[Sentences, Sentences], tokens: int, draws: Sequence[torch.Generator], *, epoch: int) -> Iterator[Tensor]:
    """The rows of sentences (networks, batch) of one epoch, each batch of about equal length; all networks have the same order of
    lengths, which the epoch sets."""
    lengths = torch.tensor([max(len(one), len(other)) + 2 for one, other in zip(*pairs, strict=True)])
    ordered, bounds = lengths.sort().values.tolist(), [0]
    for end in range(1, len(ordered) + 1):
        if end == len(ordered) or (end + 1 - bounds[-1]) * ordered[end] > tokens:
            bounds.append(end)
    order = torch.stack([lengths + JITTER * torch.rand(len(lengths), generator=draw) for draw in draws]).argsort(1)
    for at in torch.randperm(len(bounds) - 1, generator=torch.Generator().manual_seed(epoch)).tolist():
        yield order[:, bounds[at] : bounds[at + 1]]


def padded(sentences: Sentences) -> Tensor:
    """The sentences with START and END as rows (n, length), padded."""
    rows = [torch.tensor([START, *one, END]) for one in sentences]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


def trimmed(rows: Tensor) -> Tensor:
    """Without the last columns that are all padding."""
    return rows[..., : int((rows != PAD).sum(-1).max())]


def precision(device: torch.device) -> AbstractContextManager[Any]:
    """bfloat16 for products on a GPU."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


def bleu(net: Transformers, corpus: Corpus, part: str, device: torch.device) -> list[float]:
    """BLEU (sacrebleu, case kept) of each network's translations of a part of the corpus."""
    from sacrebleu import corpus_bleu

    net.eval()
    source = padded(corpus.pairs[part][0]).to(device)
    texts: list[list[str]] = [[] for _ in range(net.networks)]
    for at in range(0, len(source), EVALUATED):
        rows = trimmed(source[at : at + EVALUATED])
        with precision(device):
            made = net.translate(rows.expand(net.networks, -1, -1), longest=rows.shape[1] + LONGER)
        for own, sentences in zip(texts, made.tolist(), strict=True):
            own += [corpus.text(one) for one in sentences]
    return [corpus_bleu(own, [corpus.references[part]]).score for own in texts]
