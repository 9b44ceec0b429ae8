"""A file written in chunks: killed at any moment and begun again, it ends as if nothing had happened."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from teabert.errors import UserError
from teabert.journal import Journal

PROGRAM = Path(__file__).parent / "killed_writing.py"
WHOLE = b"one\ntwo\ntwo\n" + b"three\n" * 200 + b"end"


def write(folder, number=0):
    command = [sys.executable, str(PROGRAM), str(folder), str(number)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_file_killed_at_any_moment_is_whole_after_going_on(tmp_path):
    (tmp_path / "whole").mkdir()
    moments = int(write(tmp_path / "whole").stdout)
    assert moments == 3 + 5 * 6 + 2
    for number in range(1, moments + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "out.txt").write_bytes(b"an older one")
        killed = write(folder, number)
        assert killed.returncode == -9
        assert (folder / "out.txt").read_bytes() == (WHOLE if number == moments else b"an older one"), "half of it is there"
        done = write(folder)
        assert done.returncode == 0, done.stderr
        assert (folder / "out.txt").read_bytes() == WHOLE
        assert os.listdir(folder) == ["out.txt"]
        if 10 < number < moments:
            assert int(done.stdout) < moments, "it began anew"


def test_a_second_kill_changes_nothing(tmp_path):
    for number in (9, 5, 11, 3, 8, 4):
        assert write(tmp_path, number).returncode == -9
    assert write(tmp_path).returncode == 0
    assert (tmp_path / "out.txt").read_bytes() == WHOLE


def begun(folder, made_of, *chunks):
    """A journal whose maker stopped behind some chunks"""
    with suppress(KeyboardInterrupt), Journal(folder / "out.txt", made_of) as journal:
        for number, chunk in enumerate(chunks, 1):
            journal.add(chunk, {"next": number})
        raise KeyboardInterrupt


def test_other_things_are_not_mixed_into_a_file(tmp_path):
    begun(tmp_path, {"run": "a", "input": [1, 2]}, b"one\n")
    with pytest.raises(UserError, match=r"begun with another run, another input.*delete .*\.journal"):
        Journal(tmp_path / "out.txt", {"run": "b", "input": [1, 3]}).__enter__()
    with Journal(tmp_path / "out.txt", {"run": "a", "input": [1, 2]}) as journal:
        assert journal.place == {"next": 1}
        journal.add(b"two\n", {"next": 2})
    assert (tmp_path / "out.txt").read_bytes() == b"one\ntwo\n"


def test_an_unfinished_file_that_was_cut_or_lost_is_begun_anew(tmp_path):
    for harm in (lambda file: file.write_bytes(b"on"), lambda file: file.unlink()):
        begun(tmp_path, {}, b"one\n", b"two\n")
        harm(tmp_path / ".unfinished-out.txt")
        with Journal(tmp_path / "out.txt", {}) as journal:
            assert journal.place == {}
            journal.add(b"new\n", {"next": 1})
        assert (tmp_path / "out.txt").read_bytes() == b"new\n"


def test_anew_forgets_what_was_written_before(tmp_path):
    begun(tmp_path, {"input": 1}, b"one\n")
    with Journal(tmp_path / "out.txt", {"input": 2}, anew=True) as journal:
        journal.add(b"other\n", {"next": 1})
    assert (tmp_path / "out.txt").read_bytes() == b"other\n"
    assert os.listdir(tmp_path) == ["out.txt"]


def test_a_block_that_fails_before_its_first_chunk_leaves_nothing(tmp_path):
    begun(tmp_path, {})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("notes", [b"{\n", b"[1]\n{}\n", b'{}\n{"length": "x", "place": {}}\n', b"\xff\n", b"{}\n3\n"])
def test_damaged_journal_is_named(tmp_path, notes):
    (tmp_path / ".unfinished-out.txt.journal").write_bytes(notes)
    with pytest.raises(UserError, match=r"\.journal is damaged. Delete it|begun with another"):
        Journal(tmp_path / "out.txt", {"input": 1}).__enter__()


def test_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    for target, message in ((tmp_path / "folder", "it is no file"), (tmp_path / "file" / "out", "cannot be written: ")):
        with pytest.raises(UserError, match=message):
            Journal(target, {}).__enter__()


def full(file, content):
    """As a full disk takes what is written"""
    file.write(content[:1])
    file.flush()
    raise OSError(28, "No space left on device")


def test_full_disk_is_named_and_what_was_written_is_kept(tmp_path, monkeypatch):
    with suppress(KeyboardInterrupt), Journal(tmp_path / "out.txt", {}) as journal:
        journal.add(b"one\n", {"next": 1})
        monkeypatch.setattr("teabert.journal._append", full)
        with pytest.raises(UserError, match="cannot be written: No space left"):
            journal.add(b"two\n", {"next": 2})
        raise KeyboardInterrupt
    monkeypatch.undo()
    assert (tmp_path / ".unfinished-out.txt").read_bytes() == b"one\nt"
    with Journal(tmp_path / "out.txt", {}) as journal:
        assert journal.place == {"next": 1}
        journal.add(b"two\n", {"next": 2})
    assert (tmp_path / "out.txt").read_bytes() == b"one\ntwo\n"
