"""What the runs of a process have in common is read once, and is what reading it every time would give."""

import numpy as np
import pytest

import tiny
from teabert.config import parse_recipe
from teabert.experiments.remembering import RememberingText, remembered_split
from teabert.tasks.reading import read_split
from teabert.text import TextEncoder


@pytest.fixture
def world(tmp_path):
    return tiny.write_world(tmp_path)


def test_texts_that_were_met_before_get_the_same_ids_in_the_same_order(world):
    folder = next(world.glob("**/tokenizer.json"), next(world.glob("**/vocab.txt"), None)).parent
    plain, remembering = TextEncoder.load(folder, 64), RememberingText.load(folder, 64)
    texts = ["the film was good", "bad", "the film was good", "good film the was " * 20]
    pairs = [("the film", "was good"), ("the film was", "good")]
    for given, longest in [(texts, None), (texts[::-1], None), (texts, 5), (pairs, None), (pairs, 5), (pairs[::-1], 5)]:
        expected, found = plain.tokens(given, longest), remembering.tokens(given, longest)
        assert [ids.tolist() for ids in found.ids] == [ids.tolist() for ids in expected.ids]
        assert (found.second_text, found.cut) == (expected.second_text, expected.cut)


def test_a_file_is_read_once_and_again_where_it_changed_or_is_read_otherwise(world, monkeypatch):
    recipe = parse_recipe(tiny.recipe(world))
    task, reads = recipe.tasks["mood"], []

    def read(*given):
        reads.append(given)
        return read_split(*given)

    monkeypatch.setattr("teabert.experiments.remembering.read_split", read)
    first = remembered_split(task, "train", recipe.data)
    assert remembered_split(task.model_copy(update={"take": 2}), "train", recipe.data) is first
    assert len(reads) == 1
    assert np.array_equal([each.label for each in first.examples], [e.label for e in read_split(*reads[0]).examples])
    first.path.write_text(first.path.read_text().replace("\t4\n", "\t3\n"))
    changed = remembered_split(task, "train", recipe.data)
    assert [each.label for each in changed.examples] != [each.label for each in first.examples]
    remembered_split(task.model_copy(update={"labels": task.labels[::-1]}), "train", recipe.data)
    assert len(reads) == 3
