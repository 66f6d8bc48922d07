"""The files of an audit's folder, by name."""

from __future__ import annotations

MARK = "audit.json"  # data and options of the audit, and how it was called
TABLE = "hardness.parquet"  # the table, with the verdict's columns
WORDS = "findings.json"  # names, estimate, losses, history, facts; written last
ARRAYS = "findings.npz"  # their arrays
PICTURES = "thumbnails.parquet"  # a small picture of each example that the gallery shows, by its row of the table
EVIDENCE = "evidence.parquet"  # neighbors and probabilities of each example, for `mohs review`
ISSUES = "issues.parquet"  # score, flag and group of each example for each issue besides its label
COPIES = "copies.npz"  # pairs of examples that may be copies, for another audit of the same inputs
DIFF = "diff.parquet"  # what changed since an earlier audit
FLAGGED = "flagged.parquet"  # the rows most probably mislabeled, in an audit of files
EVIDENCE_ROWS = 8192  # rows per row group of that file, which is what is read to show one example
ANNOTATORS = "annotators.parquet"  # quality of each annotator, where several people voted
REPAIR = "run the audit again with the same options; finished training and features are kept"
