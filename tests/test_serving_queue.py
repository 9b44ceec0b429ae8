"""The waiting room before the model: fair between clients, bounded, batches by tokens."""

import threading
import time

import numpy as np
import pytest

from teabert.requests import Prepared, Request
from teabert.serving.problems import Problem
from teabert.serving.queue import Call, FairQueue, Question, Ticket, turns


def questions(client, lengths, text=None, tasks=1):
    ticket = Ticket(client, [None] * len(lengths), lambda: None)
    return ticket, [
        Question(ticket, place, Request(f"task{place % tasks}", text or f"{client}{place}"), prepared(length), 0)
        for place, length in enumerate(lengths)
    ]


def prepared(tokens):
    return Prepared("mood", "", (np.zeros(tokens, np.int32),), tokens)


def queue(limit=100, client_limit=50, calls=2, budget=10, wait=0.0, takers=1):
    return FairQueue(limit, client_limit, calls, budget, wait, takers)


def put(room, client, lengths):
    ticket, asked = questions(client, lengths)
    room.put(ticket, list(turns(asked, room.budget)))
    return ticket


def taken(room):
    return [turn.ticket.client for turn in room.take().batch]


def test_clients_take_turns_in_a_batch():
    room = queue(budget=6)
    put(room, "greedy", [1] * 20)
    put(room, "a", [1, 1])
    put(room, "b", [1])
    assert taken(room) == ["greedy", "a", "b", "greedy", "a", "greedy"]
    assert taken(room) == ["greedy"] * 6


def test_next_batch_goes_on_with_the_client_whose_turn_it_is():
    room = queue(budget=2)
    for client in ("a", "b", "c"):
        put(room, client, [1, 1])
    assert [taken(room) for _ in range(3)] == [["a", "b"], ["c", "a"], ["b", "c"]]


def test_batches_keep_to_the_budget_and_one_long_text_goes_alone():
    room = queue(budget=10)
    put(room, "a", [6, 30, 4, 4])
    assert [[turn.tokens for turn in room.take().batch] for _ in range(3)] == [[6], [30], [4, 4]]
    assert room.tokens == room.questions == 0


def test_tasks_of_one_text_share_a_turn_unless_they_exceed_the_budget():
    _, same = questions("a", [4, 4, 4, 4], text="the same", tasks=4)
    assert [len(turn.questions) for turn in turns(same, 10)] == [2, 2]
    _, again = questions("a", [4, 4], text="the same")
    assert [len(turn.questions) for turn in turns(again, 10)] == [1, 1]
    _, other = questions("a", [4, 4])
    assert [len(turn.questions) for turn in turns(other, 10)] == [1, 1]


def test_full_queue_turns_away_and_says_so():
    room = queue(limit=5, client_limit=3)
    put(room, "a", [1] * 3)
    with pytest.raises(Problem, match="You have 3 questions waiting, of 3 at most") as mine:
        put(room, "a", [1])
    put(room, "b", [1, 1])
    with pytest.raises(Problem, match="All clients have 5 questions waiting, of 5 at most") as all_clients:
        put(room, "c", [1])
    assert mine.value.status == all_clients.value.status == 429
    assert room.questions == 5


def test_cancelled_ticket_leaves_at_once():
    room = queue()
    gone, stays = put(room, "a", [2, 2]), put(room, "a", [3])
    put(room, "b", [1])
    room.cancel(gone)
    assert gone.cancelled
    assert (room.questions, room.tokens, room.counts) == (2, 4, {"a": 1, "b": 1})
    assert [turn.ticket is stays for turn in room.take().batch] == [True, False]
    assert not room.lines
    assert not room.counts


def served(room, count):
    """The queue after a batch of so many questions, whose clients may come back"""
    ticket = put(room, "before", [1] * count)
    ticket.missing = count
    room.take()
    for _ in range(count):
        room.answered(ticket)
    return room


def seconds(room):
    """Who is in the next batch, and how long that took"""
    begun = time.monotonic()
    return taken(room), time.monotonic() - begun


def wait_for(room):
    """Let the queue learn how many to expect: what the model's thread does when it comes for its next batch"""
    thread = threading.Thread(target=lambda: found.append(seconds(room)))
    found = []
    thread.start()
    time.sleep(0.02)
    return thread, found


def test_lone_client_waits_for_nobody():
    room = queue(budget=99, wait=0.3)
    for _ in range(3):
        thread, found = wait_for(room)
        put(room, "a", [1])
        thread.join()
        assert found[0][0] == ["a"]
        assert found[0][1] < 0.2


def test_batch_waits_for_those_who_were_answered_and_no_longer_once_they_are_back():
    room = served(queue(budget=99, wait=0.3), 3)
    thread, found = wait_for(room)
    for client in "abc":
        put(room, client, [1])
        time.sleep(0.02)
    thread.join()
    assert found[0][0] == ["a", "b", "c"]
    assert found[0][1] < 0.25


def test_those_who_came_during_a_batch_wait_for_those_who_were_in_it():
    room = queue(budget=99, wait=0.3)
    first = put(room, "a", [1])
    first.missing = 1
    room.take()
    put(room, "b", [1])  # while the model is at work
    room.answered(first)
    thread, found = wait_for(room)
    put(room, "a", [1])
    thread.join()
    assert found[0][0] == ["b", "a"]
    assert found[0][1] < 0.25


def test_full_batch_waits_for_nobody():
    room = served(queue(budget=3, wait=0.3), 3)
    put(room, "a", [3])
    assert seconds(room)[1] < 0.15


def test_who_does_not_come_back_is_waited_for_until_all_is_still_but_not_for_ever(monkeypatch):
    monkeypatch.setattr("teabert.serving.queue.LONGEST", 6)
    room = served(queue(budget=99, wait=0.1), 9)
    put(room, "a", [1])
    threading.Timer(0.06, room.stir).start()  # an answer goes
    threading.Timer(0.12, put, (room, "b", [1])).start()  # too late for the first's wait, in time for the answer's
    assert taken(room) == ["a", "b"]
    room = served(room, 9)
    put(room, "a", [1])
    going = [threading.Timer(0.05 * tick, room.stir) for tick in range(1, 30)]
    for each in going:
        each.start()
    who, spent = seconds(room)
    assert who == ["a"]
    assert 0.5 < spent < 1.2
    for each in going:
        each.cancel()


def test_calls_come_one_at_a_time_between_batches():
    room = queue(budget=2)
    put(room, "a", [1, 1, 1])
    for _ in range(2):
        room.put_call(Call(print))
    with pytest.raises(Problem, match="2 such requests are waiting"):
        room.put_call(Call(print))
    work = None
    found = [(work := room.take(work)) for _ in range(4)]
    assert [each.call is not None for each in found] == [True, False, True, False]
    assert [len(each.batch) for each in found] == [0, 2, 0, 1]


def test_takers_share_what_waits_by_its_tokens():
    room = queue(budget=99, takers=2)
    put(room, "a", [4] * 8)
    first = room.take()
    assert first.tokens == 16
    put(room, "b", [4] * 2)
    second = room.take()
    assert second.tokens == 20  # half of the 24 that wait and the 16 that are being answered
    assert room.take(first).tokens == 4


def test_who_came_last_goes_first_and_a_call_that_needs_all_waits_for_all():
    room = queue(budget=1, takers=2)
    order = []

    def come(name, last=None):
        thread = threading.Thread(target=lambda: order.append((name, room.take(last))))
        thread.start()
        time.sleep(0.05)
        return thread

    threads = [come("first"), come("last")]
    put(room, "a", [1])
    threads[1].join(5)
    assert [name for name, _ in order] == ["last"]
    room.put_call(Call(print, alone=True))
    put(room, "a", [1])
    time.sleep(0.05)
    assert len(order) == 1  # neither the call nor the question behind it, while a batch is at work
    threads += [come("last", order[0][1])]
    assert len(order) == 2  # nothing beside the call either
    assert order[1][1].call.alone
    threads.append(come("again", order[1][1]))
    room.close()
    for each in threads:
        each.join(5)
    assert sorted(work.tokens for _, work in order[2:] if work) == [1]


def test_closed_queue_hands_out_what_waits_and_then_ends():
    room = queue()
    put(room, "a", [1])
    room.close()
    with pytest.raises(Problem, match="shutting down") as refused:
        put(room, "b", [1])
    assert refused.value.status == 503
    assert taken(room) == ["a"]
    assert room.take() is None
