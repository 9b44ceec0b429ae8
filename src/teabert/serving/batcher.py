"""Between the event loop and the model: requests are tokenised here, gathered in the queue, answered in threads.

The event loop asks and waits; each model, here or in a process of its own, has a thread that takes packed batches for it,
and between two of them makes calls (attention, adding a task), so that nothing else touches the model while it works.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from threading import Thread
from typing import Protocol, TypeVar

from teabert.answers import Answer
from teabert.attention import Attention
from teabert.progress import Progress
from teabert.requests import Prepared, Refusal, Request, Text
from teabert.serving.metrics import Metrics
from teabert.serving.problems import Problem
from teabert.serving.queue import Call, FairQueue, Question, Ticket, Turn, turns
from teabert.serving.settings import ServeSettings
from teabert.tasks import Task

Found = TypeVar("Found")
Gone = Callable[[], Awaitable[bool]]
"""Whether the client has hung up."""
SLICE = 20_000
"""Characters that are tokenised before other requests get their turn on the event loop."""
EACH = 200
"""What any question costs besides its text, in characters."""
LOOK = 0.5
"""Seconds between two looks whether the client is still there."""
FAILED = "The model failed on this text; the server's log says why."
log = logging.getLogger("teabert.serving")


class Computing(Protocol):
    """Who computes: the Predictor itself, or one in another process."""

    def answer_prepared(self, prepared: Sequence[Prepared]) -> list[Answer]:
        """One packed batch"""

    def attention(self, text: Text, task: str) -> Attention:
        """How much a task reads each word"""


class Model(Computing, Protocol):
    """What the server needs of a Predictor."""

    tasks: dict[str, Task]

    def prepare_all(self, requests: Iterable[Request], progress: Progress | None = None) -> list[Prepared | Refusal]:
        """Requests checked and tokenised; a note where texts were cut"""


class Team(Protocol):
    """All who compute."""

    @property
    def computing(self) -> Sequence[Computing]:
        """Each of them"""

    def begin(self) -> None:
        """Called in the thread of each before all else"""

    def close(self) -> None:
        """Called once, after all else"""


class Alone:
    """The model itself, with so many threads."""

    def __init__(self, model: Model, threads: int | None = None) -> None:
        self.computing, self.threads = [model], threads

    def begin(self) -> None:
        """Take the threads."""
        if self.threads is not None:
            import torch

            torch.set_num_threads(self.threads)

    def close(self) -> None:
        """Nothing."""


class Notes(Progress):
    """Keeps what is noted while texts are tokenised: that some are too long."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    def note(self, text: str) -> None:
        """Keep it."""
        self.kept.append(text)


class Batcher:
    """The way to the model, for any number of clients."""

    def __init__(self, model: Model, settings: ServeSettings, metrics: Metrics, team: Team | None = None) -> None:
        self.model, self.settings, self.metrics = model, settings, metrics
        self.team = team or Alone(model)
        takers = len(self.team.computing)
        self.queue = FairQueue(
            settings.queue, settings.client_queue, settings.calls, settings.tokens, settings.wait_ms / 1000, takers
        )
        metrics.watch(self.queue)
        self.version = 0
        """of the model's tasks: what was prepared under an older one is prepared again"""
        self.pace = 0.0
        """seconds that a token has lately taken whoever computed it"""
        self.threads = [Thread(target=self._work, args=[each], name="model", daemon=True) for each in self.team.computing]

    def start(self) -> None:
        """Begin to answer; from the event loop that will ask."""
        self.loop = asyncio.get_running_loop()
        for thread in self.threads:
            thread.start()

    def close(self) -> None:
        """Answer what waits, then stop."""
        self.queue.close()
        for thread in self.threads:
            thread.join()
        self.team.close()

    @property
    def alive(self) -> bool:
        """Whether the threads that ask the model are there."""
        return all(thread.is_alive() for thread in self.threads)

    @property
    def ready(self) -> bool:
        """Whether questions are taken."""
        return self.alive and not self.queue.closed

    # on the event loop

    async def ask(
        self, client: str, requests: Sequence[Request], gone: Gone, whole: bool = False
    ) -> list[Answer | Refusal]:
        """The answers, in order; a bad request is refused in its place. `whole`: none of the texts may be cut."""
        arrived: asyncio.Future[None] = self.loop.create_future()
        ticket = Ticket(client, [None] * len(requests), lambda: self._tell(arrived))
        notes = Notes()
        questions = await self._prepare(ticket, requests, notes)
        if whole and notes.kept:
            raise Problem(
                413, "Some texts are longer than the task takes. Shorten them, or have them cut ('truncate': true)."
            )
        ticket.missing = len(questions)
        if questions:
            try:
                self.queue.put(ticket, list(turns(questions, self.settings.tokens)))
            except Problem as problem:
                raise self._with_retry(problem) from None
            await self._wait(ticket, arrived, gone)
            self.queue.stir()
        answers = [answer for answer in ticket.answers if answer is not None]
        assert len(answers) == len(requests), "an answer is missing"
        return answers

    async def call(self, function: Callable[[Computing], Found], alone: bool = False) -> Found:
        """The result of something that needs a model for itself; `alone`: all of them."""
        arrived: asyncio.Future[Found] = self.loop.create_future()

        def call(computing: Computing) -> None:
            if arrived.cancelled():  # it came too late, and nobody waits any more
                return
            try:
                found = function(computing)
            except Exception as error:  # whatever it is, it belongs to who asked
                self.loop.call_soon_threadsafe(_fail, arrived, error)
            else:
                self.loop.call_soon_threadsafe(_finish, arrived, found)

        try:
            self.queue.put_call(Call(call, alone))
        except Problem as problem:
            raise self._with_retry(problem) from None
        try:
            return await asyncio.wait_for(arrived, self.settings.deadline_s)
        except TimeoutError:
            raise self._late() from None

    async def change(self, function: Callable[[], Found]) -> Found:
        """The result of something that changes the model's tasks; what waits is then prepared anew."""

        def change(computing: Computing) -> Found:
            try:
                return function()
            finally:
                self.version += 1

        return await self.call(change, alone=True)

    async def _prepare(self, ticket: Ticket, requests: Sequence[Request], notes: Notes) -> list[Question]:
        questions, place, version = [], 0, self.version
        for some in slices(requests):
            for request, prepared in zip(some, self.model.prepare_all(some, notes), strict=True):
                if isinstance(prepared, Refusal):
                    self._refuse(ticket, place, prepared)
                else:
                    questions.append(Question(ticket, place, request, prepared, version))
                place += 1
            if place < len(requests):
                await asyncio.sleep(0)
        return questions

    async def _wait(self, ticket: Ticket, arrived: "asyncio.Future[None]", gone: Gone) -> None:
        until = ticket.since + self.settings.deadline_s
        while not arrived.done():
            left = until - time.monotonic()
            if left <= 0:
                self.queue.cancel(ticket)
                raise self._late()
            await asyncio.wait([arrived], timeout=min(left, LOOK))
            if not arrived.done() and await gone():
                self.queue.cancel(ticket)
                raise Problem(499, "The client hung up.")

    def _late(self) -> Problem:
        return Problem(504, f"No answer within {self.settings.deadline_s:g} seconds. Ask for less at once, or again later.")

    def _with_retry(self, problem: Problem) -> Problem:
        """When to come again: once what waits now is answered"""
        seconds = min(60, max(1, math.ceil(self.queue.tokens * self.pace / len(self.threads))))
        problem.headers.setdefault("Retry-After", str(seconds))
        return problem

    # in the threads

    def _tell(self, arrived: "asyncio.Future[None]") -> None:
        self.loop.call_soon_threadsafe(_finish, arrived, None)

    def _work(self, computing: Computing) -> None:
        self.team.begin()
        work = None
        while (work := self.queue.take(work)) is not None:
            if work.call is not None:
                work.call.function(computing)
            if work.batch:
                self._answer(computing, work.batch)
                self.queue.stir()

    def _answer(self, computing: Computing, batch: list[Turn]) -> None:
        questions = [question for turn in batch if not turn.ticket.cancelled for question in turn.questions]
        fresh = [question for question in map(self._fresh, questions) if question is not None]
        if fresh:
            self._answer_packed(computing, fresh)

    def _fresh(self, question: Question) -> Question | None:
        """The question, prepared anew if tasks have come or gone since; nothing if it is refused now"""
        if question.version == self.version:
            return question
        (prepared,) = self.model.prepare_all([question.request])
        if isinstance(prepared, Refusal):
            self._refuse(question.ticket, question.place, prepared)
            self.queue.answered(question.ticket)
            return None
        return Question(question.ticket, question.place, question.request, prepared, self.version)

    def _answer_packed(self, computing: Computing, questions: list[Question]) -> None:
        """One packed batch; where it fails, each half, so that one bad question harms no other"""
        begun = time.perf_counter()
        try:
            answers = computing.answer_prepared([each.prepared for each in questions])
        except Exception:
            if len(questions) > 1:
                middle = len(questions) // 2
                self._answer_packed(computing, questions[:middle])
                self._answer_packed(computing, questions[middle:])
                return
            self._fail(questions[0])
            return
        tokens, seconds = sum(each.prepared.tokens for each in questions), time.perf_counter() - begun
        self.pace = seconds / max(1, tokens)
        self.metrics.batch(questions, tokens, seconds)
        for question, answer in zip(questions, answers, strict=True):
            self._deliver(question, answer)

    def _refuse(self, ticket: Ticket, place: int, refusal: Refusal) -> None:
        ticket.answers[place] = refusal
        self.metrics.outcome(refusal.task if refusal.task in self.model.tasks else "unknown", "refused")

    def _fail(self, question: Question) -> None:
        """Inside an except block: what the model did with it goes into the log"""
        request = question.request
        log.exception("the model failed on a text of task %r", request.task)
        self.metrics.outcome(request.task, "failed")
        self._deliver(question, Refusal(request.task, request.id, FAILED))

    def _deliver(self, question: Question, answer: Answer | Refusal) -> None:
        question.ticket.answers[question.place] = answer
        self.queue.answered(question.ticket)


def slices(requests: Sequence[Request]) -> Iterator[list[Request]]:
    """Neighbouring requests, not much more at once than may keep the event loop busy."""
    some: list[Request] = []
    characters = 0
    for request in requests:
        if not some or request.text != some[-1].text:  # the tasks of one text tokenise it once
            if characters > SLICE:
                yield some
                some, characters = [], 0
            characters += sum(map(len, request.text))
        characters += EACH
        some.append(request)
    if some:
        yield some


def _finish(arrived: "asyncio.Future[Found]", found: Found) -> None:
    if not arrived.done():
        arrived.set_result(found)


def _fail(arrived: "asyncio.Future[Found]", error: Exception) -> None:
    if not arrived.done():
        arrived.set_exception(error)
