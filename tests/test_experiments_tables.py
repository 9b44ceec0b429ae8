"""The tables and claims as data: every row is a recipe that holds, every claim names rows that are there."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from teabert.config import parse_recipe
from teabert.counting import count
from teabert.errors import UserError
from teabert.experiments import TABLES, find_table
from teabert.experiments.base import Row
from teabert.experiments.claims import CLAIMS, Between
from teabert.experiments.columns import MEASURES, value
from teabert.experiments.jobs import Choices, digest_of_recipe, judged_of, recipes_of
from teabert.experiments.notes import is_bert, known_encoder, may_know_quora
from teabert.experiments.tea_bert import DECAYS, METHODS, PAPER
from teabert.files import sha256
from teabert.heads.attending import TaskAttention
from teabert.injections import INJECTIONS
from teabert.metrics import AGGREGATES
from teabert.optim import LEAST_DECAY
from teabert.shapes import BERT_BASE

ROWS = [(table, row) for table in TABLES.values() for row in table.rows]


@pytest.mark.parametrize(("table", "row"), ROWS, ids=lambda each: each.name)
def test_every_row_of_every_table_is_a_recipe_with_the_tables_columns(table, row):
    recipes = recipes_of(row)
    known = {task for recipe in recipes.values() for task in (*recipe.tasks, *judged_of(row, recipe))}
    counted = {*(f"{task}-true" for task in known), "injection", "percent"} if table.counted else set()
    assert set(table.columns) <= known | set(MEASURES) | set(AGGREGATES) | counted
    assert set(row.paper) <= set(table.columns)
    assert set(recipes) == (known if row.apart else {""})


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_the_rows_of_a_table_differ_in_name_and_recipe(table):
    names = [row.name for row in table.rows]
    assert len(set(names)) == len(names)
    found = {}
    for row in table.rows:
        what = tuple(digest_of_recipe(recipe, judged_of(row, recipe)) for recipe in recipes_of(row).values())
        name = row.name.replace("-wd-0.001", "-wd-0")  # fp32 cannot tell these two apart
        assert found.setdefault((row.apart, what), name) == name
    assert not table.figure or set(table.figure.columns) <= set(table.columns)
    for row in table.rows:
        assert (row.against or table.against or names[0]) in names


def test_the_results_table_has_every_model_at_every_decay_and_the_papers_numbers():
    table = TABLES["tea-bert"]
    assert {row.name for row in table.rows} == {
        f"{method}-wd-{decay}" for method in ("sst-only", "none", *METHODS) for decay in DECAYS
    }
    for row in table.rows:
        recipe = recipes_of(row)[""]
        assert recipe.train.weight_decay == float(row.name.rpartition("-")[2])
        assert recipe.train.lr == 1e-5
        assert recipe.sampling.batch == 16
    for name, (sst, quora, sts, mean) in PAPER.items():
        assert (sst + quora + sts) / 3 == pytest.approx(mean, abs=0.001), name


def test_tea_berts_rows_are_trained_as_the_paper_says():
    for row in (*TABLES["tea-bert"].rows, *TABLES["tea-bert-rates"].rows):
        recipe = recipes_of(row)[""]
        assert (recipe.train.mode, recipe.train.epochs, recipe.train.optimizer) == ("finetune", 10, "course")
        assert (recipe.sampling.strategy, recipe.sampling.mixed, recipe.sampling.batch) == ("blocks", False, 16)
        assert (recipe.train.schedule, recipe.train.warmup, recipe.train.clip) == ("constant", 0, None)
        assert all(task.head.read == "first_token" and task.head.dropout == 0.3 for task in recipe.tasks.values())
        if row.name.startswith("sst-only"):
            assert list(recipe.tasks) == ["sst"]
            assert list(judged_of(row, recipe)) == ["quora", "sts"]
            continue
        assert {name: task.take for name, task in recipe.tasks.items()} == {"sst": None, "quora": 8490, "sts": 3020}
        sts, quora = recipe.tasks["sts"], recipe.tasks["quora"]
        assert (quora.pair, quora.head.answer, quora.loss_choice) == ("apart", "concatenated", "binary_cross_entropy")
        assert (sts.pair, sts.head.answer, sts.stretch, sts.loss_choice) == ("apart", "cosine", "raw", "squared_error")
        if not row.name.startswith("none"):
            assert recipe.injection["init"] == "paper"


def test_a_decay_too_small_for_fp32_is_no_other_training():
    def whats(rate, *decays):
        row = TABLES["tea-bert"].row("input-wd-0")
        changes = [(f"train.lr={rate}", f"train.weight_decay={decay}") for decay in decays]
        recipes = [recipes_of(row, Choices(changes=each))[""] for each in changes]
        return [digest_of_recipe(recipe, {}) for recipe in recipes]

    none, little, much = whats("1e-5", 0, 0.001, 0.01)
    assert none == little != much
    assert len(set(whats("1e-4", 0, 0.001, 0.01))) == 3


@given(st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False))
def test_so_small_a_decay_leaves_every_fp32_number_as_it_is(number):
    value, part = np.float32(number), np.float32(LEAST_DECAY)
    assert value * (1 - part) == value
    assert value - part * value == value


def test_task_attentions_rows_are_trained_as_the_paper_says():
    answers = {"sst": "linear", "quora": {"method": "dot", "width": 768}, "sts": {"method": "dot", "width": 3072}}
    losses = {"sst": "cross_entropy", "quora": "binary_cross_entropy", "sts": "negative_pearson"}
    for row in (*TABLES["task-attention"].rows, *TABLES["task-attention-pooling"].rows):
        reader, mode = row.name.split("-")
        for name, recipe in recipes_of(row).items():
            task = recipe.tasks[name]
            assert (recipe.train.epochs, recipe.sampling.batch, recipe.train.weight_decay) == (10, 8, 0)
            assert (recipe.train.optimizer, recipe.lr) == ("course", 1e-3 if mode == "frozen" else 1e-5)
            assert (task.head.answer, task.loss_choice, task.take) == (answers[name], losses[name], None)
            if reader in ("first", "mean"):
                assert (task.head.read, task.head.dropout) == ("first_token" if reader == "first" else "mean", 0.3)
                continue
            read = TaskAttention.Config(**{key: value for key, value in task.head.read.items() if key != "method"})
            assert (read.layers, read.feed_forward) == ({"sst": 2, "quora": 1, "sts": 3}[name], True)
            assert read.start == ("uniform" if reader == "uniform" and name != "sst" else "default")
            assert (read.low, read.high) == (0.9, 1.0)
            assert task.head.dropout == 0  # a switch in the paper's code, off in the published rows


def test_the_mlp_control_is_as_large_as_the_attention():
    rows = [recipes_of(TABLES["task-attention-controls"].row(name)) for name in ("mlp", "attention")]
    for task in ("sst", "quora", "sts"):
        mlp, attention = (count(row[task], BERT_BASE).heads for row in rows)
        assert mlp == pytest.approx(attention, rel=0.002)


def test_task_attention_trains_one_task_at_a_time_and_its_sst_is_the_same_under_both_starts():
    rows = {row.name: recipes_of(row) for row in TABLES["task-attention"].rows}
    assert all(list(parts) == ["sst", "quora", "sts"] for parts in rows.values())
    default, uniform = rows["default-finetuned"], rows["uniform-finetuned"]
    same = {task for task in default if digest_of_recipe(default[task], {}) == digest_of_recipe(uniform[task], {})}
    assert same == {"sst"}
    assert {recipe.lr for recipe in rows["mean-frozen"].values()} == {1e-3}
    assert {recipe.lr for recipe in default.values()} == {1e-5}


def test_ten_tasks_are_shared_or_apart():
    parts = recipes_of(TABLES["sharing-more"].row("separate"))
    assert len(parts) == 10
    assert all(list(recipe.tasks) == [task] for task, recipe in parts.items())
    assert list(recipes_of(TABLES["sharing-more"].row("shared"))[""].tasks) == list(parts)


def test_frozen_methods_differ_in_the_injection_alone_and_cover_every_one_that_can_start_as_bert():
    table = TABLES["frozen-methods"]
    recipes = {row.name: recipes_of(row)[""] for row in table.rows}
    choices = [recipe.injection for recipe in recipes.values()]
    methods = {choice if isinstance(choice, str) else choice["method"] for choice in choices}
    assert methods == {method for method in INJECTIONS if method != "activated"}
    plain = recipes["none"].model_dump(exclude={"name", "injection"})
    assert all(recipe.model_dump(exclude={"name", "injection"}) == plain for recipe in recipes.values())
    assert (recipes["none"].train.mode, recipes["none"].lr, recipes["none"].sampling.batch) == ("frozen", 1e-3, 32)


def test_parameters_a_task_are_those_of_injection_and_heads_divided_among_the_tasks():
    parts = {"encoder": 1000, "injection": 30, "heads": 10, "total": 1040}
    one, other = ({"parameters": parts, "rows": {"train": dict.fromkeys(names, 5)}} for names in ("ab", "cd"))
    assert value("per-task", [one]) == 20
    assert value("per-task", [one, other]) == 20


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=lambda claim: claim.name)
def test_every_claim_names_rows_and_columns_that_are_there(claim):
    assert bool(claim.tests) != bool(claim.unmeasured)
    for test in claim.tests:
        table = TABLES[claim.table]
        terms = [(test.row, test.column), (test.under or test.row, test.column)] if isinstance(test, Between) else []
        for row, column in terms or [(row, column) for _, row, column in test.terms]:
            assert column in table.columns
            assert table.row(row)
        if not isinstance(test, Between):
            assert sum(weight for weight, _, _ in test.terms) == pytest.approx(0)


def test_an_unknown_table_is_named_with_the_nearest():
    with pytest.raises(UserError, match="Did you mean 'tea-bert-heads'"):
        find_table("tea-bert-head")


# what a reduced table changes

PLAIN = {"tasks": {"sst": None, "quora": {"take": 1000}, "sts": {"take": 0.5}}}


def test_rows_epochs_and_changes_reduce_every_recipe():
    choices = Choices(epochs=2, rows=0.1, changes=("train.lr=1e-4", "tasks.sst.max_tokens=64"))
    recipe = recipes_of(Row("row", PLAIN), choices)[""]
    assert [task.take for task in recipe.tasks.values()] == [0.1, 100, 0.05]
    assert (recipe.train.epochs, recipe.lr, recipe.tasks["sst"].max_tokens) == (2, 1e-4, 64)
    assert choices.reduced == {"epochs": 2, "rows": 0.1, "set": ["train.lr=1e-4", "tasks.sst.max_tokens=64"]}
    assert Choices(encoder="mpnet").reduced == {}


def test_a_change_of_a_task_is_for_recipes_that_have_it():
    changed = recipes_of(Row("row", {"tasks": ["sst"]}), Choices(changes=("tasks.quora.take=10",)))
    assert list(changed[""].tasks) == ["sst"]


@pytest.mark.parametrize("change", ["encoder=mpnet", "train.seed=1", "train.epochs=1"])
def test_what_has_an_option_of_its_own_is_not_set(change):
    with pytest.raises(UserError, match=f"give {change.split('=')[0]} with --"):
        Choices(changes=(change,))


def test_a_part_of_the_rows_is_a_part():
    with pytest.raises(UserError, match="above 0, at most 1"):
        Choices(rows=2)


def test_a_digest_is_that_of_what_a_result_depends_on():
    def digest(**more):
        return digest_of_recipe(parse_recipe(PLAIN | more), {})

    plain = digest()
    assert digest(name="another", encoder="mpnet", data="elsewhere") == plain
    assert digest(train={"seed": 1}) == plain
    assert digest(train={"epochs": 9}) != plain
    assert digest(tasks={"sst": None, "quora": {"take": 1001}, "sts": {"take": 0.5}}) != plain
    assert digest_of_recipe(parse_recipe(PLAIN), {"cfimdb": {"kind": "binary"}}) != plain


def test_an_encoder_rounded_to_half_precision_is_known_with_what_it_was_tuned_on(minilm, tmp_path):
    whole = load_file(minilm / "model.safetensors")
    half = {name: each.astype(np.float16) if each.dtype == np.float32 else each for name, each in whole.items()}
    save_file(half, tmp_path / "model.safetensors", {"format": "pt"})
    facts = {"name": "a folder", "sha256": sha256(tmp_path / "model.safetensors"), "weights": "F16"}
    assert known_encoder(facts) == known_encoder(facts | {"sha256": sha256(minilm / "model.safetensors")})
    assert may_know_quora(facts)
    assert not is_bert(facts)
    assert known_encoder(facts | {"sha256": "0" * 64}) is None
