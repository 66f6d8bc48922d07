"""Random specs, runs and recipes: each is made, or refused with a ValueError; anything else is a failure.

What could be made is used once: a loss is called and its emphasis drawn, a network is built for small images. Memory is
limited, so that a network of a billion units is refused by the allocator and not by the machine.
"""

from __future__ import annotations

import dataclasses
import datetime
import random
import resource
import tempfile
import warnings
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from mohs._core.specs import as_spec, create_spec
from mohs.cli import NO_MEMORY
from mohs.cli.listing import TABLES
from mohs.emphasis import emphasis, focus
from mohs.heads import create_head
from mohs.models import create_model
from mohs.studies.plan import plan
from mohs.studies.recipe import read_recipe
from mohs.train.resolve import check_run
from mohs.train.run import Run, run_from
from stress_outcome import Hang, Outcome, last_call, time_limit

LIMIT = 20.0  # seconds for one spec
MEMORY = 6 << 30  # bytes of address space
SHAPE, CLASSES = (3, 16, 16), 3
MADE = ("losses", "regularizers", "heads", "schedules", "models", "noises", "augmentations", "optimizers", "lr_schedules")
MADE += ("selections", "measures", "attacks", "degradations")
INTEGERS = (0, 1, 2, 3, 5, -1, 7, 100, 2**31 - 1, 2**31, 2**63, -(2**63), 10**20, -(10**20), 99999999999999999999)
FLOATS = (0.0, 0.5, 1.0, -1.0, 1e-30, 1e30, 1e308, 5e-324, float("nan"), float("inf"), -float("inf"), 0.1, 2.5, 10.0)
TEXTS = ("", "x", "None", "mean", "sum", "none", "exp", "auto", "resnet18", "digits", "\0", "é" * 3, "a.b:c", "[", "{}", "9" * 40)
DATES = (datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), datetime.time(1, 2))


def stress_specs(count: int, seed: int = 0) -> Outcome:
    """Try this many random specs."""
    outcome, rng = Outcome("random specs, runs and recipes"), random.Random(seed)
    tables = {kind: getattr(import_module(TABLES[kind][0]), TABLES[kind][1]) for kind in MADE}
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, before[1]))
    try:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(count):
                way = rng.random()
                if way < 0.7:
                    kind = rng.choice(MADE)
                    spec = random_spec(rng, tables[kind])
                    attempt(outcome, f"{kind} {spec!r}"[:300], lambda kind=kind, spec=spec: use(kind, tables[kind], spec))
                elif way < 0.9:
                    settings = random_run(rng, tables)
                    attempt(outcome, f"Run {settings!r}"[:300], lambda settings=settings: check_run(run_from(settings)))
                else:
                    text = random_recipe(rng, tables)
                    attempt(outcome, f"recipe {text!r}"[:400], lambda text=text: read(text, Path(folder)))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    return outcome


def attempt(outcome: Outcome, what: str, make: Any) -> None:
    """Try once: made and refused are fine."""
    outcome.tries += 1
    try:
        with time_limit(LIMIT):
            make()
        outcome.note("made")
    except (ValueError, ImportError) as error:
        outcome.note("refused")
        if not str(error).strip():
            outcome.fail("empty message", what)
    except Hang:
        outcome.fail("hang", what)
    except MemoryError:
        outcome.note("too large")
    except Exception as error:
        if isinstance(error, RuntimeError) and any(word in str(error) for word in NO_MEMORY):
            outcome.note("too large")
        else:
            outcome.fail("traceback", what, last_call(error))


def value(rng: random.Random, depth: int = 0) -> Any:
    """A value of any type."""
    kind = rng.randrange(9 if depth < 2 else 5)
    if kind == 0:
        return rng.choice(INTEGERS)
    if kind == 1:
        return rng.choice(FLOATS)
    if kind == 2:
        return rng.choice(TEXTS)
    if kind == 3:
        return rng.choice((True, False, None))
    if kind == 4:
        return rng.uniform(-3, 3) if rng.random() < 0.5 else rng.randrange(-5, 50)
    if kind == 5:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 6:
        return {rng.choice(("name", "x", "key", "values", "start")): value(rng, depth + 1) for _ in range(rng.randrange(3))}
    if kind == 7:
        return rng.choice(DATES)
    return rng.choice((b"x", 1j, (), (1, 2), {1, 2}, range(3), {1: 2}, [[1.0, 0.0], [0.0, 1.0]], [1, 2, 3], ..., [[]]))


def near(rng: random.Random, default: Any) -> Any:
    """A value of the default's type, so that more specs reach what comes after the types."""
    if default is dataclasses.MISSING:
        return value(rng)
    if isinstance(default, bool):
        return rng.random() < 0.5
    if isinstance(default, int):
        return rng.choice((default, *INTEGERS))
    if isinstance(default, float):
        return rng.choice((default, rng.uniform(0, 1), rng.uniform(0, 20), *FLOATS))
    return default if rng.random() < 0.5 else value(rng)


def random_spec(rng: random.Random, table: Mapping[str, Any]) -> Any:
    """A spec of a component in the table: a mapping or its short form."""
    if rng.random() < 0.02:
        return value(rng)
    name = rng.choice(list(table)) if rng.random() < 0.97 else value(rng)
    fields: dict[str, Any] = {}
    known = dataclasses.fields(table[name]) if isinstance(name, str) and name in table else ()
    for one in known:
        required = one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
        if rng.random() < (0.9 if required else 0.3):
            fields[one.name] = near(rng, one.default) if rng.random() < 0.6 else value(rng)
    if rng.random() < 0.05:
        fields[rng.choice(("x", "q", "seed", "name", ""))] = value(rng)
    if rng.random() < 0.4 and isinstance(name, str):
        return f"{name}:{','.join(f'{key}={given}' for key, given in fields.items())}"
    return {"name": name, **fields}


def random_run(rng: random.Random, tables: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a run, some of a wrong type."""
    kinds = {"loss": "losses", "model": "models", "head": "heads", "optimizer": "optimizers", "schedule": "lr_schedules"}
    settings: dict[str, Any] = {}
    for one in dataclasses.fields(Run):
        if rng.random() < 0.25:
            good = one.name in kinds and rng.random() < 0.7
            settings[one.name] = random_spec(rng, tables[kinds[one.name]]) if good else near(rng, one.default)
    if rng.random() < 0.3:
        settings["open"] = {rng.choice(("limit", "root", "holdout_classes", "test", "x", "label")): value(rng)}
    if rng.random() < 0.2:
        settings["regularizers"] = [random_spec(rng, tables["regularizers"]) for _ in range(rng.randrange(3))]
    return settings


def random_recipe(rng: random.Random, tables: Mapping[str, Any]) -> str:
    """A recipe as TOML, with some entries of a wrong type."""
    study = {"id": "x/y", "paper": "p", "what": "w"}
    row: dict[str, Any] = {"label": "a"}
    for target in (study, row):
        if rng.random() < 0.5:
            key = rng.choice(
                ("seeds", "select", "metric", "unit", "like", "rows", "label", "paper", "against", "claim", "choose")
            )
            target[key] = value(rng)
    for _ in range(rng.randrange(3)):
        row[rng.choice([one.name for one in dataclasses.fields(Run)])] = value(rng)
    parts = [f"study = {toml(study)}", f"row = [{toml(row)}]"]
    for name in ("base", "smoke", "sweep", "measure"):
        if rng.random() < 0.2:
            given = value(rng) if rng.random() < 0.3 else {}
            if name == "measure" and rng.random() < 0.7:
                given = [random_spec(rng, tables["measures"])]
            elif name in ("sweep", "measure") and given == {}:
                given = [{"key": rng.choice(("seed", "noise.rate", "x")), "values": value(rng)}]
            elif given == {}:
                given = {rng.choice(("data", "epochs", "trace", "open", "loss", "seed")): value(rng)}
            parts.append(f"{name} = {toml(given)}")
    text = "\n".join(parts)
    return text if rng.random() < 0.95 else text[: rng.randrange(len(text))]


def toml(given: Any) -> str:
    """A value as TOML; what TOML lacks becomes text."""
    if isinstance(given, bool):
        return str(given).lower()
    if isinstance(given, datetime.date | datetime.time):
        return given.isoformat()
    if isinstance(given, int | float):
        return str(given)
    if isinstance(given, list | tuple):
        return f"[{', '.join(map(toml, given))}]"
    if isinstance(given, Mapping):
        return f"{{{', '.join(f'{quoted(key)} = {toml(one)}' for key, one in given.items())}}}"
    return quoted(given)


def quoted(text: Any) -> str:
    """TOML text."""
    return '"' + "".join(c if c.isprintable() and c not in '"\\' else f"\\u{ord(c):04X}" for c in str(text)) + '"'


def read(text: str, folder: Path) -> None:
    """Read a recipe and plan its runs."""
    path = folder / "recipe.toml"
    path.write_text(text)
    plan(read_recipe(path))


def use(kind: str, table: Mapping[str, Any], spec: Any) -> None:
    """Make what the spec describes, and use it once."""
    given = as_spec(spec)
    if kind == "models":
        create_model(given, shape=SHAPE, num_classes=CLASSES)
        return
    if kind == "heads":
        name = given.pop("name", "")
        head = create_head(name, 8, CLASSES, **{key: one for key, one in given.items() if isinstance(key, str)})
        head(torch.randn(4, 8), torch.tensor([0, 1, 2, 0]))
        return
    if kind == "regularizers":
        given = {"num_classes": CLASSES, "in_features": 8, **given} if given.get("name") == "center" else given
    made: Any = create_spec(table, kind, given)
    if kind == "losses":
        made(torch.randn(4, CLASSES), torch.tensor([0, 1, 2, 0])).sum()
        emphasis(made, torch.linspace(0, 1, 5))
        focus(made)
    if kind == "schedules":
        made(0)
        made(5)
