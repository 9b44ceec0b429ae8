"""Files row by row: as they are read at once, from any place on, holding nothing but the row at hand."""

import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from teabert.errors import UserError
from teabert.streaming import Place, columns_of, end_of, stream
from teabert.tasks.reading import read_rows

CELL = st.text(st.characters(codec="utf-8", exclude_characters="\x00\r"), max_size=8)  # a lone CR ends a line elsewhere
HARD = st.sampled_from(["", 'a "quoted" one', "two\nlines", "a,b;c\td", " ", "é中🙂", "a\r\nb", '"'])
ROWS = st.lists(st.tuples(st.one_of(CELL, HARD), st.one_of(CELL, HARD)), min_size=1, max_size=12)


def written(path, rows):
    """A file of these rows, in the format of its name"""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"one": a, "two": b}) + "\n" for a, b in rows), encoding="utf-8")
    elif path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        table = pyarrow.table({"one": [a for a, _ in rows], "two": [b for _, b in rows]})
        pyarrow.parquet.write_table(table, path, row_group_size=3)
    else:
        import csv

        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter="," if path.suffix == ".csv" else "\t", quoting=csv.QUOTE_ALL).writerows(
                [("one", "two"), *rows]
            )
    return path


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv", "rows.jsonl", "rows.parquet"])
def test_rows_are_those_that_are_read_at_once_and_from_any_place_on(name, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")

    @settings(max_examples=25)
    @given(ROWS)
    def check(rows):
        path = written(folder / name, rows)
        lines = list(stream(path))
        assert [(line.number, dict(line.row)) for line in lines] == list(read_rows(path))
        assert [(line.row["one"], line.row["two"]) for line in lines] == rows
        assert not any(line.problem for line in lines)
        assert lines[-1].end.offset == end_of(path)
        for number, line in enumerate(lines):
            assert list(stream(path, start=line.end)) == lines[number + 1 :]

    check()


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv", "rows.jsonl", "rows.parquet"])
def test_a_file_is_never_held_as_a_whole(tmp_path, name):
    path = written(tmp_path / name, [(f"row {number} " * 12, "x" * 80) for number in range(30_000)])
    for _ in stream(path):
        break  # imports and libraries' own stores come before what is measured
    tracemalloc.start()
    count = sum(1 for _ in stream(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 30_000
    assert peak < 1_500_000  # the file's texts are some 5 million bytes


def problems(path, **options):
    return [(line.number, line.problem) for line in stream(path, **options)]


def test_bad_lines_of_jsonl_are_named_and_the_rest_is_read(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n\n{"a": \n[1]\n{"a": "\xff"}\n' + b"[" * 100_000 + b'\n{"a": 2}')
    lines = list(stream(path))
    assert [line.number for line in lines] == [1, 3, 4, 5, 6, 7]
    assert [bool(line.problem) for line in lines] == [False, True, True, True, True, False]
    for line, message in zip(
        lines[1:5], ["not valid JSON", "not a JSON object but '[1]'", "not UTF-8", "not valid"], strict=True
    ):
        assert message in line.problem


def test_bad_lines_of_csv_are_named_and_the_rest_is_read(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b'a,b\n1,2\n\n3\n4,5,6\n"x"y,7\n\xff,8\n9,10\n"open,11\n12,13\n')
    found = problems(path)
    assert [number for number, _ in found] == [2, 4, 5, 6, 7, 8, 9]
    assert [bool(problem) for _, problem in found] == [False, True, True, True, True, False, True]
    assert "another number of cells" in found[1][1]
    assert found[1][1] == found[2][1]
    assert "quotes: false" in found[3][1]
    assert "not UTF-8" in found[4][1]
    assert "unexpected end of data" in found[6][1]
    assert [number for number, problem in problems(path, quotes=False) if problem] == [4, 5, 7]


def test_quotation_mark_that_is_never_closed_swallows_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr("teabert.streaming.LONGEST", 2000)
    path = tmp_path / "rows.csv"
    path.write_text('a,b\n"open,1\n' + "text,2\n" * 1000)
    found = problems(path)
    assert "field larger than field limit" in found[0][1]
    assert len(found) > 500


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl"])
def test_line_without_end_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.setattr("teabert.streaming.LONGEST", 1000)
    path = tmp_path / name
    path.write_text("a,b\n" + "x" * 1001 if name.endswith("csv") else "x" * 1001)
    with pytest.raises(UserError, match="is longer than 1000 bytes"):
        list(stream(path))


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("rows.csv", "\n\none;two\n1;2\n", (["one", "two"], True)),
        ("rows.tsv", "one\ttwo,three\n", (["one", "two,three"], True)),
        ("rows.jsonl", '{\n{"one": 1}\n{"two": 2}', (["one"], False)),
        ("rows.jsonl", "\n", ([], False)),
        ("rows.csv", "\n", ([], True)),
    ],
)
def test_columns_are_those_of_the_header_or_the_first_good_row(tmp_path, name, content, expected):
    (tmp_path / name).write_text(content)
    assert columns_of(tmp_path / name) == expected


def test_columns_of_parquet_are_known_without_a_row(tmp_path):
    assert columns_of(written(tmp_path / "rows.parquet", [("a", "b")])) == (["one", "two"], True)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.xlsx", b"x", "must end in one of .csv"),
        ("rows.csv", b"", "is empty"),
        ("absent.csv", None, "cannot be read: No such file"),
        ("rows.csv", b'a,"b\n', "line 1: unexpected end of data"),
        ("rows.parquet", b"no parquet", "is not a readable parquet file"),
    ],
)
def test_file_that_cannot_be_read_is_named(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    for read in (columns_of, lambda path: list(stream(path))):
        with pytest.raises(UserError, match=message):
            read(tmp_path / name)


def test_reading_begins_anew_at_the_beginning(tmp_path):
    path = written(tmp_path / "rows.jsonl", [("a", "b"), ("c", "d")])
    assert list(stream(path, start=Place())) == list(stream(path))
