"""Writing beside learning: in order, to the end or not at all, of what was there when it was asked."""

import threading

import pytest
import torch

from teabert.writing import Writing, beside


def test_jobs_are_done_in_order_and_none_before_it_is_begun():
    done, go = [], threading.Event()
    writing = Writing(beside=True)
    writing.add(go.wait)
    for number in range(5):
        writing.add(lambda number=number: done.append(number))
    assert done == []
    writing.begin()
    assert done == []
    go.set()
    writing.wait()
    assert done == [0, 1, 2, 3, 4]


def test_without_a_thread_a_job_is_done_at_once():
    done = []
    writing = Writing(beside=False)
    writing.add(lambda: done.append(1))
    assert done == [1]
    writing.finish()
    assert done == [1]


def test_a_job_that_goes_wrong_ends_those_after_it_and_is_heard_of_once():
    done = []
    writing = Writing(beside=True)
    writing.add(lambda: 1 / 0)
    writing.add(lambda: done.append(1))
    writing.begin()
    with pytest.raises(ZeroDivisionError):
        writing.wait()
    writing.finish()
    assert done == []


def test_a_write_that_nobody_waited_for_to_its_end_is_not_forgotten(monkeypatch):
    go = threading.Event()
    writing = Writing(beside=True)
    writing.add(go.wait)
    writing.begin()

    def interrupted(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(writing.going, "result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            writing.wait()
    assert writing.going is not None
    go.set()
    writing.finish()
    assert writing.going is None


def test_a_copy_stays_as_it_was():
    tensor = torch.zeros(3)
    copied = Writing(beside=True).copy(tensor)
    tensor += 1
    assert copied.tolist() == [0, 0, 0]


def test_only_a_gpu_learns_while_the_processor_writes():
    assert beside(torch.device("cuda"))
    assert not beside(torch.device("cpu"))
