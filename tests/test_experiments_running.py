"""Tables are run: what is missing and no more, past failures and kills, into files that say where each number is from."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from typer.testing import CliRunner

import tiny
import toys
from teabert import cli
from teabert.config import parse_recipe
from teabert.errors import UserError
from teabert.experiments import TABLES, running
from teabert.experiments.base import Row, Table
from teabert.experiments.clock import Clock
from teabert.experiments.figures import draw
from teabert.experiments.jobs import Choices, jobs_of
from teabert.experiments.plan import plan
from teabert.experiments.results import Results, by_key, good
from teabert.experiments.running import How, run_table
from teabert.experiments.work import Place, Sparing, work
from teabert.experiments.workers import run_jobs
from teabert.metrics import METRICS
from teabert.progress import Progress
from teabert.reports.tablepage import read_table
from teabert.runs import Run

CHOICES = Choices(seeds=2)


class Notes(Progress):
    """Keeps what is said."""

    def __init__(self):
        self.said = []

    def note(self, text):
        self.said.append(text)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return tiny.write_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def table(world):
    return toys.toy(world, epochs=2)


@pytest.fixture(scope="module")
def notes():
    return Notes()


@pytest.fixture(scope="module")
def done(table, tmp_path_factory, notes):
    return run_table(table, CHOICES, tmp_path_factory.mktemp("results"), How(workers=2), notes)


@pytest.fixture
def results(done, tmp_path):
    """A copy to be changed"""
    shutil.copytree(done.folder.parent, tmp_path / "results")
    return Results(tmp_path / "results")


@pytest.fixture
def asked(monkeypatch):
    """The jobs that would be run, instead of running them"""
    found = []
    monkeypatch.setattr(running, "run_jobs", lambda jobs, place, ended, clock: found.extend(jobs))
    return found


def rows_of(done):
    return {row["name"]: row for row in done.summary["rows"]}


def test_the_kept_scores_are_those_of_the_best_epoch_and_of_the_kept_predictions(done, table):
    known = Results(done.folder.parent)
    records = [record for record in known.by_key().values() if good(record)]
    assert len(records) == 2 * (3 + 1 + 1)
    for record in records:
        best = Run.open(done.folder.parent / "runs" / record["key"]).scores()
        assert record["epoch"] == best["epoch"]
        for task, scores in record["scores"].items():
            metric = next(iter(scores))
            predictions, labels = known.predictions(record["key"], task)
            assert METRICS[metric](predictions, labels) == pytest.approx(scores[metric], abs=1e-6)
            if task in best["tasks"]:
                assert scores == pytest.approx(best["tasks"][task], abs=1e-6)


def test_a_row_that_fails_is_in_the_table_with_its_reason_and_the_others_are_done(done, notes):
    rows = rows_of(done)
    assert {record["row"] for record in done.failed} == {"exploding"}
    assert "became nan" in rows["exploding"]["error"]
    assert str(done.folder.parent) not in json.dumps(done.failed)
    assert {name: len(row["seeds"]) for name, row in rows.items()} == {
        "separate": 2,
        "shared": 2,
        "mood-only": 2,
        "exploding": 0,
    }
    assert "exploding seed 11711 FAILED" in " ".join(notes.said)
    assert sum(" of 12 runs done, about " in note for note in notes.said) == 12


def test_means_and_deviations_are_over_seeds_and_say_where_they_come_from(done):
    known = Results(done.folder.parent).by_key()
    for row in rows_of(done).values():
        for column, cell in row["scores"].items():
            assert cell["mean"] == pytest.approx(np.mean(cell["values"]))
            assert cell["deviation"] == pytest.approx(np.std(cell["values"], ddof=1))
            if column in toys.TASKS:
                found = [next(iter(known[key]["scores"][column].values())) for key in cell["runs"]]
                assert found == cell["values"]
    mood, same, near, mean, course = (rows_of(done)["shared"]["scores"][c]["values"][0] for c in toys.COLUMNS[:5])
    assert mean == pytest.approx((mood + same + near) / 3)
    assert course == pytest.approx((mood + same + (1 + near) / 2) / 3)


def test_tasks_apart_are_added_up_and_tasks_that_were_not_learned_are_judged(done):
    rows = rows_of(done)
    runs = [run["part"] for run in rows["separate"]["runs"] if run["seed"] == 11711]
    assert runs == ["mood", "same", "near"]
    parameters = {name: row["measures"]["parameters"]["mean"] for name, row in rows.items() if row["seeds"]}
    assert parameters["separate"] > 2.9 * parameters["shared"]
    assert set(rows["mood-only"]["scores"]) == {*toys.TASKS, "mean", "course"}
    assert rows["mood-only"]["measures"]["rows"]["mean"] == 24
    assert rows["separate"]["measures"]["ratio"]["values"] == [1.0, 1.0]
    assert rows["shared"]["loses"] is not None


def test_each_number_is_traced_to_its_run(done):
    run = rows_of(done)["shared"]["runs"][0]
    facts = Run.open(done.folder.parent / "runs" / run["key"]).facts()
    assert (run["commit"], run["seed"]) == (facts["commit"], facts["seed"])
    assert run["encoder"]["sha256"] == facts["encoder"]["sha256"]
    assert run["encoder"]["weights"] == "F32"
    assert run["hardware"] == (facts["gpu"] or facts["processor"])
    record = Results(done.folder.parent).by_key()[run["key"]]
    assert record["recipe"]["train"]["seed"] == run["seed"]
    text = (done.folder / "table.md").read_text()
    for row in rows_of(done).values():
        for run in row["runs"]:
            assert run["key"] in text


def test_the_files_agree_and_the_report_reads_them(done):
    found = read_table(done.folder)
    assert found.columns == [*toys.TASKS, "mean", "course"]
    lines = {line["row"]: line for line in csv.DictReader((done.folder / "table.csv").open())}
    for row in found.rows:
        for column, cell in row.scores.items():
            assert float(lines[row.name][f"{column} mean"]) == cell.mean
    assert float(lines["shared"]["mood paper"]) == 0.4
    assert "became nan" in lines["exploding"]["error"]
    shown = rows_of(done)["shared"]["scores"]["mood"]
    assert f"| {shown['mean']:.3f} ± {shown['deviation']:.3f} (0.400) |" in (done.folder / "table.md").read_text()


def test_the_figure_is_drawn_twice_and_without_a_date(done):
    assert (done.folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    drawn = (done.folder / "figure.svg").read_text()
    assert "mood, Acc" in drawn
    assert "the paper's" in drawn
    assert "<dc:date>" not in drawn


def test_without_matplotlib_there_is_a_note_instead_of_a_figure(done, table, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    heard = Notes()
    assert draw(done.summary, table.figure, tmp_path, heard) == []
    assert "pip install 'teabert[report]'" in heard.said[0]
    assert not list(tmp_path.iterdir())


def test_models_and_checkpoints_are_gone_and_log_and_scores_stay(done):
    for run in rows_of(done)["shared"]["runs"]:
        files = {path.name for path in (done.folder.parent / "runs" / run["key"]).iterdir()}
        assert files == {"recipe.yaml", "run.json", "scores.json", "log.jsonl", "subsets.json"}


def test_a_model_that_was_not_kept_is_trained_again_when_it_is_wanted(results, table):
    before = results.by_key()
    seeds = Choices(seeds=1)
    key = jobs_of(table, [table.row("shared")], seeds)[0].key
    run_table(table, seeds, results.folder, How(["shared"], keep_models=True))
    assert (results.folder / "runs" / key / "best" / "model.safetensors").is_file()
    assert results.by_key() == before
    again = results.read()[-1]
    assert again["key"] == key
    assert again["scores"] == before[key]["scores"]
    lines = len(results.read())
    run_table(table, seeds, results.folder, How(["shared"], keep_models=True))
    assert len(results.read()) == lines


# what is missing


def test_finished_runs_are_not_repeated_and_failed_ones_are_tried_again(results, table, asked):
    run_table(table, Choices(seeds=3), results.folder, How(["exploding"]))
    assert [(job.row, job.seed) for job in asked] == [("exploding", seed) for seed in (11711, 11712, 11713)]
    asked.clear()
    run_table(table, CHOICES, results.folder, How(["s*", "mood-only"]))
    assert asked == []


def test_a_line_cut_by_a_kill_costs_its_own_run_only(results, table, asked):
    lines = results.file.read_text().splitlines(keepends=True)
    places = [place for place, line in enumerate(lines) if good(json.loads(line))]
    last = lines.pop(places[-1])
    results.file.write_text("".join(lines) + last[: len(last) // 2])
    key = json.loads(last)["key"]
    jobs = [job for job in jobs_of(table, table.rows[:3], CHOICES) if not good(results.by_key().get(job.key))]
    assert [job.key for job in jobs] == [key]
    results.add(json.loads(last))
    assert results.by_key()[key] == json.loads(last)
    assert len(results.read()) == len(lines) + 1


def test_two_machines_files_are_merged_by_putting_one_behind_the_other(results):
    records = results.read()
    other = [record | {"seconds": 99.0} for record in records]
    failed = {"key": records[0]["key"], "error": "out of memory"}
    results.file.write_text("".join(json.dumps(record) + "\n" for record in [failed, *records, *other, failed]))
    assert results.by_key() == by_key(records) | {record["key"]: record for record in other if "error" in record}


def test_a_line_that_is_no_result_is_named(results):
    results.file.write_text('{"no": "key"}\n')
    with pytest.raises(UserError, match=r"rows\.jsonl line 1 is no result"):
        results.read()


def test_a_reduced_table_shares_nothing_with_the_full_one(results, table, asked):
    choices = Choices(seeds=1, epochs=1, rows=0.5, changes=("train.lr=1e-4",))
    jobs = jobs_of(table, table.rows, choices)
    assert not {job.key for job in jobs} & set(results.by_key())
    assert all(job.reduced == {"epochs": 1, "rows": 0.5, "set": ["train.lr=1e-4"]} for job in jobs)
    run_table(table, choices, results.folder)
    assert len(asked) == len(jobs)
    folder = next(path for path in results.folder.iterdir() if "reduced" in path.name)
    assert folder.name.startswith("toy-encoder-reduced-epochs-1-rows-0.5-")
    text = (folder / "table.md").read_text()
    assert text.startswith("# A toy - REDUCED (epochs: 1; rows: 0.5; train.lr=1e-4)")
    assert all("(reduced)" in text.split(f"| {row.name}")[1][:12] for row in table.rows)


def test_other_rows_or_other_weights_are_other_runs(table, world, tmp_path):
    before = {job.key for job in jobs_of(table, table.rows, CHOICES)}
    shutil.copytree(world, tmp_path / "world")
    moved = toys.toy(tmp_path / "world", epochs=2)
    assert {job.key for job in jobs_of(moved, moved.rows, CHOICES)} == before
    file = tmp_path / "world" / "data" / "mood-train.tsv"
    file.write_text(file.read_text().replace("\t4\n", "\t3\n"))
    after = {job.key: job for job in jobs_of(moved, moved.rows, CHOICES)}
    assert {job.part for key, job in after.items() if key in before} == {"same", "near"}


def test_an_unknown_row_is_named_with_the_nearest(table, tmp_path):
    with pytest.raises(UserError, match="has no row 'sharde'"):
        run_table(table, CHOICES, tmp_path, How(["sharde"]))


# kills


def long_table(world, epochs=12):
    base = tiny.recipe(world, epochs=epochs)
    return Table("long", "Long", (Row("first", base), Row("second", base, ("train.epochs=1",))), toys.TASKS)


def begun(folder):
    return any(folder.glob("runs/*/scores.json"))


def test_a_killed_worker_takes_only_its_own_run_which_then_goes_on(world, tmp_path):
    table = long_table(world)
    jobs = jobs_of(table, table.rows, Choices(seeds=1))
    before = {child.pid for child in psutil.Process().children()}

    def kill_first():
        while not any(tmp_path.glob("runs/*/checkpoints/0*")):
            time.sleep(0.02)
        (worker,) = [
            child
            for child in psutil.Process().children()
            if child.pid not in before and "resource_tracker" not in str(child.cmdline())
        ]
        worker.kill()

    threading.Thread(target=kill_first, daemon=True).start()
    found = {}
    place = Place(tmp_path, checkpoint_seconds=0)
    run_jobs(jobs, place, lambda job, record: found.update({job.row: record}))
    assert "ended by SIGKILL" in found["first"]["error"]
    assert good(found["second"])
    started = tmp_path / "runs" / jobs[0].key / "run.json"
    when = started.stat().st_mtime_ns
    run_jobs(jobs[:1], place, lambda job, record: found.update({job.row: record}))
    assert good(found["first"])
    assert started.stat().st_mtime_ns == when  # it went on, and did not begin anew
    epochs = [line["epoch"] for line in Run(started.parent).log() if line["event"] == "epoch"]
    assert epochs == list(range(1, 13))


def test_checkpoints_are_spared_and_a_run_killed_before_the_first_begins_again(world, tmp_path, monkeypatch):
    table = long_table(world, epochs=3)
    (job,) = jobs_of(table, table.rows[:1], Choices(seeds=1))
    sparing, place = Place(tmp_path / "a", keep_models=True), Place(tmp_path / "b", checkpoint_seconds=0)
    plain = work(job, place)
    begun = Sparing.begin(parse_recipe(job.recipe), sparing.run_folder(job.key), Progress())
    monkeypatch.setattr(Sparing, "every", 60.0)
    begun.saved = time.monotonic()
    begun.epoch()
    assert not list(sparing.run_folder(job.key).glob("checkpoints/*"))
    again = work(job, sparing)
    assert list(place.run_folder(job.key).glob("checkpoints/0*"))
    assert [again["scores"], again["epoch"]] == [plain["scores"], plain["epoch"]]
    epochs = [line["epoch"] for line in Run.open(sparing.run_folder(job.key)).log() if line["event"] == "epoch"]
    assert epochs == [1, 2, 3]


COMMAND = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
if __name__ == "__main__":
    import test_experiments_running as tests
    from teabert.experiments.jobs import Choices
    from teabert.experiments.running import How, run_table
    run_table(tests.long_table(Path({world!r}), 400), Choices(seeds=1), Path({out!r}))
"""


def test_workers_end_with_a_command_that_is_killed(world, tmp_path):
    script = tmp_path / "command.py"
    script.write_text(COMMAND.format(tests=str(Path(__file__).parent), world=str(world), out=str(tmp_path)))
    command = psutil.Popen([sys.executable, str(script)], stderr=subprocess.DEVNULL)
    while not begun(tmp_path):
        assert command.poll() is None
        time.sleep(0.05)
    workers = command.children(recursive=True)
    os.kill(command.pid, signal.SIGKILL)
    command.wait()
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert workers
    assert not alive


# the command


@pytest.fixture
def listed(monkeypatch, table):
    monkeypatch.setitem(TABLES, "toy", table)


def test_the_command_lists_tables_and_prints_one(listed, results):
    listing = CliRunner().invoke(cli.app, ["table", "--json"])
    assert json.loads(listing.stdout)["toy"]["rows"] == ["separate", "shared", "mood-only", "exploding"]
    arguments = ["table", "toy", "--only", "shared", "--seeds", "2", "--out", str(results.folder), "--quiet"]
    shown = CliRunner().invoke(cli.app, arguments)
    assert shown.exit_code == 0, shown.output
    assert "(0.400)" in shown.stdout
    assert "became nan" in shown.stdout
    printed = json.loads(CliRunner().invoke(cli.app, [*arguments, "--json"]).stdout)
    assert printed["rows"][1]["seeds"] == [11711, 11712]


def test_the_commands_exit_code_says_that_runs_failed(listed, results, monkeypatch):
    monkeypatch.setattr(running, "run_jobs", lambda jobs, place, ended, clock: None)
    arguments = ["table", "toy", "--only", "exploding", "--seeds", "2", "--out", str(results.folder), "--quiet"]
    shown = CliRunner().invoke(cli.app, arguments)
    assert shown.exit_code == 1
    assert "2 runs failed" in shown.output


# in pieces, under a time limit


def test_seeds_come_one_after_another_over_all_tables(listed, table, tmp_path, asked):
    other = Table("other", "Other", (table.rows[1], Row("again", table.rows[1].recipe, ("train.epochs=1",))), toys.TASKS)
    running.run_tables([table, other], CHOICES, tmp_path, How(write=False))
    seeds = [job.seed for job in asked]
    assert seeds == sorted(seeds)
    assert len({job.key for job in asked}) == len(asked) == 2 * (3 + 1 + 1 + 1 + 1)
    asked.clear()
    running.run_tables([table, other], CHOICES, tmp_path, How(only=["other/*", "mood-only"], write=False))
    assert {job.row for job in asked} == {"shared", "again", "mood-only"}
    asked.clear()
    running.run_tables([table, other], Choices(seeds=1), tmp_path, How(only=["toy/sep*/mood", "other/again"], write=False))
    assert [(job.row, job.part) for job in asked] == [("separate", "mood"), ("again", "")]
    assert not list(tmp_path.iterdir())


def test_no_run_begins_that_cannot_end_in_time(table):
    jobs = {job.row: job for job in jobs_of(table, table.rows[1:3], Choices(seeds=1))}
    clock = Clock(1.0, lambda job: {"shared": 1000, "mood-only": 100}[job.row])
    assert clock.fits(jobs["shared"])  # nothing is known yet
    clock.heard(jobs["mood-only"], 10.0)
    assert clock.fits(jobs["mood-only"])
    assert not clock.fits(jobs["shared"])  # 100 seconds at the same pace
    clock.heard(jobs["shared"], 30.0)
    assert clock.fits(jobs["shared"])
    assert not Clock(0.0).fits(jobs["shared"])
    assert Clock().fits(jobs["shared"])


def test_rows_that_no_run_could_tell_apart_are_done_once_and_said_to_be_the_same(world, tmp_path, notes):
    base = tiny.recipe(world, epochs=1, weight_decay=0, lr=1e-5)
    rows = (Row("plain", base), Row("barely", base, ("train.weight_decay=0.001",)))
    done = run_table(Table("toy", "A toy", rows, toys.TASKS), Choices(seeds=2), tmp_path, How(), notes)
    plain, barely = done.summary["rows"]
    assert plain["scores"] == barely["scores"]
    assert plain["seeds"] == barely["seeds"] == [11711, 11712]
    assert len(Results(tmp_path).by_key()) == 2
    assert "The same runs, done once: plain and barely." in (done.folder / "table.md").read_text()


def test_when_time_is_up_runs_at_work_are_ended_and_left_for_the_next_command(world, tmp_path, notes):
    table = long_table(world, epochs=4000)
    begun = time.monotonic()
    done = run_table(table, Choices(seeds=1), tmp_path, How(minutes=0.07), notes)
    assert time.monotonic() - begun < 60
    assert {row["name"]: row["missing"] for row in done.summary["rows"]} == {"first": 1, "second": 1}
    assert notes.said[-1] == "time is up: 2 runs are left for the same command to do"
    assert done.failed == ()


def test_tables_are_written_without_running_anything_and_results_without_writing(results, table, asked, tmp_path):
    done = run_table(table, Choices(seeds=3), results.folder, How(run=False))
    assert asked == []
    assert {row["name"]: row["missing"] for row in done.summary["rows"]} == {
        "separate": 3,
        "shared": 1,
        "mood-only": 1,
        "exploding": 1,
    }
    assert run_table(table, CHOICES, tmp_path / "new", How(write=False)).folders == ()
    assert not (tmp_path / "new").exists()
    with pytest.raises(UserError, match="leave nothing to do"):
        run_table(table, CHOICES, tmp_path, How(run=False, write=False))


def test_the_plan_counts_the_steps_that_training_takes(results, table, world, asked):
    found = {each.row: each for each in plan([table], {table.name: table.rows}, Choices(seeds=3), results)}
    assert {row: (each.done, each.failed, each.missing) for row, each in found.items()} == {
        "separate": (6, 0, 3),
        "shared": (2, 0, 1),
        "mood-only": (2, 0, 1),
        "exploding": (0, 2, 3),
    }
    for row in ("separate", "shared"):
        taken = 0
        for job in jobs_of(table, [table.row(row)], Choices(seeds=1)):
            log = Run.open(results.folder / "runs" / job.key).log()
            taken += max(line["step"] for line in log if line["event"] == "epoch")
        assert found[row].steps == taken
        assert found[row].steps_missing == taken
    assert found["exploding"].steps_missing == 3 * found["exploding"].steps
    assert found["shared"].learns == "all"


def test_the_short_table_has_the_rows_that_ran_and_what_must_be_said(done, table, tmp_path):
    text = (done.folder / "short.md").read_text()
    shown = rows_of(done)["shared"]["scores"]
    assert f"| shared | {shown['mood']['mean']:.3f} ± {shown['mood']['deviation']:.3f} (0.400) |" in text
    assert "exploding" not in text
    assert "over 2 seeds; in brackets the paper's. 1 of 4 rows have no numbers." in text
    assert "Training rows: mood 24" in text
    empty = run_table(table, CHOICES, tmp_path, How(run=False))
    assert "4 of 4 rows have no numbers." in (empty.folder / "short.md").read_text()
