"""Results are packed on one machine and merged on another, where the tables come out the same without running anything."""

import json
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

import tiny
import toys
from teabert import cli
from teabert.config import parse_recipe
from teabert.errors import UserError
from teabert.experiments.carrying import merge, pack
from teabert.experiments.labels import dev_labels
from teabert.experiments.results import Results

RIGHT = {"separate": (0.9, 0.8), "shared": (0.7, 0.6)}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return toys.toy(tiny.write_world(tmp_path_factory.mktemp("world")))


@pytest.fixture
def there(tmp_path, table):
    found = Results(tmp_path / "there")
    toys.write_results(found, table, RIGHT)
    found.add({"key": "broken", "error": "out of memory"})
    return found


def same(mine, theirs):
    assert mine.by_key() == theirs.by_key()
    for key in theirs.by_key():
        ours, expected = mine.answers(key), theirs.answers(key)
        assert (ours is None) == (expected is None)
        for name in expected or {}:
            np.testing.assert_array_equal(ours[name], expected[name])


def test_what_is_packed_there_is_the_same_here(there, tmp_path):
    made = pack(there.folder, tmp_path / "new" / "pack.tar.xz")
    assert (made.runs, made.failed) == (8, 1)
    merged = merge(tmp_path / "new" / "pack.tar.xz", tmp_path / "here")
    assert (merged.runs, merged.new, merged.failed) == (8, 8, 1)
    same(Results(tmp_path / "here"), there)


def test_merging_adds_what_is_new_and_keeps_what_is_there(there, tmp_path, table):
    here = Results(tmp_path / "here")
    toys.write_results(here, table, {"separate": RIGHT["separate"]}, seconds=99.0)
    here.add({"key": "shared--0-bert-base-uncased", "error": "killed"})
    lines = len(here.read())
    assert merge(there.folder, here.folder).new == 2
    assert len(here.read()) == lines + 3
    known = here.by_key()
    assert known["separate-mood-0-bert-base-uncased"]["seconds"] == 99.0
    assert known["shared--0-bert-base-uncased"]["seconds"] == 10.0
    assert merge(there.folder, here.folder).new == 0
    assert len(here.read()) == lines + 3


def test_labels_that_runs_share_take_room_once(tmp_path):
    draw, sizes = np.random.default_rng(0), []
    labels = draw.integers(0, 2, 20_000)
    results = Results(tmp_path / "r")
    for number in range(4):
        results.add({"key": f"run-{number}"})
        results.save_predictions(f"run-{number}", {"quora": labels}, {"quora": labels})
        sizes.append(pack(results.folder, tmp_path / "p").file and (tmp_path / "p").stat().st_size)
    assert sizes[-1] < 1.3 * sizes[0]


@pytest.mark.parametrize("damage", [lambda content: content[:200], lambda content: b"no archive", lambda content: b""])
def test_a_file_that_is_no_pack_is_refused_in_words(there, tmp_path, damage):
    file = tmp_path / "pack.tar.xz"
    pack(there.folder, file)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(UserError, match="is no whole file that `teabert results pack` wrote"):
        merge(file, tmp_path / "here")


def test_a_key_that_leads_elsewhere_is_refused(tmp_path):
    Results(tmp_path / "there").add({"key": "../../elsewhere"})
    with pytest.raises(UserError, match="is no run's key"):
        merge(tmp_path / "there", tmp_path / "here")


def test_the_commands(there, tmp_path):
    file, run = str(tmp_path / "pack.tar.xz"), CliRunner().invoke
    shown = run(cli.app, ["results", "pack", file, "--out", str(there.folder)])
    assert "8 runs, 1 failed ones" in shown.stdout
    merged = run(cli.app, ["results", "merge", file, "--out", str(tmp_path / "here"), "--json"])
    assert json.loads(merged.stdout)[0]["new"] == 8
    with pytest.raises(UserError, match="Run a table first"):
        pack(tmp_path / "nothing", tmp_path / "p")


def test_labels_that_did_not_come_along_are_read_from_the_data(table, tmp_path):
    results = Results(tmp_path / "results")
    recipe = table.row("shared").mapping()
    labels = {name: dev_labels(task, recipe["data"]) for name, task in parse_recipe(recipe).tasks.items()}
    assert {name: len(each) for name, each in labels.items()} == dict.fromkeys(("mood", "same", "near"), 24)
    assert labels["mood"].tolist() == [row % 5 for row in range(24)]
    results.save_predictions("one", labels, labels)
    shutil.rmtree(results.folder / "labels")
    assert Results(results.folder).predictions("one", "mood") is None, "no result says of which tasks it is"
    results.add({"key": "one", "recipe": recipe})
    again = Results(results.folder)
    for name, wanted in labels.items():
        found = again.predictions("one", name)
        assert found is not None
        np.testing.assert_array_equal(found[1], wanted)
    raw = np.load(results.folder / "answers" / "one.npz")
    assert all(raw[f"{name}.labels"].ndim == 0 for name in labels), "labels are in no file of a run"


def test_answers_travel_on_where_their_labels_are_only_on_another_machine(there, tmp_path):
    shutil.copytree(there.folder, tmp_path / "between")
    shutil.rmtree(tmp_path / "between" / "labels")
    pack(tmp_path / "between", tmp_path / "pack.tar.xz")
    merge(tmp_path / "pack.tar.xz", tmp_path / "here")
    here, key = Results(tmp_path / "here"), "shared--0-bert-base-uncased"
    assert here.predictions(key, "mood") is None
    merge(there.folder, tmp_path / "here")
    same(Results(tmp_path / "here"), there)
    assert here.predictions(key, "mood") is not None
