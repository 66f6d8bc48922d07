"""The issues by name: the meaning, advice and required inputs of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class About:
    """One issue.

    Attributes:
        title: Heading in the report.
        meaning: What it means that an example is flagged.
        advice: What to do about it.
        needs: Inputs of `find_issues` that it is found in; any of them separated by "|".
    """

    title: str
    meaning: str
    advice: str
    needs: tuple[str, ...]


CONTENT = "images|texts|table|features"
ISSUES: dict[str, About] = {
    "conflicting_duplicate": About(
        "Copies with different labels",
        "The same or nearly the same example has several labels: at least one of them is wrong.",
        "Look at each group and keep one label.",
        (CONTENT, "labels"),
    ),
    "leak": About(
        "Leaks between splits",
        "The same or nearly the same example is in another split: scores on that split are too optimistic.",
        "Remove the copies from the training split, or move each group to one split.",
        (CONTENT, "splits"),
    ),
    "exact_duplicate": About(
        "Exact duplicates",
        "Another example has the same content, bit for bit.",
        "Keep one of each group.",
        (CONTENT,),
    ),
    "near_duplicate": About(
        "Near duplicates",
        "Another example is closer than chance explains: cropped, recompressed, mirrored, shifted or reworded; exact ones count.",
        "Keep one of each group, or keep each group in one split.",
        (CONTENT,),
    ),
    "outlier": About(
        "Outliers",
        "Far from all other examples, and fits no class: it may not belong here.",
        "Look at them; exclude what does not belong to any class.",
        ("features",),
    ),
    "dark": About("Dark images", "Hardly any light, unlike the other images.", "Exclude or correct them.", ("images",)),
    "bright": About("Bright images", "Overexposed, unlike the other images.", "Exclude or correct them.", ("images",)),
    "blurry": About("Blurry images", "No sharp edge, unlike the other images.", "Exclude them.", ("images",)),
    "low_information": About("Empty images", "Almost a single color.", "Exclude them.", ("images",)),
    "grayscale": About(
        "Gray images among color images",
        "No color, although most images have color.",
        "Check that color does not give the class away.",
        ("images",),
    ),
    "odd_size": About(
        "Odd sizes",
        "Less than a third of the usual size, or over three times it.",
        "Check their source.",
        ("images", "sizes"),
    ),
    "odd_aspect": About(
        "Odd shapes",
        "Much longer or narrower than usual: cropping to a square loses most of it.",
        "Crop them by hand.",
        ("images", "sizes"),
    ),
    "empty_text": About("Empty texts", "No letter and no digit.", "Exclude them.", ("texts",)),
    "truncated_text": About(
        "Truncated texts", "Cut off at the length that many texts share.", "Export the texts again without the limit.", ("texts",)
    ),
    "missing_values": About(
        "Missing values", "Most cells of the row are missing.", "Exclude the rows, or find out why they are missing.", ("table",)
    ),
    "constant_column": About("Constant columns", "The column has at most one distinct value.", "Drop the columns.", ("table",)),
    "class_imbalance": About(
        "Rare classes",
        "Its class has less than a tenth of its share among balanced classes.",
        "Collect more, or weight the classes.",
        ("labels",),
    ),
    "order": About(
        "Dependence on order",
        "Successive examples resemble each other, or share labels, beyond chance: they are not independent.",
        "Split by source or time, not at random, and not by position.",
        ("labels",),
    ),
    "weak_group": About(
        "Groups with low accuracy",
        "It belongs to a class or a cluster that the model gets wrong more often than the rest.",
        "Collect more such examples, and check their labels first.",
        ("labels", "probs"),
    ),
    "class_overlap": About(
        "Classes to merge or split",
        "Its class cannot be distinguished from another one, or consists of two separate parts.",
        "Merge, split or redefine the classes.",
        ("labels", "probs"),
    ),
}  # fmt: skip


def chosen_issues(names: str | Sequence[str]) -> list[str]:
    """The names that "auto", "none", names separated by commas, or a list of names select, in the order of ISSUES."""
    if names in ("auto", "none"):
        return list(ISSUES) if names == "auto" else []
    given = [one.strip() for one in names.split(",")] if isinstance(names, str) else list(names)
    unknown = [one for one in given if one not in ISSUES]
    if unknown:
        raise ValueError(f"issues: unknown issue {unknown[0]!r}; known: auto, none, {', '.join(ISSUES)}")
    return [name for name in ISSUES if name in given]
