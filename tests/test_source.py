"""Rows handed out as batches: what a GPU keeps of them for the next time."""

import pytest
import torch

from conftest import tiny_rows
from teabert import source
from teabert.batches import Batch
from teabert.source import EncodedStates, Source

GPU = torch.device("cuda")


@pytest.fixture
def rows(monkeypatch):
    """Of three tasks; batches that go to a GPU stay where they are"""
    monkeypatch.setattr(Batch, "to", lambda self, device: self)
    return tiny_rows({"mood": 3, "same": 4, "near": 2})


def test_a_gpu_keeps_what_it_has_laid_out(rows):
    mine = Source(rows)
    first, second = list(mine.all(GPU)), list(mine.all(GPU))
    assert [batch.examples for batch in first] == [3, 4, 2]
    assert all(one is other for one, other in zip(first, second, strict=True))


def test_a_cpu_keeps_nothing(rows):
    mine = Source(rows)
    assert len(list(mine.all(torch.device("cpu")))) == 3
    assert mine.laid_out is None


def test_what_is_too_large_is_laid_out_anew(rows, monkeypatch):
    tokens = sum(int(each.lengths().sum()) for each in rows.values())
    for room, kept in ((tokens, True), (tokens - 1, False)):
        monkeypatch.setattr(source, "KEPT_TOKENS", room)
        mine = Source(rows)
        assert len(list(mine.all(GPU))) == 3
        assert (mine.laid_out is not None) == kept


def test_token_states_are_not_kept_twice(rows):
    states = EncodedStates(Source(rows), 8)
    assert len(list(states.all(GPU))) == 3
    assert states.laid_out is None
