"""Resolve a run: settings that are left open ("auto") are chosen by the data and the device, and the data are prepared.

run.json records what was trained, so every setting must be resolved before the folder is created.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from accelerate.state import PartialState

from mohs._core.errors import DataError
from mohs._core.specs import as_spec, check_spec, create_spec
from mohs.data.examples import Data, Examples
from mohs.data.long_tail import long_tail
from mohs.data.noise import NOISES, add_noise
from mohs.data.split import split
from mohs.data.validate import check_examples, check_numeric
from mohs.data.votes import labeled_by_votes
from mohs.heads import HEADS
from mohs.losses import LOSSES, REGULARIZERS
from mohs.losses.objective import check_weight
from mohs.models import EMBEDDING, MODELS, default_model, model_spec
from mohs.train.accelerator import use_device
from mohs.train.augment import AUGMENTATIONS
from mohs.train.build_objective import CLASS_WEIGHTS, build_loss
from mohs.train.ema import average_decay
from mohs.train.learning_rate import LR_SCHEDULES
from mohs.train.optimizers import OPTIMIZERS, SGD
from mohs.train.robust import FOLDS, RECIPES, Robust
from mohs.train.run import Run
from mohs.train.run_features import Progress, with_features

WIDE_RATE = 4.0  # learning rate times number of features, for 40 features and more


def resolve(run: Run, data: Data, *, device: str = "auto", progress: Progress | None = None) -> tuple[Run, Data, str]:
    """The resolved run, the prepared data, and the fingerprint of the data as they were given.

    progress: called with the numbers of examples that are embedded and of all examples, if the run embeds them.
    """
    check_run(run)
    use_device(device)
    check_examples(data.train)
    if data.train.numeric:
        raise DataError(f"{data.name}: numbers as labels can be audited, not trained on: mohs trains classifiers")
    if data.train.separator is not None:
        raise DataError(f"{data.name}: examples with several labels can be audited, not trained on: give each one label")
    fingerprint = data.fingerprint()
    with PartialState().main_process_first():  # the other processes read what the first has cached
        run, data = with_features(run, data, device=device, progress=progress)
    check_numeric(data.train)
    run = with_defaults(run, data.train, cuda=PartialState().device.type == "cuda")
    check_soft_labels(run, data.train)
    return run, prepare_data(run, data), fingerprint


def check_run(run: Run, *, where: str = "") -> None:
    """Validate, before training, that every component the run names exists and has the given fields."""
    try:
        check_spec(LOSSES, "loss", as_spec(run.loss))
        for spec in run.regularizers:
            check_weight(as_spec(spec))
            check_spec(REGULARIZERS, "regularizer", as_spec(spec), own=("weight",))
        if run.head is not None and as_spec(run.head).get("name") != "linear":
            check_spec(HEADS, "head", as_spec(run.head))
        if model_spec(run.model).get("name") != "auto":
            create_spec(MODELS, "model", model_spec(run.model))
        create_spec(OPTIMIZERS, "optimizer", as_spec(run.optimizer))
        create_spec(LR_SCHEDULES, "learning-rate schedule", as_spec(run.schedule))
        for spec in run.augment or ():
            create_spec(AUGMENTATIONS, "augmentation", as_spec(spec))
        if run.noise is not None:
            create_spec(NOISES, "noise", as_spec(run.noise))
        if run.class_weight is not None:
            create_spec(CLASS_WEIGHTS, "class weight", as_spec(run.class_weight))
        if run.recipe is not None:
            create_spec(RECIPES, "recipe", as_spec(run.recipe))
    except ValueError as error:
        raise ValueError(f"{where}: {error}" if where else str(error)) from error


def check_soft_labels(run: Run, train: Examples) -> None:
    """Raise unless the loss takes soft labels, which votes, mixup and a recipe train on."""
    mixes = any(as_spec(spec)["name"] == "mixup" for spec in run.augment or ())
    if train.votes is None and run.recipe is None and not mixes:
        return
    if train.votes is not None and run.noise is not None:
        raise ValueError(
            "noise changes labels, but votes are trained on instead of them: leave out noise (--noise) or votes (--votes)"
        )
    try:
        build_loss(run, train)(torch.zeros(2, len(train.classes)), torch.full((2, len(train.classes)), 1 / len(train.classes)))
    except ValueError as error:
        recipe = "" if run.recipe is None else f"the recipe {as_spec(run.recipe)['name']}"
        what = "training on votes" if train.votes is not None else recipe or "mixup"
        raise ValueError(f"{what} needs a loss that takes soft labels: {error}, or choose another one, such as gce") from error


def prepare_data(run: Run, data: Data) -> Data:
    """The data that the run trains on: its features, long tail and label noise, and a validation split if there is none."""
    _, data = with_features(run, data)
    train, val = data.train if data.train.votes is None else labeled_by_votes(data.train), data.val
    if run.long_tail is not None:
        train = train.take(long_tail(train.labels, ratio=run.long_tail, num_classes=len(train.classes), seed=run.labels_seed))
    if run.noise is not None:
        train = add_noise(train, as_spec(run.noise), seed=run.labels_seed)
    if val is None and run.validation > 0:
        train, val = split(train, run.validation, seed=run.labels_seed)
    return Data(train, val, data.test)


def with_defaults(run: Run, examples: Examples, *, cuda: bool) -> Run:
    """The run with model, learning rate, augmentation and precision chosen where they are left open."""
    changes: dict[str, Any] = {}
    optimizer = as_spec(run.optimizer)
    if examples.kind == "features" and optimizer["name"] == "sgd" and "lr" not in optimizer:
        changes["optimizer"] = {**optimizer, "lr": features_rate(examples.shape[0])}
    if model_spec(run.model)["name"] == "auto":
        changes["model"] = default_model(examples.shape, examples.kind, device="cuda" if cuda else "cpu")
    if run.augment is None:
        changes["augment"] = default_augment(examples)
    if run.recipe is not None:
        recipe = dict(as_spec(run.recipe))
        if any(as_spec(step)["name"] == "mixup" for step in run.augment or ()):
            recipe["view"] = []  # two views of mixed inputs cannot be compared
        made: Robust = create_spec(RECIPES, "recipe", recipe)
        if examples.kind == "features":
            recipe["select"] = FOLDS if made.select == "auto" else made.select
        elif made.select == FOLDS:
            raise ValueError("select=folds judges features, and the recipe has images: set embed=auto, or choose another select")
        changes["recipe"] = {**recipe, **recipe_augment(create_spec(RECIPES, "recipe", recipe), examples)}
    if run.ema is None and run.recipe is not None:
        changes["ema"] = average_decay(run.epochs * max(1, len(examples) // run.batch))
    if run.precision == "auto":
        changes["precision"] = "bf16" if cuda else "no"
    return dataclasses.replace(run, **changes)


def features_rate(width: int) -> float:
    """The learning rate of SGD for this many features.

    A step changes the logits in proportion to the number of features: at 0.1, a linear model on 1,280 features memorizes wrong
    labels.
    """
    return round(min(SGD.lr, WIDE_RATE / width), 5)


def default_augment(examples: Examples) -> list[dict[str, Any]]:
    """Shifts for images of 16 pixels and more, and flips for color images only: a mirrored letter is not that letter."""
    if examples.kind == "features" or examples.shape[-1] < 16:
        return []
    if examples.shape[0] == 1:
        return [{"name": "translate", "pixels": max(1, examples.shape[-1] // 14)}]
    return [{"name": "crop_flip", "padding": examples.shape[-1] // 8}]


def recipe_augment(recipe: Robust, examples: Examples) -> dict[str, Any]:
    """The augmentations of a recipe, chosen where they are left open: with two views, the first stays as in the warm-up."""
    if recipe.select == FOLDS:  # targets are out of sample, so the network may fit them
        return {"augment": recipe.augment or [], "view": recipe.view or []}
    view = strong_augment(examples) if recipe.view is None else recipe.view
    two = recipe.consistency > 0 and view and recipe.unlabeled == "consistency"
    one = default_augment(examples) if two else [*strong_augment(examples, share=0.5), {"name": "mixup"}]
    return {"augment": one if recipe.augment is None else recipe.augment, "view": view}


def strong_augment(examples: Examples, share: float = 1.0) -> list[dict[str, Any]]:
    """The default augmentation, after which a share of the images are warped or recolored, and a share partly covered.

    For embeddings, some numbers are replaced by those of other examples; fewer features, each of which may matter, are unchanged.
    """
    if examples.kind == "features" and examples.shape[0] >= EMBEDDING:
        return [{"name": "corrupt"}]
    weak = default_augment(examples)
    return [*weak, *({"name": name, "share": share} for name in ("rand_augment", "cutout"))] if weak else []
