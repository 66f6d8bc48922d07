"""Recipes: what they say, what they refuse, and how they shrink."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mohs.studies.plan import distinct, plan
from mohs.studies.recipe import override, read_recipe

Write = Callable[..., Path]
RECIPES = sorted((Path(__file__).parents[2] / "recipes").rglob("*.toml"))


def test_a_recipe_is_a_study_and_its_rows(written: Write) -> None:
    recipe = read_recipe(written())
    assert (recipe.study.id, recipe.study.select, recipe.study.direction, recipe.study.unit) == (
        "toy/table1",
        "last",
        "higher",
        "%",
    )
    assert [row.label for row in recipe.rows] == ["CE", "GCE"]
    assert recipe.rows[1].run.loss == {"name": "gce", "q": 0.5}
    assert recipe.rows[1].run.open == {"limit": 12}
    assert (recipe.rows[1].paper, recipe.rows[1].against) == (83.3, "CE")


def test_sweeps_multiply_rows_and_fill_labels(written: Write) -> None:
    sweep = '[[sweep]]\nkey = "noise.rate"\nvalues = [0.2, 0.4]\n[[sweep]]\nkey = "epochs"\nvalues = [1, 2, 3]\n'
    path = written(
        ('label = "CE"', 'label = "CE {noise.rate} {epochs}"'),
        ('label = "GCE"', 'label = "GCE {noise.rate} {epochs}"'),
        ('against = "CE"', 'against = "CE {noise.rate} {epochs}"'),
        more=sweep,
    )
    rows = read_recipe(path).rows
    assert len(rows) == 12
    assert rows[-1].label == "GCE 0.4 3"
    assert rows[-1].against == "CE 0.4 3"
    assert rows[-1].run.noise == {"name": "symmetric", "rate": 0.4}
    assert rows[-1].run.epochs == 3


def test_a_smoke_run_is_small_and_has_its_own_overrides(written: Write) -> None:
    more = '\n[smoke]\nmodel = "mlp"\n"noise.rate" = 0.1\n[[measure]]\nname = "attack"\neps = 0.1\nsteps = 40\nexamples = 500\n'
    recipe = read_recipe(written(more=more), scale="smoke")
    run = recipe.rows[0].run
    assert (recipe.study.seeds, run.epochs, run.open["limit"], run.model, run.noise["rate"]) == (1, 2, 12, {"name": "mlp"}, 0.1)
    attack = recipe.measures[0].measure
    assert (attack.steps, attack.examples, attack.eps) == (2, 16, 0.1)
    assert read_recipe(written(), scale="smoke", seeds=3).study.seeds == 3


def test_a_smoke_run_with_other_data_is_small_too(written: Write) -> None:
    more = "\n[smoke]\nopen = {test = 0.5}\n"
    assert read_recipe(written(more=more), scale="smoke").rows[0].run.open == {"test": 0.5, "limit": 12}


def test_one_field_of_a_spec_may_change() -> None:
    assert override({"loss": "gce:q=0.5"}, {"loss.q": 0.7}) == {"loss": {"name": "gce", "q": 0.7}}
    assert override({"loss": {"name": "gce", "q": 0.5}}, {"loss": "mae"}) == {"loss": "mae"}
    assert override({}, {"open.limit": 3}) == {"open": {"limit": 3}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[base]", "[bass]"), r"table1.toml: the recipe has an unknown key 'bass'; known: study, base"),
        (("seeds = 2", "sedes = 2"), r"\[study\] has an unknown key 'sedes'"),
        (("seeds = 2", "seeds = 0"), r"table1.toml: seeds must be an integer of at least 1 and at most 10000, got 0"),
        (('what = "does it run?"', ""), r"\[study\] needs what"),
        (('what = "does it run?"', 'what = "x"\nselect = "test"'), r"select must be one of last, best, best_val, got 'test'"),
        (("batch = 32", "bach = 32"), r"row 'CE': unknown setting 'bach'; known: data"),
        (("batch = 32", "batch = 0"), r"row 'CE': batch must be an integer"),
        (('label = "GCE"', 'label = "CE"'), r"two rows have the label 'CE'"),
        (('against = "CE"', 'against = "CCE"'), r"'GCE' is against 'CCE', which is not a row; rows: CE, GCE"),
        (("paper = 83.3", "paper = 0.833"), r"row 'GCE': paper = 0.833, but this study is in %: write 83.3"),
        (("paper = 83.3", 'paper = "83.3"'), r"paper must be a number"),
        (('label = "GCE"', ""), r"a \[\[row\]\] has no label"),
        (("[study]", "[study"), r"not TOML"),
    ],
)
def test_errors_name_the_file(written: Write, change: tuple[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_recipe(written(change))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('[[measure]]\nname = "eec"', r"\[\[measure\]\]: unknown measure 'eec'; known: ece, fit"),
        ('[[measure]]\nname = "ece"\nbin = 3', r"ece has no field 'bin'; its fields: bins"),
        ('[[measure]]\nname = "ood"', r"ood: .*data"),
        ('[[measure]]\nname = "ece"\n[[measure]]\nname = "ece"\nbins = 3', r"two \[\[measure\]\] have the name 'ece'"),
        ('[[measure]]\nname = "attack"\neps = 0.1\nattacks = ["pdg"]', r"unknown attack 'pdg'"),
        ('[[measure]]\nname = "degrade"\nkind = "blurr"\nlevels = [1]', r"kind must be one of contrast, noise, blur"),
        ('[[measure]]\nname = "curve"\nat = [1]\nvalues = ["loss"]', r"values: unknown 'loss'"),
        ('[[sweep]]\nkey = "epochs"', r"a \[\[sweep\]\] needs key and values"),
    ],
)
def test_wrong_measures_and_sweeps(written: Write, more: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_recipe(written(more="\n" + more))


def test_a_recipe_needs_rows(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text('[study]\nid = "a/b"\npaper = "p"\nwhat = "w"\n')
    with pytest.raises(ValueError, match=r"needs at least one \[\[row\]\]"):
        read_recipe(tmp_path / "x.toml")
    with pytest.raises(ValueError, match="scale must be one of full, smoke"):
        read_recipe(tmp_path / "x.toml", scale="tiny")


def test_the_plan_is_every_row_with_every_seed_and_equal_runs_are_one(written: Write) -> None:
    path = written(more='\n[[row]]\nlabel = "CE again"\nloss = "cross_entropy"\n')
    planned = plan(read_recipe(path))
    assert [(one.row.label, one.seed, one.run.seed) for one in planned] == [
        (label, seed, seed) for seed in (0, 1) for label in ("CE", "GCE", "CE again")
    ]
    assert [(one.row.label, one.seed) for one in distinct(planned)] == [("CE", 0), ("GCE", 0), ("CE", 1), ("GCE", 1)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('loss = "gcee"', "row 'x': unknown loss 'gcee'; known: cross_entropy"),
        ('loss = "gce:p=1"', "gce has no field 'p'; its fields: q"),
        ('regularizers = ["adrr:weight=1"]', "unknown regularizer 'adrr'"),
        ('head = "arcfaces"', "unknown head 'arcfaces'"),
        ('model = "resnet21"', "unknown model 'resnet21'"),
        ('optimizer = "sgdd"', "unknown optimizer 'sgdd'"),
        ('schedule = "cosin"', "unknown learning-rate schedule 'cosin'"),
        ('augment = ["flop"]', "unknown augmentation 'flop'"),
        ('noise = "symetric:rate=0.1"', "unknown noise 'symetric'"),
    ],
)
def test_unknown_pieces_are_named_before_any_training(written: Write, line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(read_recipe(written(more=f'\n[[row]]\nlabel = "x"\n{line}\n')))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_recipe_of_the_repository_can_be_planned(path: Path) -> None:
    full, trial = (read_recipe(path, scale=scale) for scale in ("full", "smoke"))
    assert full.study.id == f"{path.parent.name}/{path.stem}"
    assert plan(full)
    runs = [one.run for one in plan(trial)]
    assert all(run.epochs <= 2 and run.data.startswith(("digits", "sphere", "synthetic")) for run in runs), (
        "a trial must need no files"
    )


LIKE = """[study]
id = "toy/table1-small"
like = "first.toml"
paper = "Toy, Table 1"
what = "The same on less?"
"""


def like(first: Path, text: str = LIKE) -> Path:
    first.rename(first.with_name("first.toml"))
    path = first.with_name("second.toml")
    path.write_text(text)
    return path


def test_a_recipe_inherits_rows_for_other_data(written: Write) -> None:
    first = written(('against = "CE"', 'against = "CE"\nclaim = ["toy/table1/gce", "else/1"]'))
    old = read_recipe(first)
    new = read_recipe(like(first, LIKE + '[base]\n"open.limit" = 5\nepochs = 7\n'))
    assert new.study.id == "toy/table1-small"
    assert [row.label for row in new.rows] == ["CE", "GCE"]
    assert (new.rows[1].run.epochs, new.rows[1].run.open["limit"]) == (7, 5)
    assert (new.rows[1].run.loss, new.rows[1].run.noise) == (old.rows[1].run.loss, old.rows[1].run.noise)
    assert list(new.rows[1].claim) == ["toy/table1-small/gce"]


def test_rows_of_another_recipe_can_be_selected(written: Write) -> None:
    path = like(written(), LIKE + 'rows = ["CE"]\n')
    assert [row.label for row in read_recipe(path).rows] == ["CE"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LIKE + 'rows = ["SCE"]\n', r"second\.toml: \[study\] rows has 'SCE', which is not a row there; rows: CE, GCE"),
        (LIKE.replace("first.toml", "none.toml"), r"like = 'none\.toml': no such file in the same folder"),
        (LIKE.replace("first.toml", "second.toml"), "itself inherits from another recipe"),
        (LIKE.replace('like = "first.toml"', 'rows = ["CE"]'), "it needs like"),
        (LIKE + 'rows = ["CE"]\n[[row]]\nlabel = "MAE"\n', "one of the two"),
        (LIKE.replace("like =", "lkie ="), "known: .*like, rows"),
    ],
)
def test_what_cannot_be_taken_from_another_recipe_is_said(written: Write, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_recipe(like(written(), text))
