"""`teabert export` as a user meets it: folders, notes, tables, refusals."""

import json
import subprocess
import sys

import pytest

from exported import make_run, pair, single
from teabert import cli
from teabert.exports import EXPORTS, export
from teabert.files import UNFINISHED

TASKS = {"mood": single("classes"), "same": pair("binary", "mean", True, answer="difference")}


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
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs") / "run", TASKS, injection="lora")


@pytest.mark.parametrize("to", EXPORTS)
def test_every_format_is_written_where_it_says(call, run, tmp_path, to):
    task = ["--task", "mood"] if EXPORTS[to].single else []
    code, out, err = call("export", run.path, "--to", to, *task, "--out", tmp_path / "out", "--quiet")
    assert (code, err) == (0, "")
    assert f"Written: {tmp_path / 'out'}" in out
    assert (tmp_path / "out" / "README.md").is_file()
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_help_names_every_format():
    done = subprocess.run([sys.executable, "-m", "teabert.cli", "export", "--help"], capture_output=True, text=True)
    assert all(to in done.stdout for to in EXPORTS)


def test_export_is_written_inside_the_run_where_no_folder_is_named(call, tmp_path):
    run = make_run(tmp_path / "run", TASKS)
    code, out, _ = call("export", run.path, "--to", "hf", "--task", "mood")
    assert code == 0
    assert f"Written: {run.path / 'exports' / 'hf-mood'}" in out.replace("\n", "")
    assert (run.path / "exports" / "hf-mood" / "model.safetensors").is_file()


def test_int8_prints_a_table_of_what_it_costs(call, run, tmp_path):
    code, out, err = call("export", run.path, "--to", "onnx", "--int8", "--out", tmp_path / "out", "--quiet")
    assert (code, err) == (0, "")
    assert "points lost" in out
    assert "no dev rows" in out
    assert "model-int8.onnx: " in out


def test_json_is_for_programs(call, run, tmp_path):
    code, out, _ = call(
        "export", run.path, "--to", "peft", "--task", "mood", "--out", tmp_path / "out", "--json", "--quiet"
    )
    found = json.loads(out)
    assert (code, found["path"], found["losses"]) == (0, str(tmp_path / "out"), [])
    assert "adapter" in found["notes"][0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--to", "tensorflow"), "Unknown export format 'tensorflow'. Known: hf, hub, onnx, peft."),
        (("--to", "hf"), "Say which task. This model has: mood, same."),
        (("--to", "hf", "--task", "moods"), "Unknown task 'moods'. Did you mean 'mood'?"),
        (("--to", "hf", "--task", "same"), "'difference'"),
        (("--to", "hub", "--task", "mood"), "leave out --task"),
        (("--to", "hf", "--task", "mood", "--int8"), "--int8 goes with --to onnx"),
    ],
)
def test_refusals_are_one_message_and_exit_code_two(call, run, tmp_path, arguments, message):
    code, out, err = call("export", run.path, *arguments, "--out", tmp_path / "out")
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten_but_an_empty_folder_is_filled(call, run, tmp_path):
    mine, empty, file = tmp_path / "mine", tmp_path / "empty", tmp_path / "file"
    mine.mkdir()
    (mine / "notes.txt").write_text("keep")
    empty.mkdir()
    file.write_text("keep")
    for taken in (mine, file):
        code, _, err = call("export", run.path, "--to", "hub", "--out", taken)
        assert code == 2
        assert "overwrites nothing" in err
    assert [each.name for each in mine.iterdir()] == ["notes.txt"]
    code, _, err = call("export", run.path, "--to", "hub", "--out", empty)
    assert code == 0, err
    assert (empty / "recipe.yaml").is_file()


def test_folder_that_cannot_be_written_is_refused_in_words(call, run, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = call("export", run.path, "--to", "hub", "--out", tmp_path / "file" / "out")
    assert code == 2
    assert "cannot be written" in err


def test_failing_export_leaves_nothing_behind(run, tmp_path, monkeypatch):
    from teabert.exports import hub

    def fail(*given):
        raise RuntimeError("in the middle")

    monkeypatch.setattr(hub, "card", fail)
    with pytest.raises(RuntimeError, match="in the middle"):
        export(run.path, "hub", out=tmp_path / "out")
    assert not [file for file in tmp_path.iterdir() if file.name.startswith(UNFINISHED) or file.name == "out"]


def test_folder_that_is_no_run_is_refused_in_words(call, tmp_path):
    code, _, err = call("export", tmp_path / "absent", "--to", "hub")
    assert code == 2
    assert "There is no run folder" in err
