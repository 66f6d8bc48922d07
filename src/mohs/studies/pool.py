"""Several studies at once: what their recipes share is trained once, and on a GPU runs of all of them train side by side.

A study alone may have too few runs of a kind to fill a GPU. Here the runs of all recipes are put together, like with like, in
waves of equal size; every study then finds its runs done, and only measures. Runs whose labels come from another's network, or
that choose a setting by others, wait for their own study.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from mohs.studies.notes import Notes
from mohs.studies.plan import Planned, distinct, plan
from mohs.studies.recipe import Recipe
from mohs.studies.run_study import attempts, check_select, on_gpu
from mohs.train.loop import RUNS, UNWATCHED, Watch
from mohs.train.many import TOGETHER

POOL = "pool"


def train_pooled(
    recipes: Sequence[Recipe], *, runs: Path = RUNS, device: str = "auto", jobs: int = TOGETHER, watch: Watch = UNWATCHED
) -> int:
    """Train what these recipes need and return how many runs that is; those that diverge are left to their studies.

    `watch` is told of every step and epoch, and after each wave of how many runs have ended: {"trained", "of"}.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    planned = [plan(recipe) for recipe in recipes]
    for recipe, own in zip(recipes, planned, strict=True):
        check_select(recipe, distinct(own))
    todo = [one for one in distinct([one for own in planned for one in own]) if one.depth == 0]
    ended = 0
    for wave in waves(todo, jobs if on_gpu(device) else 1):
        ended += sum(1 for _ in attempts(wave, Notes(runs, POOL), device=device, watch=watch))
        watch({"trained": ended, "of": len(todo)})
    return ended


def waves(todo: Sequence[Planned], size: int) -> Iterator[list[Planned]]:
    """The runs in groups of at most so many: same data, network and length, and of one kind groups of about equal size."""
    kinds: dict[str, list[Planned]] = {}
    for one in todo:
        kinds.setdefault(repr((one.run.data, one.run.model, one.run.epochs, one.run.batch)), []).append(one)
    for kind in kinds.values():
        count = -(-len(kind) // size)
        even = -(-len(kind) // count)
        for start in range(0, len(kind), even):
            yield kind[start : start + even]
