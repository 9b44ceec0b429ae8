"""What `teabert methods` finds out by trying."""

import pytest

import tiny
from teabert.costs import ALIKE, difference, random_texts
from teabert.encoder import Encoder
from teabert.injections import INJECTIONS
from teabert.injections.input import Input
from teabert.pretrained import read_shape


class Confused(Input):
    """Takes the batch's first task for that of every text."""

    def embedded(self, x, at):
        return x + self.vectors[at.names[0]]


@pytest.mark.parametrize(("method", "mixes"), [(Confused, False), *((each, True) for each in INJECTIONS.values())])
def test_a_method_mixes_where_each_task_is_answered_as_if_alone(method, mixes):
    shape, tasks = read_shape(tiny.CONFIG, "tiny"), ("one", "other", "third")
    injection = method(method.Config(), shape, tasks).eval()
    assert (difference(Encoder(shape).eval(), injection, random_texts(shape, tasks)) <= ALIKE) == mixes
