"""The waiting room before the model: clients' questions in, batches out. Bounded, thread-safe; knows no HTTP, no model.

Each client has a line of its own. A batch is filled by turns, one of each client after the other; a turn is one text with
its tasks, so that a batch holds together what its tasks can share. The budget of a batch is its tokens.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from threading import Condition
from typing import Any

from teabert.answers import Answer
from teabert.requests import Prepared, Refusal, Request
from teabert.serving.problems import Problem

LONGEST = 10
"""How many times its wait a batch waits at most, however many keep coming."""


@dataclass(eq=False)
class Ticket:
    """The questions that one client asked together, and the answers as they come."""

    client: str
    answers: list[Answer | Refusal | None]
    done: Callable[[], None]
    """called once, from the model's thread, when the last answer has come"""
    missing: int = 0
    """answers that have not come"""
    cancelled: bool = False
    since: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class Question:
    """One text under one task."""

    ticket: Ticket
    place: int
    """where its answer stands in the ticket"""
    request: Request
    prepared: Prepared
    version: int
    """of the model's tasks, when it was prepared"""


@dataclass(frozen=True, slots=True)
class Turn:
    """Questions that go into the same batch: one text, several tasks."""

    ticket: Ticket
    questions: list[Question]
    tokens: int


@dataclass(frozen=True)
class Call:
    """Something else that needs a model."""

    function: Callable[[Any], None]
    """called with the model of whoever takes it"""
    alone: bool = False
    """whether nothing else may be at work meanwhile"""


@dataclass(frozen=True, eq=False)
class Work:
    """What a thread of the model does next: a call, or a batch."""

    call: Call | None
    batch: list[Turn]

    @property
    def tokens(self) -> int:
        """How much the model is busy with"""
        return sum(turn.tokens for turn in self.batch)


def turns(questions: Iterable[Question], budget: int) -> Iterator[Turn]:
    """Neighbouring questions on the same text as one turn, as far as the budget goes."""
    together: list[Question] = []
    tokens = 0
    for question in questions:
        size = question.prepared.tokens
        if together and (not _alike(question.request, together[0].request) or tokens + size > budget):
            yield Turn(together[0].ticket, together, tokens)
            together, tokens = [], 0
        together.append(question)
        tokens += size
    if together:
        yield Turn(together[0].ticket, together, tokens)


def _alike(request: Request, first: Request) -> bool:
    """Whether it is the text of the first under another task"""
    return request.text == first.text and request.task != first.task


class FairQueue:
    """Lines of clients, and what is called between batches."""

    def __init__(self, limit: int, client_limit: int, call_limit: int, budget: int, wait: float, takers: int = 1) -> None:
        self.limit, self.client_limit, self.call_limit = limit, client_limit, call_limit
        self.budget, self.wait = budget, wait
        """tokens in a batch; seconds without anything coming or going after which it is not waited for more"""
        self.takers = takers
        """how many work at the same time; each takes its part of what waits"""
        self.working: list[Work] = []
        self.resting: list[object] = []
        """those who have nothing to do"""
        self.gathering = False
        self.lines: dict[str, deque[Turn]] = {}
        """whose turn is next comes first"""
        self.counts: dict[str, int] = {}
        self.calls: deque[Call] = deque()
        self.questions = self.tokens = 0
        self.stirred = 0.0
        self.expected = 0
        """questions of those who were just answered and are likely to ask again"""
        self.closed = False
        self.changed = Condition()

    def put(self, ticket: Ticket, given: list[Turn]) -> None:
        """Queue up; a Problem where there is no room, or no more time."""
        count = sum(len(turn.questions) for turn in given)
        with self.changed:
            mine = self.counts.get(ticket.client, 0) + count
            self._check_room(mine, count)
            self.stir()
            self.lines.setdefault(ticket.client, deque()).extend(given)
            self.counts[ticket.client] = mine
            before, self.tokens = self.tokens, self.tokens + sum(turn.tokens for turn in given)
            self.questions += count
            last_back = 0 < self.expected <= count
            self.expected = max(0, self.expected - count)
            if self.questions == count or last_back or before < self.budget <= self.tokens:
                self.changed.notify_all()

    def _check_room(self, mine: int, count: int) -> None:
        if self.closed:
            raise Problem(503, "The server is shutting down. Ask again in a while.", {"Retry-After": "5"})
        if mine > self.client_limit or self.questions + count > self.limit:
            whose = f"You have {mine - count}" if mine > self.client_limit else f"All clients have {self.questions}"
            most = self.client_limit if mine > self.client_limit else self.limit
            raise Problem(429, f"{whose} questions waiting, of {most} at most. Ask these {count} again later.")

    def put_call(self, call: Call) -> None:
        """Have something called between two batches; a Problem where too many wait."""
        with self.changed:
            self._check_room(0, 0)
            if len(self.calls) >= self.call_limit:
                raise Problem(429, f"{len(self.calls)} such requests are waiting, the most there may be. Ask again later.")
            self.calls.append(call)
            self.changed.notify_all()

    def cancel(self, ticket: Ticket) -> None:
        """Nobody waits for these answers any more."""
        with self.changed:
            ticket.cancelled = True
            line = self.lines.get(ticket.client, deque())
            for turn in line:
                if turn.ticket is ticket:
                    self._leave(ticket.client, turn)
            kept = [turn for turn in line if turn.ticket is not ticket]
            line.clear()
            line.extend(kept)
            self._close_line(ticket.client)

    def answered(self, ticket: Ticket) -> None:
        """One question more of a ticket is answered; who has all answers is likely to ask again."""
        with self.changed:
            ticket.missing -= 1
            complete = ticket.missing == 0
            if complete:
                self.expected += len(ticket.answers)
        if complete:
            ticket.done()

    def take(self, last: Work | None = None) -> Work | None:
        """What to do next, after `last` is done, as soon as there is something; nothing once all is done for ever."""
        with self.changed:
            if last is not None:
                self.working.remove(last)
                self.changed.notify_all()
            if not self._await():
                return None
            if self.calls and not (last is not None and last.call is not None and self.questions):
                work = Work(self.calls.popleft(), [])
            else:
                self._gather()
                work = Work(None, list(self._fill()))
            self.working.append(work)
            return work

    def _await(self) -> bool:
        """Wait until there is something to do; whether there is. Who came last goes first: its caches are warm"""
        me = object()
        self.resting.append(me)
        try:
            while not (self.resting[-1] is me and self._may_begin()):
                if self.closed and not (self.questions or self.calls):
                    return False
                self.changed.wait()
            return True
        finally:
            self.resting.remove(me)
            self.changed.notify_all()

    def _may_begin(self) -> bool:
        """Whether there is something to do that need not wait for others' work"""
        if self.gathering or any(work.call and work.call.alone for work in self.working):
            return False
        if self.calls and self.calls[0].alone:
            return not self.working
        return bool(self.calls or self.questions)

    def stir(self) -> None:
        """A question has come or an answer gone: others are likely to follow, for clients that were answered ask again."""
        self.stirred = time.monotonic()

    def _gather(self) -> None:
        """Give others the time to join the batch: as many as are expected, if they come one soon after the other"""
        until = time.monotonic() + LONGEST * self.wait
        self.gathering = True
        while self.tokens < self.budget and self.expected and not self.closed:
            left = min(self.stirred + self.wait, until) - time.monotonic()
            if left <= 0:
                self.expected = 0
            else:
                self.changed.wait(left)
        self.gathering = False
        self.changed.notify_all()

    def _fill(self) -> Iterator[Turn]:
        part = (self.tokens + sum(work.tokens for work in self.working)) / self.takers
        used = 0
        while self.lines:
            client, line = next(iter(self.lines.items()))
            if used and (used >= part or used + line[0].tokens > self.budget):
                return
            turn = line.popleft()
            used += turn.tokens
            self._leave(client, turn)
            self.lines[client] = self.lines.pop(client)  # to the back
            self._close_line(client)
            yield turn

    def _leave(self, client: str, turn: Turn) -> None:
        self.counts[client] -= len(turn.questions)
        self.questions -= len(turn.questions)
        self.tokens -= turn.tokens

    def _close_line(self, client: str) -> None:
        if client in self.lines and not self.lines[client]:
            del self.lines[client], self.counts[client]

    def close(self) -> None:
        """Take no more; what waits is still handed out."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()
