"""The Recorder: training dynamics of every example, from one line in any training loop.

    recorder = mohs.Recorder(len(dataset))
    ... recorder.update(ids, logits, labels) ...          once per step; then recorder.end_epoch() and recorder.table()

The state is O(N) and lives on the logits' device; an update never synchronizes with the host. Every row of an update counts; with
`epoch=` an id counts only once per epoch (padded batches, resumed epochs). A bad row (an id or label out of range, logits that
are NaN or infinite; −∞ may mask a class that is not the label) raises at once on the CPU, and none of its batch is recorded; on
other devices it is skipped, counted, and reported by `end_epoch()` or `table()`. Where an example has several labels (logits (B,
K, d1, ...), or labels (B, K) of 0 and 1), every part whose label is not −100 is a row: part j of example i is number i·P + j of a
`Recorder(N, positions=P)` (`parts`). Under torch.distributed call `end_epoch()` on every rank: each then holds the whole record,
as a single process would.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import torch
from torch import Tensor
from torch import distributed as dist

from mohs._core.validation import check_type, check_whole
from mohs.hardness.angular import avh
from mohs.hardness.classes import decode
from mohs.hardness.dynamics import DYNAMICS, advance, blank, broken_rows, gap_parts, observe, summarize
from mohs.hardness.parts import several_classes
from mohs.hardness.table import make_table
from mohs.margin import INTEGERS, NO_LABEL, check_logits, check_tensors

if TYPE_CHECKING:
    from mohs.heads.fused import RowStatistics

BAD = ("ids out of range", "labels out of range", "logits that are NaN or infinite")
WHOLE = ("predicted", "label", "forgetting", "first_learned")  # integer columns: they cannot hold NaN
SAVED = ("sums", "state", "merged", "bad", "merged_bad")


class Recorder:
    """Record the training dynamics of every example.

    Args:
        num_examples: Number of examples N; ids are 0..N−1.
        head: The head, or anything with a `.weight` (K, D), to record AVH as well.
        track: Columns to record; default: all. `("aum",)` is the fastest and takes no `epoch=`.
        positions: Largest number of labels P per example: tokens or pixels, for logits (B, K, d1, ...), or the number of classes
            K, for labels (B, K) of 0 and 1; the record then has N·P rows.
    """

    def __init__(self, num_examples: int, head: Any = None, *, track: Sequence[str] | None = None, positions: int = 1) -> None:
        check_whole("num_examples", num_examples, 1)
        check_whole("positions", positions, 1)
        if head is not None and not isinstance(getattr(head, "weight", None), Tensor):
            raise ValueError(f"head must have a weight (K, D), as nn.Linear or find_head(model) has; got {type(head).__name__}")
        check_type("track", track, Sequence[str] | None)
        possible = tuple(name for name in DYNAMICS if name != "mean_avh" or head is not None)
        unknown = [name for name in track or () if name not in possible]
        if unknown:
            hint = " (it needs a head)" if unknown[0] == "mean_avh" else ""
            raise ValueError(f"cannot track {unknown[0]!r}{hint}; known: {', '.join(possible)}")
        num_examples *= positions
        self.num_examples, self.positions, self.head = num_examples, positions, head
        self.track = possible if track is None else tuple(name for name in possible if name in track)
        self._quick = self.track == ("aum",)
        self._sums, self._state = blank(num_examples + 1, self.track)  # the last entry collects rows to ignore
        self._merged = torch.zeros(num_examples + 1, dtype=torch.float64)  # counts at the last merge over ranks
        self._turn = torch.zeros(num_examples + 1, dtype=torch.int64)
        self._bad = torch.zeros(len(BAD), dtype=torch.int64)
        self._merged_bad = torch.zeros(len(BAD), dtype=torch.int64)
        self._known = torch.empty(num_examples, dtype=torch.int8)  # only its length is used
        self._gaps = torch.ones(2, 0, dtype=torch.float64)  # count and gap of a batch, kept from step to step
        self._gap = self._gaps[1].unsqueeze(1)

    def __repr__(self) -> str:
        more = "" if self.positions == 1 else f", positions={self.positions}"
        return f"Recorder({self.num_examples // self.positions}, track={self.track}{more})"

    def update(self, ids: Any, logits: Tensor, labels: Any, features: Tensor | None = None, *, epoch: int | None = None) -> None:
        """Record one batch.

        Args:
            ids: (B,), integers from 0 to N − 1, as a tensor, an array or a list; one per position (B, d1, ...) counts from 0 to
                N·P − 1.
            logits: (B, K), or (B, K, d1, ...) for positions.
            labels: (B,) or (B, d1, ...), class indices; or (B, K) of 0 and 1, if an example can have several classes. Labels of
                −100 are not recorded.
            features: (B, D) or (B, D, d1, ...), the inputs of the head; required if the recorder has one.
            epoch: Number of the epoch, so that repeated ids count once per epoch.
        """
        if not isinstance(ids, Tensor):
            ids = _integers("ids", ids)
        if not isinstance(labels, Tensor):
            labels = _integers("labels", labels)
        check_tensors(logits=logits)
        if logits.dim() > 2 or labels.dim() > 1:
            ids, logits, labels, features = self._flat(ids, logits, labels, features)
        ids, labels = self._check(ids, logits, labels, features, epoch)
        try:
            with torch.inference_mode():  # the small operations below cost less without autograd's bookkeeping
                if not logits.is_cpu:
                    ids, logits, labels = self._drop_bad(ids, logits, labels)
                self._add_gap(ids, logits, labels) if self._quick else self._add(ids, logits, labels, features, epoch)
        except (RuntimeError, IndexError, FloatingPointError):
            kept = labels != NO_LABEL
            if not kept.all():  # on the CPU, search for the bad row only now, as most batches have none
                own = None if features is None else features[kept]
                return self.update(ids[kept], logits[kept], labels[kept], own, epoch=epoch)
            _name_bad_row(ids, logits, labels, self.num_examples)
            raise

    def update_statistics(self, ids: Tensor, seen: RowStatistics, labels: Tensor, *, epoch: int | None = None) -> None:
        """Record one batch from the statistics of a fused head, without logits; ignored examples do not count.

        Args:
            ids: (B,), integers.
            seen: From `mohs.linear_loss(..., return_stats=True)` or `mohs.FusedHead`, (B,) each.
            labels: (B,), integer class indices.
            epoch: As for `update`.
        """
        if self._quick or "mean_avh" in self.track:
            raise ValueError("update_statistics needs a Recorder without a head that tracks more than aum; create one")
        for name, given in (("ids", ids), ("labels", labels), ("seen.margin", seen.margin)):
            if given.shape != (ids.shape[0],):
                raise ValueError(f"{name} must have shape (B,) with B = {ids.shape[0]}, got {tuple(given.shape)}")
        if self._sums.device != seen.margin.device:
            self.to(seen.margin.device)
        ids, labels = (given.to(seen.margin.device, torch.int64) for given in (ids, labels))
        with torch.inference_mode():
            strange, ignored = (ids < 0) | (ids >= self.num_examples), labels < 0
            broken = ~strange & ~ignored & ~seen.gap.isfinite()
            counts = torch.stack([strange.sum(), torch.zeros_like(ids).sum(), broken.sum()])
            if seen.margin.is_cpu and counts.any():
                raise ValueError(f"rows cannot be recorded: {_counted(counts)}; nothing of this batch was recorded")
            self._bad += counts
            left_out = strange | ignored | broken
            total = (seen.gap - seen.margin).exp()  # sum over the other classes, relative to the largest of them
            top = torch.where(seen.gap > 0, seen.confidence, (1 - seen.confidence) / total)
            parts = (part.masked_fill(left_out, 0.0) for part in (seen.gap, seen.margin, seen.confidence, top))
            self._keep(ids.masked_fill(left_out, self.num_examples), tuple(parts), (seen.predicted, labels), epoch)

    def position_ids(self, ids: Tensor, labels: Tensor) -> Tensor:
        """ids (B,) or (B, d1, ...) for labels (B, d1, ...) -> the number i·P + j of every position (B, d1, ...).

        Raises:
            ValueError: If the examples have more positions than the recorder.
        """
        if ids.shape == labels.shape:
            return ids
        here = labels[:1].numel()
        if ids.shape != labels.shape[:1] or here > self.positions:
            raise ValueError(
                f"ids of shape {tuple(ids.shape)} do not fit labels {tuple(labels.shape)} in a Recorder with positions="
                f"{self.positions}: give ids (B,) to a Recorder(N, positions={here} or more), or an id for every position"
            )
        own = torch.arange(here, device=ids.device).view(1, *labels.shape[1:])
        return ids.view(-1, *[1] * (labels.dim() - 1)) * self.positions + own

    def to(self, device: torch.device | str) -> Recorder:
        """Move the record to the device; `update` does this by itself."""
        for name in (*SAVED, "turn"):
            setattr(self, f"_{name}", getattr(self, f"_{name}").to(device))
        return self

    def end_epoch(self) -> None:
        """Merge the record over ranks, and raise if rows were bad."""
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            self._merge()
        self._raise_counted()

    def table(self, *, classes: Sequence[Any] | None = None, skip_bad: bool = False) -> Any:
        """The record as a hardness table, one row per example or part (no values if it was never seen).

        Args:
            classes: Class names in the order of the logits.
            skip_bad: Return the table even if rows were bad.
        """
        if not skip_bad:
            self._raise_counted()
        sums, state = self._sums[:, :-1].cpu(), self._state[:, :-1].cpu()
        ids = torch.arange(self.num_examples)
        columns: dict[str, Any] = {"id": ids, **summarize(sums, state, self.track)}
        if self.positions > 1:
            columns |= {"example": ids // self.positions, "part": ids % self.positions}
        if not self._quick:
            columns |= {"margin": state[1], "confidence": state[2], "top_confidence": state[8]}
            columns |= {"predicted": _names(state[3].long(), classes), "label": _names(state[4].long(), classes)}
        unseen = (sums[0] == 0).numpy()
        whole = {name: pa.array(columns[name].numpy(), mask=unseen) for name in WHOLE if isinstance(columns.get(name), Tensor)}
        return make_table(columns | whole, classes=classes)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume."""
        saved = {name: getattr(self, f"_{name}").clone() for name in SAVED}
        return {"num_examples": self.num_examples, "track": list(self.track), **saved}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from the `state_dict()` of a Recorder with the same num_examples and track."""
        missing = [name for name in ("num_examples", "track", *SAVED) if name not in state]
        if missing:
            raise ValueError(f"state has no {missing[0]!r}: give the state_dict() of a Recorder")
        for name, mine in (("num_examples", self.num_examples), ("track", list(self.track))):
            if state[name] != mine:
                raise ValueError(f"the saved record has {name}={state[name]}, this Recorder {mine}: create it with the same")
        for name in SAVED:
            setattr(self, f"_{name}", state[name].to(self._sums.device, copy=True))

    def _flat(
        self, ids: Tensor, logits: Tensor, labels: Tensor, features: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Parts as rows: ids and labels (B',), logits (B', K), features (B', D); on the CPU, without parts to ignore."""
        if several_classes(logits.shape, labels.shape):
            if "mean_avh" in self.track:
                raise ValueError("AVH needs one label per example: create the Recorder of several classes without a head")
            logits, features = torch.stack([torch.zeros_like(logits), logits], 1), None
            labels = torch.where(labels.long() == labels, labels.long(), -1)  # a share is not a label
        if labels.shape != (logits.shape[0], *logits.shape[2:]):
            raise ValueError(
                f"labels must have shape (B, d1, ...) for logits (B, K, d1, ...), got {tuple(labels.shape)} for "
                f"{tuple(logits.shape)}"
            )
        ids = self.position_ids(ids, labels).flatten()
        logits, labels = logits.movedim(1, -1).flatten(0, -2), labels.flatten()
        features = None if features is None else features.movedim(1, -1).flatten(0, -2)
        if not logits.is_cpu:  # selecting rows would synchronize
            return ids, logits, labels, features
        kept = labels != NO_LABEL
        return ids[kept.to(ids.device)], logits[kept], labels[kept], None if features is None else features[kept]

    def _check(
        self, ids: Tensor, logits: Tensor, labels: Tensor, features: Tensor | None, epoch: int | None
    ) -> tuple[Tensor, Tensor]:
        """Validate shapes and types; move the record, ids and labels to the device of the logits."""
        check_logits(logits, classes=2)
        for name, given in (("ids", ids), ("labels", labels)):
            if given.dim() != 1 or logits.dim() != 2 or given.shape[0] != logits.shape[0]:
                raise ValueError(
                    f"{name} must have shape (B,) for logits (B, K), got {tuple(given.shape)} for {tuple(logits.shape)}"
                )
            if given.dtype not in INTEGERS:
                raise ValueError(f"{name} must be integers, got {given.dtype}")
        if "mean_avh" in self.track and features is None:
            raise ValueError("features are needed: this Recorder has a head; call update(ids, logits, labels, features)")
        if self._quick and epoch is not None:
            raise ValueError('epoch= needs the full record: leave it out, or track more than ("aum",)')
        if self._sums.device != logits.device:
            self.to(logits.device)
        return ids.to(logits.device, torch.int64), labels.to(logits.device, torch.int64)

    def _drop_bad(self, ids: Tensor, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Send bad and ignored rows to the last row of the record, with harmless values, and count the bad ones, all on the
        device.
        """
        kept = labels != NO_LABEL
        strange = kept & ((ids < 0) | (ids >= self.num_examples))
        wrong = kept & ~strange & ((labels < 0) | (labels >= logits.shape[1]))
        broken = kept & ~strange & ~wrong & broken_rows(logits, labels)
        self._bad += torch.stack([strange.sum(), wrong.sum(), broken.sum()])
        bad = strange | wrong | broken | ~kept
        return ids.masked_fill(bad, self.num_examples), logits.masked_fill(bad.unsqueeze(1), 0.0), labels.masked_fill(bad, 0)

    def _add_gap(self, ids: Tensor, logits: Tensor, labels: Tensor) -> None:
        own, top, _ = gap_parts(logits, labels.unsqueeze(1))
        if logits.is_cpu:
            self._known.index_select(0, ids)  # raises for an invalid id before anything is recorded
        if self._gaps.shape[1] != ids.shape[0] or self._gaps.device != logits.device:
            self._gaps = torch.ones(2, ids.shape[0], dtype=torch.float64, device=logits.device)
            self._gap = self._gaps[1].unsqueeze(1)
        _check_finite(torch.sub(own, top, out=self._gap))
        self._sums.index_add_(1, ids, self._gaps)

    def _add(self, ids: Tensor, logits: Tensor, labels: Tensor, features: Tensor | None, epoch: int | None) -> None:
        seen = observe(logits, labels)
        _check_finite(seen[1])
        if logits.is_cpu:
            self._known.index_select(0, ids)  # raises for an invalid id before anything is recorded
        hardness = None
        if "mean_avh" in self.track and features is not None:
            hardness = avh(features.detach(), self.head.weight.detach(), labels)
        self._keep(ids, seen, (logits.argmax(1), labels), epoch, hardness)

    def _keep(
        self,
        ids: Tensor,
        seen: tuple[Tensor, ...],
        named: tuple[Tensor, Tensor],
        epoch: int | None,
        hardness: Tensor | None = None,
    ) -> None:
        """Add the statistics of a batch to the record: gap, margin, confidence, top confidence; prediction and label; AVH."""
        before = self._state.index_select(1, ids)  # (9, B)
        added, after = advance(before, seen, named, epoch)
        if hardness is not None:
            added = torch.cat([added, hardness.double().unsqueeze(0)])
        if epoch is not None:
            ids = ids.masked_fill(self._repeated(ids) | (before[7] == epoch), self.num_examples)
        self._state.index_copy_(1, ids, after.float())
        self._sums.index_add_(1, ids, added)

    def _repeated(self, ids: Tensor) -> Tensor:
        """Which rows of the batch (B,) repeat the id of an earlier row."""
        order = torch.arange(ids.shape[0], device=ids.device)
        self._turn.scatter_reduce_(0, ids, order, "amin", include_self=False)
        return self._turn[ids] != order

    def _merge(self) -> None:
        """Every rank takes each example's record from the lowest rank that updated it since the last merge."""
        if dist.get_backend() == "nccl" and self._sums.is_cpu:  # this rank has recorded nothing yet
            self.to(torch.device("cuda", torch.cuda.current_device()))
        rank, ranks = dist.get_rank(), dist.get_world_size()
        owner = torch.where(self._sums[0] != self._merged, rank, ranks)
        dist.all_reduce(owner, op=dist.ReduceOp.MIN)
        for kept in (self._sums, self._state):
            mine = kept.masked_fill(owner != rank, 0.0)
            dist.all_reduce(mine)
            kept.copy_(torch.where(owner < ranks, mine, kept))
        self._merged.copy_(self._sums[0])
        new = self._bad - self._merged_bad
        dist.all_reduce(new)
        self._bad = self._merged_bad + new
        self._merged_bad = self._bad.clone()

    def _raise_counted(self) -> None:
        counted = _counted(self._bad)
        if counted:
            raise ValueError(f"rows were skipped: {counted}; the others are recorded, table(skip_bad=True) returns them")


def _counted(counts: Tensor) -> str:
    """Describe how many rows (3,) are bad, and why; empty if none are."""
    return ", ".join(f"{n} with {what}" for what, n in zip(BAD, counts.tolist(), strict=True) if n)


def _names(index: Tensor, classes: Sequence[Any] | None) -> Any:
    """Class names for class indices; None for an example that was never seen (−1)."""
    if classes is None:
        return index
    known = index >= 0
    if len(index) and (top := int(index.max())) >= len(classes):
        raise ValueError(f"classes has {len(classes)} names, but the record holds class {top}: give the name of every class")
    names = decode(index.clamp(min=0), classes)
    return [name if seen else None for name, seen in zip(names.tolist(), known.tolist(), strict=True)]


def _integers(name: str, values: Any) -> Tensor:
    """An array or list as a tensor."""
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError) as error:
        remedy = "; mohs.WithIds(dataset) numbers its examples" if name == "ids" else ""
        raise ValueError(f"{name} must be integers ({error}){remedy}") from error


def _check_finite(values: Tensor) -> None:
    if values.is_cpu and not math.isfinite(values.sum().item()):
        raise FloatingPointError("logits are NaN or infinite")


def _name_bad_row(ids: Tensor, logits: Tensor, labels: Tensor, num_examples: int) -> None:
    """Raise a ValueError for the first bad row, if there is one."""
    classes = logits.shape[1]
    masks = ((ids < 0) | (ids >= num_examples), (labels < 0) | (labels >= classes), broken_rows(logits, labels))
    for what, mask in zip(BAD, masks, strict=True):
        if mask.any():
            row = int(mask.nonzero()[0])
            place = f"row {row}: id {int(ids[row])} of 0..{num_examples - 1}, label {int(labels[row])} of 0..{classes - 1}"
            raise ValueError(f"the batch has {int(mask.sum())} row(s) with {what} ({place}); no row of this batch was recorded")
