"""Sphinx configuration. Before each build it writes the API reference from `mohs.__all__` and copies the results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from torch.nn import Module

import mohs

project = "mohs"
author = "The mohs authors"
copyright = "The mohs authors, MIT license"  # noqa: A001  (Sphinx's name)
version = release = mohs.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build"]
default_role = "literal"
highlight_language = "python"
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]  # the register of claims begins its tables below a second-level heading

html_theme = "furo"
html_title = f"mohs {release}"
html_static_path = ["_static"]
html_css_files = ["wide_tables.css"]
html_show_sphinx = False
html_show_sourcelink = False
copybutton_exclude = ".linenos, .gp, .go"

autodoc_typehints = "none"  # the descriptions name types and shapes; the signature stays readable
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autosummary_generate = False
napoleon_google_docstring = True
napoleon_numpy_docstring = False

# Title, what it is for, and the modules (below `mohs`) whose public names it holds.
GROUPS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "losses": (
        "Losses",
        "Drop-in replacements for `nn.CrossEntropyLoss`, and what they emphasize.",
        ("margin", "emphasis", "losses"),
    ),
    "regularizers": ("Regularizers", "Terms that an `Objective` adds to a loss.", ()),
    "heads": ("Heads", "Classification heads on the sphere, and the last linear layer of any model.", ("heads",)),
    "hardness": ("Hardness", "Scores, dynamics, noise estimates and verdicts per example.", ("hardness", "angle")),
    "data": ("Data", "Readers, label noise, ids and embeddings.", ("data", "embed")),
    "models": ("Models", "Networks by name.", ("models",)),
    "training": ("Training", "Runs of plain values, one training loop, and heads in cross-validation folds.", ("train",)),
    "audit": (
        "Audit",
        "From data to verdicts, other issues, report and corrected labels.",
        ("workflow", "issues", "audit", "report", "review"),
    ),
    "adaptation": ("Adaptation", "Self-training for a domain without labels.", ("adapt",)),
    "evaluation": ("Evaluation", "Calibration and robustness.", ("evaluate",)),
    "studies": ("Studies", "Recipes, and comparisons over seeds.", ("studies",)),
    "integrations": ("Integrations", "scikit-learn, skorch, Lightning and Hugging Face.", ("integrations",)),
    "errors": ("Errors", "What mohs raises beside `ValueError`.", ("_core",)),
}
MARKUP = r"([*|\\]|(?<=\w)_(?=\W|$))"  # what reStructuredText would take for emphasis, substitution or reference
BESIDE = {  # public, but imported from their own module, as they need an extra
    "integrations": ("mohs.integrations.lightning.RecorderCallback", "mohs.integrations.lightning.EndEpochCallback",
                     "mohs.integrations.transformers.RecorderCallback", "mohs.integrations.transformers.as_compute_loss_func",
                     "mohs.integrations.skorch.NeuralNetClassifier"),
}  # fmt: skip


def group_of(name: str) -> str:
    """The page of the reference that a public name belongs to."""
    room = mohs.HOME[name].split(".")[0]
    if room == "losses" and ("regularizer" in name.lower() or getattr(mohs, name) in mohs.REGULARIZERS.values()):
        return "regularizers"
    return next(group for group, (_, _, rooms) in GROUPS.items() if room in rooms)


def entry(name: str) -> str:
    """One name as a directive."""
    value = getattr(mohs, name)
    if isinstance(value, dict):
        keys = ", ".join(f"``{key}``" for key in value)
        return f".. py:data:: {name}\n\n   Table of names: {keys}.\n"
    if not isinstance(value, type):
        return f".. autofunction:: {name}\n"
    return f".. autoclass:: {name}\n" + ("" if issubclass(value, Module) else "   :members:\n")


def write_reference(folder: Path) -> None:
    """Write a page for each group; pages that have not changed keep their date."""
    folder.mkdir(exist_ok=True)
    names: dict[str, list[str]] = {group: [] for group in GROUPS}
    for name in sorted(mohs.__all__, key=lambda name: (not name.isupper(), name.lower())):
        names[group_of(name)].append(name)
    for group, (title, about, _) in GROUPS.items():
        kinds = {name: "function" if name.rpartition(".")[2].islower() else "class" for name in BESIDE.get(group, ())}
        beside = [f".. auto{kind}:: {name}\n" for name, kind in kinds.items()]
        parts = [title, "=" * len(title), "", about.replace("`", "``"), "", ".. currentmodule:: mohs", ""]
        parts += [f"{entry(name)}" for name in names[group]] + beside
        text = "\n".join(parts)
        page = folder / f"{group}.rst"
        if not page.exists() or page.read_text() != text:
            page.write_text(text)


def copy_results(folder: Path) -> None:
    """Copy the measurements beside the pages, so that the site holds what its pages link to."""
    source = folder.parent.parent / "results"
    for file in source.rglob("*"):
        if file.suffix in (".md", ".csv", ".json"):
            copy = folder / file.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if not copy.exists() or copy.read_bytes() != file.read_bytes():
                copy.write_bytes(file.read_bytes())


def links_to_results(app: Any, name: str, content: list[str]) -> None:
    """In the source tree the results lie beside docs/, on the site below it; benchmarks and recipes are not on the site."""
    text = content[0].replace("](../results/", "](results/")
    if name.startswith("results/"):
        text = re.sub(r"\]\(((?:\.\./)+)docs/", r"](\1", text)
        text = re.sub(r"\[`?([^\]`]+)`?\]\((?:\.\./)+(?:benchmarks|recipes)/[^)]*\)", r"`\1`", text)
    content[0] = text


def plain_docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text with `code` in backquotes: escape what reStructuredText would take for markup."""
    for i, line in enumerate(lines):
        parts = re.split(r"(`+[^`]*`+)", line)
        lines[i] = "".join(f"``{part.strip('`')}``" if part.startswith("`") else re.sub(MARKUP, r"\\\1", part) for part in parts)


def setup(app: Any) -> None:
    """Called by Sphinx."""
    here = Path(__file__).parent
    write_reference(here / "api")
    copy_results(here / "results")
    app.connect("source-read", links_to_results)
    app.connect("autodoc-process-docstring", plain_docstring, priority=100)
