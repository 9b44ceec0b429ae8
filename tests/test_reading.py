import csv
import io
import json
import math
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from teabert.errors import UserError
from teabert.tasks import TASKS, make_task
from teabert.tasks.reading import FORMATS, Table, clean, locate, make_example, read_file, read_split

SINGLE = {"texts": "sentence", "kind": "classes", "labels": ["bad", "good"], "files": "own-{split}.csv"}
PAIR = SINGLE | {"texts": ["one", "two"]}
SCORE = {"texts": "sentence", "kind": "score", "range": [0, 5], "files": "own-{split}.csv"}
SEVERAL = SINGLE | {"kind": "multilabel", "labels": ["x", "y", "z"]}


def own(given=SINGLE, **changes):
    return make_task("own", given | changes, "own")


def write(folder, content, name="rows.csv"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(folder, content, task=None, name="rows.csv", labelled=True):
    return read_file(task or own(), write(folder, content, name), labelled)


def pairs(table):
    return [(*example.texts, example.label) for example in table.examples]


def refused(folder, content, task=None, name="rows.csv"):
    """The message, without the folder"""
    path = write(folder, content, name)
    with pytest.raises(UserError) as caught:
        read_file(task or own(), path, labelled=True)
    message = str(caught.value)
    assert message.startswith(str(path))
    return message.removeprefix(f"{folder}/")


# quirks of the course's files


def test_a_csv_may_be_separated_by_tabs(tmp_path):
    content = "\tid\tsentence\tsentiment\n0\ta1\t It 's lovely , really .\t3\n1\tB2 \t``Quoted'' film\t0\n"
    task = make_task("sst", None, "sst")
    table = read(tmp_path, content, task)
    assert [(e.name, *e.texts, e.label) for e in table.examples] == [
        ("a1", "it 's lovely , really .", 3),
        ("b2", "``quoted'' film", 0),
    ]


@pytest.mark.parametrize("separator", [",", "\t", ";"])
@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv", "rows.txt"])
def test_the_separator_is_found_whatever_the_ending(tmp_path, separator, name):
    content = f"id{separator}sentence{separator}label\n1{separator}nice{separator}good\n"
    assert pairs(read(tmp_path, content, name=name)) == [("nice", 1)]


def test_doubled_quotes_inside_a_cell_are_one(tmp_path):
    content = 'sentence,label\n"""Will """"this"""" work?""",good\n"a, b",bad\n'
    assert pairs(read(tmp_path, content)) == [('"Will ""this"" work?"', 1), ("a, b", 0)]


def test_quotes_can_be_plain_characters(tmp_path):
    content = 'sentence\tlabel\n5" disk\tbad\n"not closed\tgood\n'
    assert pairs(read(tmp_path, content, own(quotes=False))) == [('5" disk', 0), ('"not closed', 1)]
    assert "set quotes: false" in refused(tmp_path, content)


def test_labels_may_be_written_as_floats(tmp_path):
    task = own(kind="binary", labels=["0", "1"])
    content = "sentence,label\na,0.0\nb,1.0\nc,1\nd, 0 \n"
    assert pairs(read(tmp_path, content, task)) == [("a", 0), ("b", 1), ("c", 1), ("d", 0)]


def test_a_broken_test_header_does_not_matter(tmp_path):
    content = "0\t\tid\tsentence\n1\t0.0\tb75\t Effective but too-tepid biopic\n2\t1.0\td17\t fun\n"
    table = read(tmp_path, content, make_task("sst", None, "sst"), labelled=False)
    assert [(e.name, *e.texts) for e in table.examples] == [("b75", "effective but too-tepid biopic"), ("d17", "fun")]
    assert all(math.isnan(example.label) for example in table.examples)


def test_rows_may_lack_labels_only_where_none_are_needed(tmp_path):
    content = "sentence,label\na,\nb,good\n"
    table = read(tmp_path, content, labelled=False)
    assert math.isnan(table.examples[0].label)
    assert table.examples[1].label == 1
    assert "line 2: there is no label in column 'label'" in refused(tmp_path, content)


def test_test_rows_without_any_label_are_told_apart_from_ones_with_a_wrong_one(tmp_path):
    assert "label 'odd' is not one of bad, good" in refused(tmp_path, "sentence,label\na,odd\n")
    with pytest.raises(UserError, match="'odd' is not one of"):
        read(tmp_path, "sentence,label\na,odd\n", labelled=False)


def test_a_record_broken_over_two_lines_is_skipped_in_both_halves(tmp_path):
    """As it stands in the course's Quora dev file."""
    content = (
        "\tid\tsentence1\tsentence2\tis_duplicate\n"
        "0\ta\tWhy is it so?\tWhy, then?\t1.0\n"
        "1\tb\tHow can I\n"
        "cook?\tHow do I cook?\t0.0\n"
        "2\tc\tWho, me?\tIs it me?\t0.0\n"
    )
    table = read(tmp_path, content, make_task("quora", None, "quora"))
    assert [(e.name, e.texts, e.label) for e in table.examples] == [
        ("a", ("why is it so ?", "why , then ?"), 1),
        ("c", ("who , me ?", "is it me ?"), 0),
    ]
    assert table.skipped == [
        "rows.csv line 3: it has another number of cells than the header.",
        "rows.csv line 4: it has another number of cells than the header.",
    ]


def test_a_quoted_text_may_run_over_lines_and_lines_are_still_counted(tmp_path):
    content = 'sentence,label\r\n"one\r\ntwo",good\r\n\r\n"x\ny",odd\r\n'
    assert refused(tmp_path, content).startswith("rows.csv line 5: label 'odd'")
    assert pairs(read(tmp_path, content.replace("odd", "bad"))) == [("one\r\ntwo", 1), ("x\ny", 0)]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_any_line_end_will_do(tmp_path, newline):
    content = newline.join(["sentence,label", "a,good", "b,bad", ""])
    assert pairs(read(tmp_path, content)) == [("a", 1), ("b", 0)]


def test_a_byte_order_mark_is_no_part_of_the_header(tmp_path):
    assert pairs(read(tmp_path, b"\xef\xbb\xbfsentence,label\na,good\n")) == [("a", 1)]
    content = b'\xef\xbb\xbf{"sentence": "a", "label": "good"}\n'
    assert pairs(read(tmp_path, content, name="rows.jsonl")) == [("a", 1)]


def test_empty_lines_are_passed_over_and_counted(tmp_path):
    table = read(tmp_path, "\n\nsentence,label\n\na,good\n\n\nb,bad\n\n")
    assert [(e.name, *e.texts) for e in table.examples] == [("5", "a"), ("8", "b")]
    rows = '\n{"sentence": "a", "label": "good"}\n\n{"sentence": "b", "label": "bad"}\n'
    assert [e.name for e in read(tmp_path, rows, name="rows.jsonl").examples] == ["2", "4"]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("none", " The film, isn't it?  Good. "),
        ("lower", "the film, isn't it?  good."),
        ("spaced", "the film , isn 't it ? good ."),
    ],
)
def test_texts_are_cleaned_as_the_course_does(how, expected):
    assert clean(" The film, isn't it?  Good. ", how) == expected


def test_rows_are_named_by_their_id_or_else_by_their_line(tmp_path):
    content = "key,sentence,label\n Ab ,x,good\n,y,bad\n"
    assert [e.name for e in read(tmp_path, content).examples] == ["2", "3"]
    assert read(tmp_path, content, own(id="key")).examples[0].name == "ab"


# one table, four formats

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12).filter(str.strip)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(rows=st.lists(st.tuples(TEXT, TEXT, st.sampled_from(["bad", "good"])), min_size=1, max_size=6))
def test_every_format_gives_the_same_examples(rows, tmp_path):
    columns = ("one", "two", "label")
    for name, separator in (("rows.csv", ","), ("rows.tsv", "\t"), ("rows.txt", "\t")):
        with (tmp_path / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter=separator).writerows([columns, *rows])
    lines = [json.dumps(dict(zip(columns, row, strict=True))) for row in rows]
    for name in ("rows.jsonl", "rows.ndjson"):
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    pq.write_table(pa.table(dict(zip(columns, zip(*rows, strict=True), strict=True))), tmp_path / "rows.parquet")
    expected = [(one, two, float(label == "good")) for one, two, label in rows]
    for ending in FORMATS:
        assert pairs(read_file(own(PAIR), tmp_path / f"rows{ending}", labelled=True)) == expected, ending


def test_scores_and_several_labels_are_the_same_in_every_format(tmp_path):
    jsonl = '{"sentence": "a", "label": ["x", "z"]}\n{"sentence": "b", "label": []}\n{"sentence": "c", "label": "y|z"}'
    expected = [("a", (1, 0, 1)), ("b", (0, 0, 0)), ("c", (0, 1, 1))]
    assert pairs(read(tmp_path, jsonl, own(SEVERAL), "rows.jsonl")) == expected
    assert pairs(read(tmp_path, "sentence,label\na,x|z\nb,\nc, z | y \n", own(SEVERAL))) == expected
    pq.write_table(
        pa.table({"sentence": ["a", "b", "c"], "label": [["x", "z"], [], ["z", "y"]]}), tmp_path / "rows.parquet"
    )
    assert pairs(read_file(own(SEVERAL), tmp_path / "rows.parquet", labelled=True)) == expected
    assert pairs(read(tmp_path, "sentence,label\na,2.5\nb,5\n", own(SCORE))) == [("a", 2.5), ("b", 5)]
    assert pairs(read(tmp_path, '{"sentence": "a", "label": 2.5}', own(SCORE), "rows.jsonl")) == [("a", 2.5)]


def test_true_and_false_are_labels_in_every_format(tmp_path):
    task = own(kind="binary", labels=[False, True])
    pq.write_table(pa.table({"sentence": ["a", "b"], "label": [True, False]}), tmp_path / "rows.parquet")
    expected = [("a", 1), ("b", 0)]
    assert pairs(read_file(task, tmp_path / "rows.parquet", labelled=True)) == expected
    assert pairs(read(tmp_path, "sentence,label\na,true\nb,false\n", task)) == expected
    lines = '{"sentence": "a", "label": true}\n{"sentence": "b", "label": false}'
    assert pairs(read(tmp_path, lines, task, "rows.jsonl")) == expected


# what cannot be used: file, line, what was found, what is accepted


@pytest.mark.parametrize(
    ("content", "task", "message"),
    [
        ("sentence,label\na,good\nb,neutral\n", SINGLE, "rows.csv line 3: label 'neutral' is not one of bad, good."),
        ("sentence,label\na,x|w\n", SEVERAL, "rows.csv line 2: label 'w' is not one of x, y, z."),
        ("sentence,label\na,5.5\n", SCORE, "rows.csv line 2: score 5.5 is not between 0 and 5."),
        ("sentence,label\na,nan\n", SCORE, "rows.csv line 2: score nan is not between 0 and 5."),
        ("sentence,label\na,-inf\n", SCORE, "rows.csv line 2: score -inf is not between 0 and 5."),
        ("sentence,label\na,much\n", SCORE, "rows.csv line 2: score 'much' is not a number between 0 and 5."),
        ("sentence,label\na,good\n ,bad\n", SINGLE, "rows.csv line 3: the text in column 'sentence' is empty."),
        ("one,two,label\na,b,good\n,b,bad\n", PAIR, "rows.csv line 3: the text in column 'one' is empty."),
        ("one,two,label\na,b,good\na,\t,bad\n", PAIR, "rows.csv line 3: the text in column 'two' is empty."),
        ("sentence,label\na,good\nb\n", SINGLE, "rows.csv line 3: it has another number of cells than the header."),
        ("sentence,label\na,good,x\n", SINGLE, "rows.csv line 2: it has another number of cells than the header."),
    ],
)
def test_a_bad_row_is_named_by_file_and_line_and_can_be_skipped(tmp_path, content, task, message):
    found = refused(tmp_path, content, own(task))
    assert found == f"{message} Correct the row, or set on_bad_row: skip."
    usable = content + {SCORE["kind"]: "z,3\n", SEVERAL["kind"]: "z,x\n"}.get(task["kind"], "z,good\n")
    usable = usable.replace("z,", "z,z,") if task is PAIR else usable
    table = read(tmp_path, usable, own(task, on_bad_row="skip"))
    assert table.skipped == [message]
    assert table.examples[-1].texts[0] == "z"


def test_a_file_of_bad_rows_only_is_refused_even_where_they_are_skipped(tmp_path):
    found = refused(tmp_path, "sentence,label\na,odd\nb,odd\n", own(on_bad_row="skip"))
    assert found.startswith("rows.csv holds no usable rows: rows.csv line 2: label 'odd' is not one of")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "sentense,label\na,good\n",
            "rows.csv has no column 'sentence'. Did you mean 'sentense'? Its columns: 'sentense', 'label'."
            " Name the right one in the task's texts.",
        ),
        (
            "sentence,lable\na,good\n",
            "rows.csv has no column 'label'. Did you mean 'lable'? Its columns: 'sentence', 'lable'."
            " Name the right one in the task's label.",
        ),
        ("\n\nsentense,label\n\na,good\n", "rows.csv has no column 'sentence'. Did you mean 'sentense'?"),
        ("just one line of text\nand another", "rows.csv has no column 'sentence'. Its columns: 'just one line of text'."),
        (b"", "rows.csv is empty."),
        (b" \n\n ", "rows.csv is empty."),
        (b"\xef\xbb\xbf", "rows.csv is empty."),
        ("sentence,label\n", "rows.csv holds no rows."),
        (b"sentence,label\na,good\nb\xe9,bad\n", "rows.csv line 3 is not UTF-8 text (byte 0xe9). Save the file as UTF-8."),
        (b"\xef\xbb\xbfsentence,label\nb\xe9\n", "rows.csv line 2 is not UTF-8 text (byte 0xe9)."),
        ("sentence,label\na,good\n".encode("utf-16"), "rows.csv line 1 is not UTF-8 text (byte 0xff)."),
    ],
)
def test_an_unusable_file_is_refused_with_what_was_found(tmp_path, content, message):
    assert refused(tmp_path, content).startswith(message)


@pytest.mark.parametrize(
    ("content", "task", "message"),
    [
        ('{"sentence": "a"', SINGLE, "rows.jsonl line 1 is not valid JSON: "),
        ('{"sentence": "a", "label": "good"}\nnonsense', SINGLE, "rows.jsonl line 2 is not valid JSON: "),
        ("[" * 10000, SINGLE, "rows.jsonl line 1 is not valid JSON: "),
        ('["a", "good"]', SINGLE, 'rows.jsonl line 1 is not a JSON object but \'["a", "good"]\'.'),
        ('\n{"sentense": "a", "label": "good"}', SINGLE, "rows.jsonl has no column 'sentence'. Did you mean 'sentense'?"),
        ('{"sentence": null, "label": "good"}', SINGLE, "rows.jsonl line 1: the text in column 'sentence' is empty."),
        (
            '{"sentence": ["a"], "label": "good"}',
            SINGLE,
            "rows.jsonl line 1: the text in column 'sentence' is no text",
        ),
        ('{"sentence": "a", "label": null}', SINGLE, "rows.jsonl line 1: there is no label in column 'label'."),
        ('{"sentence": "a", "label": {}}', SINGLE, "rows.jsonl line 1: label '{}' is not one of bad, good."),
        ('{"sentence": "a", "label": [1]}', SCORE, "rows.jsonl line 1: score '[1]' is not a number between 0 and 5."),
        ('{"sentence": "a", "label": 1' + "0" * 400 + "}", SCORE, "rows.jsonl line 1: score '1000"),
        ('{"sentence": "a", "label": 1' + "0" * 5000 + "}", SCORE, "rows.jsonl line 1 is not valid JSON: "),
        (
            '{"sentence": "a", "label": 1}\n{"label": 1}',
            SCORE,
            "rows.jsonl line 2: the text in column 'sentence' is empty.",
        ),
    ],
)
def test_unusable_json_is_refused_by_line(tmp_path, content, task, message):
    assert refused(tmp_path, content, own(task), "rows.jsonl").startswith(message)


def test_half_a_character_in_json_becomes_a_question_mark(tmp_path):
    content = r'{"id": "\ud83d", "sentence": "a \ud83d b \ud83d\ude42", "label": "\uD83D"}'
    task = own(id="id", labels=["?", "x"])
    [example] = read(tmp_path, content, task, "rows.jsonl").examples
    assert (example.name, example.texts, example.label) == ("?", ("a ? b 🙂",), 0)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([b"a", b"\xff"]), "line 1: the text in column 'sentence' is no text but a bytes."),
        (pa.array([{"a": 1}, {"a": 2}]), "line 1: the text in column 'sentence' is no text but a dict."),
        (pa.array([None, "a"]), "line 1: the text in column 'sentence' is empty."),
        (pa.array([2**30, 1], pa.date32()), "is not a readable parquet file: "),
        (pa.array([b"a", b"\xff"]).view(pa.string()), "is not a readable parquet file: "),
    ],
)
def test_unusable_parquet_columns_are_refused(tmp_path, column, message):
    pq.write_table(pa.table({"sentence": column, "label": ["good", "bad"]}), tmp_path / "rows.parquet")
    content = (tmp_path / "rows.parquet").read_bytes()
    assert refused(tmp_path, content, name="rows.parquet").removeprefix("rows.parquet ").startswith(message)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + b"\0" * 50 + b"PAR1", b"sentence,label\na,good\n"])
def test_a_file_that_is_no_parquet_is_refused(tmp_path, content):
    assert "is not a readable parquet file" in refused(tmp_path, content, name="rows.parquet")


@pytest.mark.parametrize("ending", FORMATS)
def test_a_missing_file_is_a_message(tmp_path, ending):
    with pytest.raises(UserError, match=re.escape(f"rows{ending}")):
        read_file(own(), tmp_path / f"rows{ending}", labelled=True)


@pytest.mark.parametrize("ending", FORMATS)
def test_a_folder_instead_of_a_file_is_a_message(tmp_path, ending):
    (tmp_path / f"rows{ending}").mkdir()
    with pytest.raises(UserError, match=re.escape(f"rows{ending}")):
        read_file(own(), tmp_path / f"rows{ending}", labelled=True)


@pytest.mark.parametrize("name", ["rows.xlsx", "rows", "rows.csv.gz", "rows.json"])
def test_an_unknown_ending_is_refused_with_the_known_ones(tmp_path, name):
    message = f"{name}: files must end in one of .csv, .tsv, .txt, .jsonl, .ndjson, .parquet."
    assert refused(tmp_path, b"x", name=name) == message


# where the files are


def test_files_are_looked_for_in_the_recipe_folder_then_in_the_data_folder(tmp_path, monkeypatch):
    mine, shared = tmp_path / "mine", tmp_path / "shared"
    for folder in (mine, shared / "cs224n"):
        folder.mkdir(parents=True)
    monkeypatch.setenv("TEABERT_DATA", str(shared))
    monkeypatch.setenv("TEABERT_CACHE", str(tmp_path / "cache"))
    sst = make_task("sst", None, "sst")
    in_order = [mine / "ids-sst-dev.csv", shared / "cs224n" / "ids-sst-dev.csv"]
    with pytest.raises(UserError) as caught:
        locate(sst, "dev", str(mine))
    message = str(caught.value)
    assert message.startswith(f"Task 'sst': there is no file {mine / 'cs224n' / 'ids-sst-dev.csv'} (nor ")
    assert all(str(path) in message for path in in_order)
    assert "Set TEABERT_DATA, or data: in the recipe, to the folder that holds it" in message
    for path in reversed(in_order):
        path.write_text("\tid\tsentence\tsentiment\n0\ta\tx\t1\n")
        assert locate(sst, "dev", str(mine)) == path
    assert read_split(sst, "dev", str(mine)).path == in_order[0]


def test_a_task_without_a_split_says_which_it_has():
    with pytest.raises(UserError, match=r"Task 'own' has no test rows. It has: train, dev\."):
        read_split(own(files={"train": "a.csv", "dev": "b.csv"}), "test", None)


@given(st.dictionaries(st.sampled_from(["sentence", "label"]), st.one_of(TEXT, st.integers(), st.floats(), st.none())))
def test_one_row_is_an_example_or_a_message(row):
    try:
        example = make_example(own(SCORE), row, labelled=True, name="1")
    except UserError as error:
        found = str(error)
        assert found.endswith(".")
    else:
        assert example.texts == (str(row["sentence"]),)
        assert 0 <= example.label <= 5


# nothing that is in a file may be worse than a message

COLUMNS = "sentence|one|two|label|good|bad"
MARKS = ',|\t|;|"|""|\n|\r|\r\n| |1.0|\0|é|🙂|\u2028|\\|\\ud800|{|}|[|]|:|null|true|NaN|1e999|-'
BYTES = st.sampled_from(
    [
        *f"{COLUMNS}|{MARKS}".encode().split(b"|"),
        *(b"\xff", b"\xef\xbb\xbf", b"|", b'{"sentence": "a", "label": "good"}', b"sentence,label\n"),
    ]
)
CONTENT = st.one_of(
    st.binary(max_size=200),
    st.lists(st.one_of(BYTES, BYTES, st.binary(max_size=3)), max_size=30).map(b"".join),
    st.lists(BYTES, max_size=30).map(lambda parts: b"sentence,label\n" + b"".join(parts)),
    st.lists(BYTES, max_size=30).map(lambda parts: b'{"sentence": "' + b"".join(parts)),
)
ANY_TASK = st.builds(
    own,
    st.sampled_from([SINGLE, PAIR, SCORE, SEVERAL]),
    on_bad_row=st.sampled_from(["error", "skip"]),
    quotes=st.booleans(),
    clean=st.sampled_from(["none", "spaced"]),
    id=st.sampled_from([None, "one"]),
)


def table_or_message(task, path, labelled):
    """Reading gives examples that can be used, or a message that can be shown"""
    try:
        table = read_file(task, path, labelled)
    except UserError as error:
        message = str(error)
        message.encode()
        return message
    assert isinstance(table, Table)
    for example in table.examples:
        assert len(example.texts) == len(task.texts)
        " ".join([example.name, *example.texts, *table.skipped]).encode()
        labels = example.label if isinstance(example.label, tuple) else (example.label,)
        assert not labelled or not any(math.isnan(label) for label in labels)
    assert table.examples
    return table


@pytest.mark.parametrize("ending", FORMATS)
def test_any_bytes_give_a_table_or_a_message(ending, tmp_path):
    seen = []

    @settings(max_examples=150)
    @given(CONTENT, ANY_TASK, st.booleans())
    def check(content, task, labelled):
        seen.append(type(table_or_message(task, write(tmp_path, content, f"rows{ending}"), labelled)))

    check()
    assert str in seen


ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.sampled_from(["good", "x|y"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=4,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.dictionaries(st.sampled_from(["sentence", "one", "two", "label", "x"]), ANYTHING), max_size=4),
    task=ANY_TASK,
    labelled=st.booleans(),
)
def test_any_json_gives_a_table_or_a_message(rows, task, labelled, tmp_path):
    content = "\n".join(json.dumps(row) for row in rows)
    assert table_or_message(task, write(tmp_path, content, "rows.jsonl"), labelled)


def parquet(columns):
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


GOOD = parquet({"sentence": ["a film", "b"], "label": ["good", "bad"]})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(
    changes=st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), max_size=3),
    length=st.one_of(st.just(len(GOOD)), st.integers(0, len(GOOD))),
)
def test_a_damaged_parquet_file_gives_a_table_or_a_message(changes, length, tmp_path):
    content = bytearray(GOOD)
    for place, value in changes:
        content[place] = value
    assert table_or_message(own(), write(tmp_path, bytes(content[:length]), "rows.parquet"), labelled=True)


# the real files

USABLE = {
    "sst": (8544, 1101, 2210),
    "quora": (37845, 20212, 4000),
    "sts": (6040, 863, 1725),
    "cfimdb": (1707, 245, 488),
}


@pytest.mark.parametrize("name", USABLE)
def test_all_real_rows_are_read(name, real_data):
    task = TASKS[name]
    tables = [read_split(task, split, str(real_data)) for split in ("train", "dev", "test")]
    assert tuple(len(table.examples) for table in tables) == USABLE[name]
    assert [len(table.skipped) for table in tables] == [0, 2 if name == "quora" else 0, 0]
    for table in tables[:2]:
        values = {example.label for example in table.examples}
        if name == "sts":
            assert 0 == min(values) < max(values) == 5
        else:
            assert values == {float(place) for place in range(len(task.labels))}
    assert all(math.isnan(example.label) for example in tables[2].examples)
    for table in tables:
        names = [example.name for example in table.examples]
        assert len(set(names)) == len(names)
        assert all(text == text.strip() != "" for example in table.examples for text in example.texts)


def test_quotation_mark_that_is_never_closed_is_named_instead_of_swallowing_rows(tmp_path):
    (tmp_path / "open.csv").write_text('text,label\nfine,yes\n"open,no\nlost,yes\n')
    task = make_task("own", {"texts": "text", "kind": "binary", "labels": ["no", "yes"], "files": "{split}.csv"}, "own")
    with pytest.raises(UserError, match=r"open\.csv line 3: .*quotes: false"):
        read_file(task, tmp_path / "open.csv", labelled=True)
    plain = task.model_copy(update={"quotes": False})
    assert [example.texts[0] for example in read_file(plain, tmp_path / "open.csv", labelled=True).examples][1] == '"open'
