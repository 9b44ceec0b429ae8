"""The command line as a user meets it: real arguments in, text, files and exit codes out."""

import csv
import json
import shutil
import subprocess
import sys

import pytest
import torch
import yaml

import tiny
from teabert import cli, config
from teabert.injections import INJECTIONS
from teabert.tasks import TASKS


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tiny.write_world(tmp_path_factory.mktemp("world"))
    (folder / "tiny.yaml").write_text(yaml.safe_dump(tiny.recipe(folder)))
    return folder


@pytest.fixture
def call(monkeypatch, capsys):
    """teabert ARGUMENTS -> exit code, standard output, standard error"""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["teabert", *map(str, arguments)])
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture(scope="module")
def run(world):
    from teabert import train

    return train(world / "tiny.yaml", world / "run").path


def test_train_prints_scores_of_every_task_and_the_run_folder(call, world, tmp_path):
    code, out, err = call("train", world / "tiny.yaml", "--out", tmp_path / "run", "--set", "train.epochs=1")
    assert code == 0, err
    assert all(task in out for task in ("mood", "same", "near"))
    assert "course, (1+r)/2" in out
    assert "the best by mean on dev" in out
    assert str(tmp_path / "run") in out.replace("\n", "")
    assert "epoch 1" in err


def test_train_and_evaluate_agree_in_json(call, world, tmp_path):
    code, out, _ = call("train", world / "tiny.yaml", "--out", tmp_path / "run", "--json", "--quiet")
    trained = json.loads(out)
    code_again, out, err = call("evaluate", tmp_path / "run", "--json", "--quiet")
    assert (code, code_again, err) == (0, 0, "")
    assert json.loads(out)["tasks"] == trained["tasks"]


def test_train_resumes_a_run_and_refuses_to_overwrite_one(call, world, run):
    code, _, err = call("train", world / "tiny.yaml", "--out", run)
    assert code == 2
    assert "--resume" in err
    code, _, err = call("train", world / "tiny.yaml", "--out", run, "--resume", "--quiet")
    assert code == 0, err


def test_predict_answers_a_text_as_json(call, run):
    code, out, err = call("predict", run, "--task", "mood", "--text", "the film was great", "--quiet")
    assert code == 0, err
    answer = json.loads(out)
    assert answer["task"] == "mood"
    assert answer["label"] in "01234"
    code, out, _ = call("predict", run, "--task", "same", "--text", "a dog", "--text", "the dog", "--quiet")
    assert json.loads(out)["label"] in "01"


def test_predict_reads_a_file_and_writes_a_file(call, run, world, tmp_path):
    target = tmp_path / "answers.csv"
    source = world / "data" / "near-dev.tsv"
    code, out, _ = call(
        "predict", run, "--task", "near", "--input", source, "--output", target, "--format", "csv", "--quiet"
    )
    assert (code, out) == (0, "")
    rows = list(csv.DictReader(target.open()))
    assert [row["id"] for row in rows] == [str(number) for number in range(24)]
    assert all(float(row["answer"]) for row in rows)


def test_predict_reads_lines_from_standard_input(run):
    command = [sys.executable, "-m", "teabert.cli", "predict", str(run), "--task", "same", "--input", "-", "--quiet"]
    done = subprocess.run(command, input="a dog\tthe dog\nrice\tcar\n", capture_output=True, text=True, check=True)
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["1", "2"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "exactly one of --text, --input"),
        (["--text", "a", "--split", "dev"], "exactly one of"),
        (["--input", "absent.csv"], "absent.csv cannot be read"),
        (["--text", ""], "empty"),
        (["--text", "a", "--format", "cs224n"], "none of the course's"),
        (["--split", "test"], "there is no file"),
    ],
)
def test_predict_says_what_is_wrong_in_one_message(call, run, arguments, message):
    code, out, err = call("predict", run, "--task", "mood", "--quiet", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("teabert: ")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("tasks: [sst5x]", "Unknown task 'sst5x'. Did you mean 'sst5'?"),
        ("tasks: [sst]\ntrain: {epohs: 3}", "unknown key 'train.epohs'. Did you mean 'epochs'?"),
        ("tasks: [sst]\nencodr: minilm", "unknown key 'encodr'. Did you mean 'encoder'?"),
        ("tasks: [sst]\ntrain: {epochs: many}", "train.epochs: 'many' does not fit"),
        ("tasks: [sst, stsb, sts]", "never trained together"),
        ("- sst", "must hold a mapping"),
        ("", "must hold a mapping"),
        ("tasks: {sst: {head: {read: middle}}}", "Unknown read 'middle'"),
        ("tasks: [sst]\ninjection: magic", "Unknown injection 'magic'"),
        ("tasks: [sst]\nsampling: {strategy: blocks}", "mixed: false"),
    ],
)
def test_bad_recipe_is_one_message_and_exit_code_2(call, tmp_path, recipe, message):
    (tmp_path / "bad.yaml").write_text(recipe)
    code, out, err = call("train", tmp_path / "bad.yaml", "--out", tmp_path / "run")
    assert (code, out) == (2, "")
    assert message in err
    assert not (tmp_path / "run").exists()


def test_debug_shows_the_traceback(tmp_path):
    command = [sys.executable, "-m", "teabert.cli", "--debug", "train", "absent.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" in done.stderr
    assert "UserError" in done.stderr


def test_config_prints_a_recipe_that_loads_back_equal(call, world, tmp_path):
    code, out, _ = call("config", world / "tiny.yaml", "--set", "train.lr=3e-5")
    assert code == 0
    (tmp_path / "again.yaml").write_text(out)
    again = config.load_recipe(tmp_path / "again.yaml")
    assert again == config.load_recipe(world / "tiny.yaml", ["train.lr=3e-5"])
    assert again.lr == 3e-5


def test_set_false_leaves_a_task_out(call, world):
    _, out, _ = call("config", world / "tiny.yaml", "--set", "tasks.same=false")
    assert list(yaml.safe_load(out)["tasks"]) == ["mood", "near"]


@pytest.mark.parametrize("command", ["tasks", "encoders", "data", "doctor"])
def test_tables_print_for_people_and_as_json(call, command):
    code, out, _ = call(command)
    assert code == 0
    assert len(out.splitlines()) > 4
    code, out, _ = call(command, "--json")
    assert code == 0
    assert len(json.loads(out)) > 4


def test_doctor_says_which_fast_features_are_missing_and_why(call, monkeypatch):
    monkeypatch.setattr("teabert.device.computes_bf16", lambda device: False)
    monkeypatch.setattr("teabert.device.pick_device", lambda: torch.device("cpu"))
    _, out, _ = call("doctor", "--json")
    found = {row["what"]: row["found"] for row in json.loads(out)}
    assert found["device"].startswith("CPU, ")
    assert found["precision"] == "auto means fp32: this processor has neither AVX512-BF16 nor AMX"
    assert found["recorded steps"] == "no: there is no GPU"
    assert "oneDNN" in found


def test_tasks_table_lists_every_task(call):
    _, out, _ = call("tasks", "--json")
    assert [task["name"] for task in json.loads(out)] == list(TASKS)


def test_a_task_is_added_listed_used_and_removed(call, world, run, tmp_path):
    run = shutil.copytree(run, tmp_path / "run")
    facts = {"tasks": {"fresh": tiny.recipe(world)["tasks"]["mood"]}, "train": {"epochs": 1}, "data": str(world / "data")}
    (tmp_path / "fresh.yaml").write_text(yaml.safe_dump(facts))
    code, out, _ = call("add-task", run, tmp_path / "fresh.yaml", "--set", "train.lr=0.01", "--quiet")
    assert (code, "fresh.task.safetensors" in out) == (0, True)
    _, out, _ = call("tasks", run, "--json")
    came = {task["name"]: task["came"] for task in json.loads(out)}
    assert came == dict.fromkeys(("mood", "same", "near"), "trained with the run") | {"fresh": "added"}
    code, out, _ = call("predict", run, "--task", "fresh", "--text", "the film is good")
    assert (code, json.loads(out)["task"]) == (0, "fresh")
    assert call("remove-task", run, "fresh")[0] == 0
    code, _, err = call("remove-task", run, "fresh")
    assert (code, "Unknown task 'fresh'" in err) == (2, True)


def test_parameters_are_counted_for_people_and_as_json(call, world):
    arguments = ["parameters", "task-attention", "--encoder", str(world / "encoder")]
    code, out, _ = call(*arguments)
    assert code == 0
    assert "head, as in Table 2" in out
    _, out, _ = call(*arguments, "--json")
    found = json.loads(out)
    assert found["total"] == found["encoder"] + found["injection"] + found["heads"]
    assert [task["table"] for task in found["tasks"]] == [8 * 32**2 + 160, 5 * 32**2 + 32 * 768, 15 * 32**2 + 32 * 3072]


def test_entropy_of_every_start_is_printed(call, world, monkeypatch):
    data = world / "data"
    (data / "sts-dev.csv").write_text("id\tsentence1\tsentence2\tsimilarity\n0\tthe dog runs\tthe child sleeps\t1.0\n")
    monkeypatch.setenv("TEABERT_DATA", str(data))
    code, out, _ = call("entropy", "--task", "sts", "--encoder", str(world / "encoder"), "--seeds", "1", "--json")
    assert code == 0
    assert {line["start"]: round(line["entropy"], 3) for line in json.loads(out)}["mean"] == 1.0


def test_methods_table_counts_and_measures_every_injection(call, world):
    code, out, err = call("methods", "--encoder", world / "encoder", "--tasks", "4", "--json", "--quiet")
    assert code == 0, err
    found = {row["method"]: row for row in json.loads(out)}
    assert list(found) == list(INJECTIONS)
    assert found["input"]["parameters"] == 4 * 32
    assert found["attention"]["per_task"] == 2 * 3 * 32
    assert found["none"]["time"] == 1
    assert {row["exact_at_start"] for name, row in found.items() if name not in ("activated", "prefix")} == {True}
    assert all(row["mixed_batch"] for row in found.values())
    assert all(row["lowest"] <= row["time"] <= row["highest"] for row in found.values())
    code, out, _ = call("methods", "--encoder", world / "encoder", "--quiet")
    assert "lora" in out


def test_parameters_at_the_papers_size_are_counted_without_their_encoder(call, monkeypatch, tmp_path):
    monkeypatch.setenv("TEABERT_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code, out, err = call("parameters", "task-attention", "--encoder", "bert-base-uncased", "--json")
    assert code == 0, err
    assert {row["task"]: row["table"] for row in json.loads(out)["tasks"]} == {
        "sst": 4_722_432,
        "quora": 3_538_944,
        "sts": 11_206_656,
    }


def test_layer_the_encoder_does_not_have_is_refused_before_anything_is_written(call, world, tmp_path):
    change = "injection={method: attention, layers: 1-2}"
    code, _, err = call("train", world / "tiny.yaml", "--out", tmp_path / "run", "--set", change, "--quiet")
    assert code == 2
    assert "injection" in err
    assert not (tmp_path / "run").exists()


def test_encoders_are_unknown_by_a_wrong_name_and_local_by_a_folder(call, world):
    code, out, _ = call("encoders", "get", world / "encoder")
    assert (code, out.strip().replace("\n", "")) == (0, str(world / "encoder"))


def test_version_is_the_package_s(call):
    from importlib.metadata import version

    assert call("--version")[1].strip() == f"teabert {version('teabert')}"
