"""Reuse results of an earlier audit of the same inputs: neighbors, copies and defects do not depend on labels.

    same training inputs          pairs that may be copies, defects of images, texts and columns; nearest neighbors, if the
                                  features are the same too
    and same inputs elsewhere     leaks between the splits

Features are cached separately (`mohs.embed`). Heads, verdicts and all issues that depend on labels are computed anew. If inputs
changed, everything is: a defect means "unlike the other examples".
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from mohs._core.errors import DataError
from mohs.audit.diff_audits import check_common
from mohs.audit.evidence import Near
from mohs.audit.options import AuditOptions
from mohs.audit.result import AuditResult, load_audit
from mohs.data.examples import Examples
from mohs.embed.embed_data import inputs_hash
from mohs.issues.catalog import ISSUES
from mohs.issues.duplicates import Copies
from mohs.issues.found import Found

INPUTS = ("images", "sizes", "texts", "table")
DEFECTS = [name for name, about in ISSUES.items() if set(about.needs) <= set(INPUTS)]  # issues that depend on content only


def hashes_of(splits: Mapping[str, Examples]) -> dict[str, str]:
    """A hash of the inputs of each split, without their labels."""
    return {name: inputs_hash(examples.inputs)[:16] for name, examples in splits.items()}


def load_previous(options: AuditOptions) -> AuditResult | None:
    """The earlier audit; None without one."""
    return None if options.previous is None else load_audit(options.previous)


def check_previous(earlier: AuditResult, examples: Examples, uncorrected: Examples) -> None:
    """Raise unless the earlier audit is one of these examples.

    uncorrected: The same examples with the labels that they had before the corrections of this audit.
    """
    numbered = examples.keys is None and examples.paths is None
    ids = [str(id_) for id_ in (examples.keys if examples.keys is not None else range(len(examples)))]
    check_common({str(id_): row for row, id_ in enumerate(earlier.table.column("id").to_pylist())}, ids, earlier, examples.name)
    same = earlier.data_hash in (examples.fingerprint(), uncorrected.fingerprint())
    if numbered and not same and not same_inputs(earlier, examples):
        raise DataError(
            f"{earlier.folder} audited other inputs than those of {examples.name}, and the examples are only numbered: "
            "add a column of ids to match them by, or leave previous (--previous) out"
        )


def same_inputs(earlier: AuditResult, examples: Examples) -> bool:
    """Whether the earlier audit had the same inputs, in the same order."""
    known = {} if earlier.issues is None else earlier.issues.inputs
    return known.get("train") == hashes_of({"train": examples})["train"]


def kept_neighbors(earlier: AuditResult | None, examples: Examples, features: str) -> Near | None:
    """The nearest neighbors by these features (given by their description), if the earlier audit has them."""
    if earlier is None or earlier.evidence is None or "nearest" not in earlier.evidence.column_names:
        return None
    if earlier.facts.get("features") != features or not same_inputs(earlier, examples):
        return None
    rows, cosines = (np.stack(earlier.evidence.column(name).to_numpy(zero_copy_only=False)) for name in ("nearest", "cosine"))
    return torch.from_numpy(rows.astype(np.int64)), torch.from_numpy(cosines)


def kept_issues(earlier: AuditResult | None, hashes: Mapping[str, str], wanted: str) -> tuple[dict[str, Found], Copies | None]:
    """The issues of the earlier audit that still hold for inputs with these hashes, and its pairs of possible copies.

    wanted: What to look for, as `AuditOptions.issues`; nothing is kept from an audit that searched for other issues.
    """
    if earlier is None or earlier.issues is None or earlier.issues.inputs.get("train") != hashes["train"]:
        return {}, None
    if earlier.facts.get("issues") != wanted:
        return {}, earlier.issues.copies
    names = [*DEFECTS, *(["leak"] if earlier.issues.inputs == hashes else [])]
    return {name: earlier.issues.found[name] for name in names if name in earlier.issues.found}, earlier.issues.copies
