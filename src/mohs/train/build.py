"""Building a job: network, objective, optimizer, feed and recorders of a resolved run, from its seed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from mohs._core.specs import as_spec, create_spec
from mohs.data.examples import Data, Examples
from mohs.data.votes import vote_shares
from mohs.hardness.recorder import Recorder
from mohs.losses.class_weights import class_counts
from mohs.losses.early_learning import EarlyLearning
from mohs.losses.objective import Objective
from mohs.models import Network, Scale, create_model, scale_of
from mohs.models.twins import Twins, members
from mohs.train.accelerator import create_accelerator
from mohs.train.augment import create_augment
from mohs.train.build_objective import build_objective
from mohs.train.compiled import Compiled
from mohs.train.consistency import Consistency
from mohs.train.device_cache import fits, on_device
from mohs.train.ema import EMA
from mohs.train.epoch_means import EpochMeans
from mohs.train.feed import Feed
from mohs.train.fold_judge import trust_in_folds
from mohs.train.job import Job, Training
from mohs.train.learning_rate import LR_SCHEDULES, LRSchedule
from mohs.train.optimizers import OPTIMIZERS
from mohs.train.robust import FOLDS, RECIPES, Phase, Refinement, Robust, RobustTwo
from mohs.train.run import Run
from mohs.train.trace import Trace

Start = Mapping[str, Tensor] | None
SECOND = 500_009  # added to the seed for the second of two networks


def build(
    run: Run,
    data: Data,
    *,
    device: str = "auto",
    graph: bool = False,
    start: Start = None,
    soft: Tensor | None = None,
    **trackers: Any,
) -> Job:
    """The job of a resolved run on prepared data; start: initial weights, instead of those drawn from the seed."""
    accelerator = create_accelerator(run.precision, device=device, graph=graph, **trackers)
    train, here = data.train, accelerator.device
    if soft is None and train.votes is not None:
        soft = vote_shares(train)
    training = training_of(run, train, start, here)
    network = training.network
    schedule: LRSchedule = create_spec(LR_SCHEDULES, "learning-rate schedule", as_spec(run.schedule))
    recipe = None if run.recipe is None else recipe_of(run)
    settings = create_spec(OPTIMIZERS, "optimizer", as_spec(run.optimizer))
    optimizer: Any = settings.build(training.parameters(), here, moving_beta1=schedule.beta1(0, run.epochs) is not None)
    if accelerator.scaler is not None:
        optimizer = accelerator.prepare(optimizer)  # checks scaled gradients for overflow; otherwise not needed
    processes = {"rank": accelerator.process_index, "ranks": accelerator.num_processes}
    augment = create_augment(run.augment) if run.augment else None
    second = create_augment(recipe.view) if recipe is not None and recipe.two_views and recipe.view else None
    later = create_augment(recipe.augment) if recipe is not None and recipe.augment else None
    soft = None if soft is None else soft.to(here)
    refinement = None if recipe is None else refinement_of(run, recipe, train, soft, here)
    return Job(
        run=run,
        data=data,
        accelerator=accelerator,
        training=training,
        wrapped=distributed(accelerator, training),
        optimizer=optimizer,
        schedule=schedule,
        feed=Feed(
            train,
            batch=run.batch,
            seed=run.seed,
            device=here,
            augment=augment,
            second=second,
            networks=2 if own_views(network) else 1,
            **processes,
        ),
        means=EpochMeans(here),
        recorder=Recorder(len(train), head=network.head if run.trace else None).to(here) if run.record else None,
        trace=Trace(run.epochs, len(train), device=here) if run.trace else None,
        ema=None if run.ema is None else EMA(network, decay=run.ema),
        soft=soft if refinement is None else refinement.targets,
        refinement=refinement,
        later=(later, second if recipe is not None and recipe.unlabeled == "consistency" else None),
        checked={name: moved(part, here) for name, part in data.splits.items() if name != "train"},
    )


def own_views(network: Network) -> bool:
    """Whether these are two networks, each with its own views."""
    return isinstance(network, Twins) and network.own_views


def moved(examples: Examples, device: torch.device) -> Examples:
    """The examples with labels on the device, and inputs too if they fit."""
    inputs = examples.inputs
    if isinstance(inputs, Tensor) and fits(inputs, device):
        inputs = on_device(inputs, device)
    return replace(examples, inputs=inputs, labels=on_device(examples.labels, device))


def build_network(
    run: Run,
    *,
    shape: tuple[int, ...],
    num_classes: int,
    model: str | Mapping[str, Any] | None = None,
    scale: Scale | None = None,
) -> Network:
    """The run's network, or the two networks of its recipe; model: overrides the run's model."""
    seeds = [run.seed, run.seed + SECOND] if run.recipe is not None and recipe_of(run).networks == 2 else [run.seed]
    made = [
        create_model(model or run.model, shape=shape, num_classes=num_classes, head=run.head, scale=scale, seed=seed)
        for seed in seeds
    ]
    return Twins(*made) if len(made) == 2 else made[0]


def recipe_of(run: Run) -> Robust:
    """The settings of the run's recipe."""
    made: Robust = create_spec(RECIPES, "recipe", as_spec(run.recipe))  # type: ignore[arg-type]
    return made


def refinement_of(run: Run, recipe: Robust, train: Examples, soft: Tensor | None, device: torch.device) -> Refinement:
    """The beliefs and targets of robust training; judged before training if the recipe selects by folds."""
    number, judged = len(train.classes), None
    if recipe.select == FOLDS and recipe.targets == "refined":
        inputs = torch.as_tensor(train.inputs)
        judged = trust_in_folds(inputs, train.labels, number, seed=run.seed, device=device, groups=train.groups)
    return Refinement(recipe, train.labels.to(device), number, run.epochs, soft, mirror=run.mirrors, judged=judged)


def training_of(run: Run, train: Examples, start: Start, device: torch.device) -> Training:
    """Network and objective on the device; channels last on a GPU."""
    network = build_network(run, shape=train.shape, num_classes=len(train.classes), scale=scale_of(train))
    if start is not None:
        network.load_state_dict(start)
    objective = build_objective(run, network, train)
    if run.recipe is not None:
        add_terms(objective, recipe_of(run), run.epochs, train, networks=len(members(network)))
    if isinstance(network, Twins):
        recipe = recipe_of(run)
        network.own_views = isinstance(recipe, RobustTwo) and recipe.own_views
    training = Training(network, objective, len(train)).to(device)
    if device.type == "cuda":
        channels_last(training)
    if run.compile:
        training.outputs = Compiled(network)
    return training


def add_terms(objective: Objective, recipe: Robust, epochs: int, train: Examples, *, networks: int) -> None:
    """Add the recipe's early-learning regularization and consistency to the objective."""
    warmup = recipe.warmup_epochs(epochs)
    if recipe.early and warmup:
        objective.add(Phase(recipe.early, warmup), EarlyLearning(len(train) * networks, len(train.classes)))
    if recipe.two_views:
        counts = class_counts(train.labels, len(train.classes))
        end = epochs if recipe.unlabeled == "consistency" else warmup
        objective.add(Phase(recipe.consistency, end), Consistency(counts / counts.sum()))


def channels_last(module: nn.Module) -> None:
    """Convert the weights of 2-d convolutions to channels-last memory format."""
    for weight in module.parameters():
        if weight.dim() == 4:
            weight.data = weight.data.contiguous(memory_format=torch.channels_last)


def distributed(accelerator: Accelerator, training: Training) -> nn.Module:
    """The module wrapped by Accelerate for its processes and precision."""
    with warnings.catch_warnings():  # torch 2.15 renamed an argument that Accelerate still uses
        warnings.filterwarnings("ignore", ".*broadcast_buffers.*", FutureWarning)
        wrapped: nn.Module = accelerator.prepare(training)
    return wrapped
