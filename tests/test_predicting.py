"""`teabert predict` over files: any size, any mix of tasks, bad rows in their place; after a kill on to the same bytes."""

import csv
import io
import json
import os
import random
import subprocess
import sys
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import pytest

from predictors import write_run
from teabert import cli, load, predicting
from teabert.answers import Answer
from teabert.errors import UserError
from teabert.predicting import Given, Predicting, Wanted
from teabert.progress import Progress, Quiet

PROGRAM = Path(__file__).parent / "killed_predicting.py"
SINGLES, PAIRS = ("mood", "stars", "tags", "told"), ("same", "near", "kin", "heard")
WORDS = ["the", "film", "was", "good", "bad", "dull", "nice", "how", "do", "you", "learn", "why", "cook", "rice"]


@pytest.fixture(scope="module")
def run(tmp_path_factory, text):
    return write_run(tmp_path_factory.mktemp("runs") / "run", text, "attention")


@pytest.fixture(scope="module")
def predictor(run):
    return load(run)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(predicting, "ANSWERS", 7)
    monkeypatch.setattr(predicting, "ROWS", 7)


def sentences(count, seed=0):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 12))) for _ in range(count)]


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_csv(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def lines_of(run, source, task, form="jsonl", **wanted):
    found = "".join(Predicting(run, Given(source=str(source)), Wanted(task, form, **wanted), Quiet()).lines())
    return [json.loads(line) for line in found.splitlines()] if form == "jsonl" else found


def rows_of(found, delimiter=","):
    return list(csv.DictReader(io.StringIO(found), delimiter=delimiter))


class Heard(Progress):
    """Keeps what is said"""

    def __init__(self):
        self.said, self.bars = [], []

    def note(self, text):
        self.said.append(text)

    @contextmanager
    def bar(self, title, total, done=0):
        moved = []
        self.bars.append((title, total, done, moved))
        yield moved.append


def test_every_row_of_a_file_is_answered_in_its_place(run, predictor, tmp_path):
    texts = sentences(30)
    source = write_jsonl(tmp_path / "rows.jsonl", [{"sentence": text, "label": "nonsense"} for text in texts])
    found = lines_of(run, source, "mood")
    assert [line["id"] for line in found] == [str(number) for number in range(1, 31)]
    for text, line in zip(texts, found, strict=True):
        (answer,) = predictor.predict(text, task="mood")
        assert line["label"] == answer.label
        assert line["probabilities"] == pytest.approx(answer.probabilities, abs=1e-5)


def test_all_tasks_answer_what_they_take(run, tmp_path):
    rows = [{"sentence": "a film"}, {"one": "a film", "two": "a plot"}, {"sentence": "x", "one": "y", "two": "z"}, {"a": 1}]
    found = lines_of(run, write_jsonl(tmp_path / "rows.jsonl", rows), "all")
    assert [set(line.get("answers", ())) for line in found] == [set(SINGLES), set(PAIRS), {*SINGLES, *PAIRS}, set()]
    assert found[3] == {"error": "it has the texts of none of the tasks.", "id": "4"}
    assert set(found[0]["answers"]["mood"]) == {"label", "probability", "probabilities"}
    assert set(found[1]["answers"]["near"]) == {"score"}


def test_columns_of_any_task_serve_every_task(run, predictor, tmp_path):
    rows = [{"text": "a film"}, {"text1": "a film", "text2": "a plot"}]
    found = lines_of(run, write_jsonl(tmp_path / "rows.jsonl", rows), "all")
    assert [set(line["answers"]) for line in found] == [set(SINGLES), set(PAIRS)]
    (answer,) = predictor.predict(("a film", "a plot"), task="same")
    assert found[1]["answers"]["same"]["probabilities"] == pytest.approx(answer.probabilities, abs=1e-5)


@pytest.mark.parametrize(("form", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_all_tasks_of_a_table_have_columns_of_their_own(run, tmp_path, form, delimiter):
    rows = [{"sentence": text, "id": number} for number, text in enumerate(sentences(9))] + [{"sentence": "", "id": 9}]
    source = write_csv(tmp_path / "rows.csv", rows)
    heard = Heard()
    asked = Predicting(run, Given(source=str(source)), Wanted("all", form), heard)
    found = rows_of("".join(asked.lines()), delimiter)
    columns = ["id", "mood", "mood.probability", "stars", "stars.probability", "tags", "told", "told.probability", "error"]
    assert list(found[0]) == columns
    assert "left out" in heard.said[0]
    assert all(f"'{name}'" in heard.said[0] for name in PAIRS)
    assert (asked.rows, asked.bad) == (10, 1)
    answered = lines_of(run, source, "all")
    for row, line in zip(found[:-1], answered[:-1], strict=True):
        assert row["mood"] == line["answers"]["mood"]["label"]
        assert float(row["mood.probability"]) == line["answers"]["mood"]["probability"]
        assert row["tags"] == "|".join(line["answers"]["tags"]["label"])
        assert row["error"] == ""
    assert [found[-1][name] for name in columns[1:-1]] == [""] * 7
    assert found[-1]["error"] == "the text in column 'sentence' is empty."
    assert all(
        answer == {"error": "the text in column 'sentence' is empty."} for answer in answered[-1]["answers"].values()
    )


def test_one_task_s_table_has_the_same_columns_for_every_kind(run, tmp_path):
    source = write_csv(tmp_path / "rows.csv", [{"one": "a film", "two": "a plot"}, {"one": "", "two": "b"}])
    scored, refused = rows_of(lines_of(run, source, "near", "csv"))
    assert float(scored["answer"])
    assert (scored["probability"], scored["error"]) == ("", "")
    assert refused == {"id": "3", "answer": "", "probability": "", "error": "the text in column 'one' is empty."}


def test_several_tasks_may_be_named(run, tmp_path):
    source = write_jsonl(tmp_path / "rows.jsonl", [{"sentence": "a film"}])
    assert list(lines_of(run, source, "stars, mood")[0]["answers"]) == ["stars", "mood"]


def test_bad_rows_are_answered_by_an_error_in_their_place(run, tmp_path):
    source = tmp_path / "rows.csv"
    source.write_bytes(b'sentence,x\na film,1\n,2\nonly\n"a"b,3\n\xff,4\n7,5\n')
    asked = Predicting(run, Given(source=str(source)), Wanted("mood"), Quiet())
    found = [json.loads(line) for line in "".join(asked.lines()).splitlines()]
    assert [line["id"] for line in found] == ["2", "3", "4", "5", "6", "7"]
    assert ["error" in line for line in found] == [False, True, True, True, True, False]
    assert found[1] == {"task": "mood", "error": "the text in column 'sentence' is empty.", "id": "3"}
    assert (asked.rows, asked.bad) == (6, 4)


def test_rows_are_named_by_their_id_column(text, tmp_path):
    named = {"mood": {"texts": "sentence", "kind": "classes", "labels": ["a", "b"], "id": "key"}}
    run = write_run(tmp_path / "run", text, tasks=named)
    rows = [{"sentence": "a film", "key": " AB\ud83d "}, {"sentence": "a film", "key": None}, {"sentence": 5, "key": 7}]
    found = lines_of(run, write_jsonl(tmp_path / "rows.jsonl", rows), "mood")
    assert [line["id"] for line in found] == ["ab?", "2", "7"]
    assert all("label" in line for line in found)


def test_parquet_is_answered_row_by_row(run, tmp_path):
    import pyarrow
    import pyarrow.parquet

    texts = [*sentences(20), None]
    pyarrow.parquet.write_table(pyarrow.table({"sentence": texts}), tmp_path / "rows.parquet")
    heard = Heard()
    found = list(Predicting(run, Given(source=str(tmp_path / "rows.parquet")), Wanted("mood"), heard).lines())
    answers = [json.loads(line) for line in "".join(found).splitlines()]
    assert ["error" in answer for answer in answers] == [False] * 20 + [True]
    assert heard.bars == [(f"answering {tmp_path / 'rows.parquet'}", 21, 0, [7, 7, 7])]


def test_answer_whose_probability_is_low_is_withheld(run, tmp_path):
    source = write_jsonl(tmp_path / "rows.jsonl", [{"sentence": text} for text in sentences(40)])
    plain, careful = lines_of(run, source, "mood"), lines_of(run, source, "mood", abstain=0.8)
    withheld = [line for line in plain if line["probability"] < 0.8]
    assert 0 < len(withheld) < 40
    for before, after in zip(plain, careful, strict=True):
        if before in withheld:
            assert after == before | {"label": None, "abstained": True}
        else:
            assert after == before
    table = rows_of(lines_of(run, source, "mood", "csv", abstain=0.8))
    assert [row["answer"] == "" for row in table] == [line in withheld for line in plain]
    assert all(row["probability"] for row in table)


# after a kill


def written(run, source, target, task, progress=None, **wanted):
    """The file's bytes, its rows and the bad ones among them"""
    chosen = Wanted(task, predicting.usual_form(target), **wanted)
    asked = Predicting(run, Given(source=str(source)), chosen, progress or Quiet())
    asked.write(target)
    return target.read_bytes(), asked.rows, asked.bad


def kill(run, source, target, task, number):
    command = [sys.executable, PROGRAM, run, task, source, target, str(number)]
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    ("name", "task", "number"), [("out.jsonl", "all", 6), ("out.csv", "mood", 9), ("out.tsv", "same,near", 2)]
)
def test_killed_in_the_middle_of_writing_it_goes_on_to_the_same_bytes(run, tmp_path, name, task, number):
    rows = [{"sentence": text, "one": text, "two": "rice"} for text in sentences(31)]
    rows[5] = {"sentence": "", "one": "", "two": ""}
    source = write_csv(tmp_path / "rows.csv", rows)
    (tmp_path / "whole").mkdir()
    whole = written(run, source, tmp_path / "whole" / name, task)
    assert whole[1:] == (31, 1)
    killed = kill(run, source, tmp_path / name, task, number)
    assert killed.returncode == -9, killed.stderr
    assert not (tmp_path / name).exists()
    heard = Heard()
    assert written(run, source, tmp_path / name, task, heard) == whole
    before = 7 * ((number - 2) // 2)  # the journal's first line, then two writes a chunk
    assert heard.said == ([f"{before} rows were answered before; going on behind them"] if before else [])
    assert heard.bars[0][2:] == (before, [7] * ((28 - before) // 7) + [3])
    assert sorted(os.listdir(tmp_path)) == sorted([name, "rows.csv", "whole"])


@pytest.fixture
def stopped(run, tmp_path, monkeypatch):
    """A file whose answering was interrupted, and what it was made of"""
    source = write_jsonl(tmp_path / "rows.jsonl", [{"sentence": text} for text in sentences(20)])
    answers = load(run).answers

    def interrupt(self, requests, abstain=None, progress=None):
        if requests[0].id != "1":
            raise KeyboardInterrupt
        return answers(requests, abstain)

    with monkeypatch.context() as patch:
        patch.setattr("teabert.predictor.Predictor.answers", interrupt)
        with pytest.raises(KeyboardInterrupt):
            written(run, source, tmp_path / "out.jsonl", "mood")
    return source


def test_interrupted_answers_go_on(run, tmp_path, stopped):
    found = written(run, stopped, tmp_path / "out.jsonl", "mood")
    assert found == written(run, stopped, tmp_path / "other.jsonl", "mood")


def test_other_answers_are_not_mixed_into_an_unfinished_file(run, tmp_path, stopped, text):
    target = tmp_path / "out.jsonl"
    with pytest.raises(UserError, match="begun with another tasks"):
        written(run, stopped, target, "stars")
    with pytest.raises(UserError, match="begun with another abstain"):
        written(run, stopped, target, "mood", abstain=0.5)
    other = write_run(tmp_path / "other", text, "gate")
    with pytest.raises(UserError, match="begun with another run"):
        written(other, stopped, target, "mood")
    stopped.write_text(stopped.read_text() + '{"sentence": "one more"}\n')
    with pytest.raises(UserError, match="begun with another input"):
        written(run, stopped, target, "mood")


def test_a_file_of_any_size_is_answered_in_little_memory(run, tmp_path, monkeypatch):
    monkeypatch.setattr(predicting, "ROWS", 100)
    source = tmp_path / "rows.jsonl"
    with source.open("w") as file:
        file.writelines(json.dumps({"sentence": f"the film {number} " + "x" * 1200}) + "\n" for number in range(5000))

    def answers(self, requests, abstain=None, progress=None):
        return [Answer("mood", "good", None, 0.9, {"good": 0.9, "bad": 0.1}, request.id) for request in requests]

    monkeypatch.setattr("teabert.predictor.Predictor.answers", answers)
    asked = Predicting(run, Given(source=str(source)), Wanted("mood"), Quiet())
    tracemalloc.start()
    asked.write(tmp_path / "out.jsonl")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert asked.rows == 5000
    assert source.stat().st_size > 6_000_000
    assert peak < 2_000_000


def test_texts_that_are_cut_are_said_to_be_once(run, tmp_path):
    source = write_jsonl(tmp_path / "rows.jsonl", [{"sentence": "film " * 99}] * 20)
    heard = Heard()
    list(Predicting(run, Given(source=str(source)), Wanted("mood"), heard).lines())
    assert heard.said == ["some texts are longer than their task takes: they are cut"]
    assert len(heard.bars) == 1


def test_the_bar_knows_about_how_many_rows_there_are(run, tmp_path):
    source = write_jsonl(tmp_path / "rows.jsonl", [{"sentence": "the film was good"}] * 40)
    heard = Heard()
    list(Predicting(run, Given(source=str(source)), Wanted("mood"), heard).lines())
    assert heard.bars == [(f"answering {source}", 40, 0, [7] * 5 + [5])]


# what is refused


@pytest.mark.parametrize(
    ("name", "content", "wanted", "message"),
    [
        (
            "rows.csv",
            "sentance,x\na,1\n",
            Wanted("mood"),
            r"has no 'sentence', which task 'mood' reads.*'sentance', 'x'.*'text'",
        ),
        ("rows.jsonl", '{"a": "b"}\n', Wanted("mood"), "has no 'sentence'"),
        ("rows.csv", "a,b\n1,2\n", Wanted("all"), "has no 'sentence'"),
        ("rows.csv", "sentence\n", Wanted("mood"), "holds no rows"),
        ("rows.jsonl", "\n", Wanted("all"), "holds no rows"),
        ("rows.csv", "sentence\na\n", Wanted("moods"), "Unknown task 'moods'"),
        ("rows.csv", "sentence\na\n", Wanted("mood,moods"), "Unknown task 'moods'"),
        ("rows.csv", "sentence\na\n", Wanted(None), "Say which task"),
        ("rows.csv", "sentence\na\n", Wanted("mood", abstain=2), "2 is not between 0 and 1"),
        ("rows.csv", "sentence\na\n", Wanted("tags", abstain=0.5), "--abstain is for tasks that answer with one label"),
        ("rows.csv", "sentence\na\n", Wanted("all", "cs224n"), "Name it with --task"),
        ("rows.csv", "sentence\na\n", Wanted("mood", "cs224n"), "none of the course's"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_words(run, tmp_path, name, content, wanted, message):
    (tmp_path / name).write_text(content)
    target = tmp_path / "out"
    with pytest.raises(UserError, match=message):
        Predicting(run, Given(source=str(tmp_path / name)), wanted, Quiet()).write(target)
    assert os.listdir(tmp_path) == [name]


def test_rows_of_a_split_are_those_of_one_task(run):
    with pytest.raises(UserError, match="--split is for the rows of one task"):
        Predicting(run, Given(split="dev"), Wanted("all"), Quiet())


# the command line


@pytest.fixture
def call(monkeypatch, capsys):
    """teabert predict ARGUMENTS -> exit code, standard output, standard error"""

    def command(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "argv", ["teabert", "predict", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *capsys.readouterr()

    return command


def test_command_answers_a_file_and_says_what_it_could_not(run, call, tmp_path):
    source = write_csv(tmp_path / "rows.csv", [{"sentence": text} for text in [*sentences(9), "", ""]])
    target = tmp_path / "out.tsv"
    code, out, err = call(run, "--task", "all", "--input", source, "--out", target, "--abstain", "0.6", "--quiet")
    assert (code, out) == (0, "")
    assert f"Written: {target}" in err
    assert "2 of 11 rows could not be answered" in err
    assert len(rows_of(target.read_text(), "\t")) == 11


def test_command_that_is_interrupted_says_how_to_go_on(run, call, tmp_path, monkeypatch):
    def interrupt(self, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(Predicting, "write", interrupt)
    source = write_csv(tmp_path / "rows.csv", [{"sentence": "a"}])
    code, _, err = call(run, "--task", "mood", "--input", source, "--out", tmp_path / "out.csv")
    assert code == 130
    assert "the same command goes on" in err


@pytest.mark.parametrize(
    ("task", "stdin", "expected"),
    [
        ("mood", b"a film\tand a plot\r\nrice", [None, None]),
        ("same", b"a film\ta plot\nrice\n", [None, "it takes two texts with a TAB between, got 1."]),
        ("same", b"a\tb\tc\n\n", ["it takes two texts with a TAB between, got 3.", "it takes two texts"]),
        ("mood", b"\xff film\n\n", [None, "is empty"]),
    ],
)
def test_lines_of_standard_input_are_answered_one_by_one(run, call, task, stdin, expected):
    code, out, err = call(run, "--task", task, "--input", "-", "--quiet", stdin=stdin)
    assert code == 0, err
    found = [json.loads(line) for line in out.splitlines()]
    assert [line["id"] for line in found] == [str(number) for number in range(1, len(expected) + 1)]
    for line, message in zip(found, expected, strict=True):
        assert "label" in line if message is None else message in line["error"]


def test_lines_of_standard_input_go_to_the_tasks_that_take_them(run, call, tmp_path):
    target = tmp_path / "out.jsonl"
    for stdin in (b"rice\n" * 9, b"a film\na film\ta plot\n"):
        call(run, "--task", "all", "--input", "-", "--out", target, "--quiet", stdin=stdin)
    found = [json.loads(line) for line in target.read_text().splitlines()]
    assert [set(line["answers"]) for line in found] == [set(SINGLES), set(PAIRS)]


@pytest.mark.parametrize(
    ("task", "texts", "tasks"),
    [("all", ["a film"], [SINGLES]), ("all", ["a", "b"], [PAIRS]), ("same,near", ["a", "b"], [("same", "near")])],
)
def test_texts_of_the_command_line_go_to_the_tasks_that_take_them(run, call, task, texts, tasks):
    options = [word for text in texts for word in ("--text", text)]
    code, out, err = call(run, "--task", task, *options)
    assert code == 0, err
    assert [set(json.loads(line)["answers"]) for line in out.splitlines()] == [set(names) for names in tasks]


def test_text_of_the_command_line_that_cannot_be_answered_is_refused(run, call):
    code, out, err = call(run, "--task", "same", "--text", "a", "--quiet")
    assert (code, out) == (2, "")
    assert "takes a pair: give --text twice, got 1" in err


@pytest.mark.parametrize(
    ("output", "form"), [("a.csv", "csv"), ("a.TSV", "tsv"), ("a.jsonl", "jsonl"), ("a.txt", "jsonl"), (None, "jsonl")]
)
def test_form_is_that_of_the_output_file_s_name(output, form):
    assert predicting.usual_form(None if output is None else Path(output)) == form
