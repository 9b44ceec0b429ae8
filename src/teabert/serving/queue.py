"""The waiting room before the model: clients' questions in, batches out. Bounded, thread-safe; knows no HTTP, no model.

Each client has a line of its own. A batch is filled by turns, one of each client after the other; a turn is one text with
its tasks, so that a batch holds together what its tasks can share. The budget of a batch is its tokens.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from threading import Condition

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
class Work:
    """What the model's thread does next: at most one call, then at most one batch."""

    call: Callable[[], None] | None
    batch: list[Turn]


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

    def __init__(self, limit: int, client_limit: int, call_limit: int, budget: int, wait: float) -> None:
        self.limit, self.client_limit, self.call_limit = limit, client_limit, call_limit
        self.budget, self.wait = budget, wait
        """tokens in a batch; seconds without anything coming or going after which it is not waited for more"""
        self.lines: dict[str, deque[Turn]] = {}
        """whose turn is next comes first"""
        self.counts: dict[str, int] = {}
        self.calls: deque[Callable[[], None]] = deque()
        self.questions = self.tokens = 0
        self.stirred = 0.0
        self.answered = self.expected = 0
        """questions of the last batch; those that a batch need not wait beyond, for all who asked before have come back"""
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
            all_here = self.questions - count < self.expected <= self.questions
            if self.questions == count or all_here or before < self.budget <= self.tokens:
                self.changed.notify()

    def _check_room(self, mine: int, count: int) -> None:
        if self.closed:
            raise Problem(503, "The server is shutting down. Ask again in a while.", {"Retry-After": "5"})
        if mine > self.client_limit or self.questions + count > self.limit:
            whose = f"You have {mine - count}" if mine > self.client_limit else f"All clients have {self.questions}"
            most = self.client_limit if mine > self.client_limit else self.limit
            raise Problem(429, f"{whose} questions waiting, of {most} at most. Ask these {count} again later.")

    def put_call(self, call: Callable[[], None]) -> None:
        """Have something called between two batches; a Problem where too many wait."""
        with self.changed:
            self._check_room(0, 0)
            if len(self.calls) >= self.call_limit:
                raise Problem(429, f"{len(self.calls)} such requests are waiting, the most there may be. Ask again later.")
            self.calls.append(call)
            self.changed.notify()

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

    def take(self) -> Work | None:
        """What to do next, as soon as there is something; nothing once the queue is closed and empty."""
        with self.changed:
            self.expected = self.answered + self.questions
            while not (self.questions or self.calls or self.closed):
                self.changed.wait()
            if not (self.questions or self.calls):
                return None
            call = self.calls.popleft() if self.calls else None
            if call is None:
                self._gather()
            batch = list(self._fill())
            self.answered = sum(len(turn.questions) for turn in batch)
            return Work(call, batch)

    def stir(self) -> None:
        """A question has come or an answer gone: others are likely to follow, for clients that were answered ask again."""
        self.stirred = time.monotonic()

    def _gather(self) -> None:
        """Give others the time to join the batch: as many as are expected, if they come one soon after the other"""
        until = time.monotonic() + LONGEST * self.wait
        while self.tokens < self.budget and self.questions < self.expected and not (self.closed or self.calls):
            left = min(self.stirred + self.wait, until) - time.monotonic()
            if left <= 0:
                return
            self.changed.wait(left)

    def _fill(self) -> Iterator[Turn]:
        used = 0
        while self.lines:
            client, line = next(iter(self.lines.items()))
            if used and used + line[0].tokens > self.budget:
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
            self.changed.notify()
