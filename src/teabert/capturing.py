"""Steps recorded once for every mold and played back: on a GPU a small step is mostly waiting for Python.

The first batch of a mold learns as usual, which warms up all that a recording needs; the second one is recorded and
played, all later ones are only played. Rows are laid out in pinned memory while earlier steps still run.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from teabert.engine import Engine, Loss
from teabert.kernels import why_no_kernels
from teabert.molds import Frame, Mold, Wanted, wanted_rows
from teabert.sampling import Pairs

AHEAD = 3
"""Batches of a mold that may be laid out before the first of them is read."""
MOST = 256
"""Molds that are recorded; further ones learn unrecorded."""
KNOWN = 2 * MOST
"""Molds whose frames are kept."""
KEPT = 256
"""Steps whose losses are kept until somebody reads them."""


@dataclass
class Cast:
    """A mold with all that belongs to it."""

    frame: Frame
    """where the recorded step reads"""
    pinned: list[Frame]
    read: list[torch.cuda.Event]
    """when each of the pinned frames may be written again"""
    turn: int = 0
    met: int = 0
    graph: torch.cuda.CUDAGraph | None = None
    kept: list[object] = field(default_factory=list)
    """what the recording needs to stay in memory"""


class Recorder:
    """The steps of an engine, recorded."""

    def __init__(self, engine: Engine, room: int, note: Callable[[str], None] = lambda text: None) -> None:
        self.engine, self.room, self.note = engine, room, note
        self.recording = True
        device = engine.model.device
        self.stream = torch.cuda.Stream(device)
        self.pool = torch.cuda.graph_pool_handle()
        self.exact, self.readable = engine.compares, engine.model.encoder.shape.longest
        self.tasks = list(engine.tasks)
        self.seated = [task for task in self.tasks if task not in self.exact]
        """those that have seats wherever tasks mix, lest every choice of tasks were a mold of its own"""
        self.users = engine.users()
        self.casts: dict[Mold, Cast] = {}
        self.losses = torch.zeros(len(self.tasks), device=device)
        """each task's in the last step that had it"""
        self.trail = torch.zeros(KEPT, len(self.tasks), device=device)
        self.steps = 0

    def step(self, pairs: Pairs, number: int) -> list[Loss]:
        """One step; its losses can be read until KEPT steps later"""
        engine = self.engine
        wanted = wanted_rows(pairs, self.tasks)
        seated = self.seated if len(wanted) > 1 else ()
        mold = Mold.of(wanted, engine.source.rows, self.tasks, self.room, self.exact, self.readable, seated)
        cast = self.casts.get(mold) or self._cast(mold)
        pinned = cast.pinned[cast.turn]
        cast.read[cast.turn].synchronize()
        pinned.fill(wanted, engine.source.rows, seed_of(engine.settings.seed, number))
        here = torch.cuda.current_stream()
        self.stream.wait_stream(here)
        with torch.cuda.stream(self.stream):
            cast.frame.take(pinned)
            cast.read[cast.turn].record()
            cast.turn = (cast.turn + 1) % AHEAD
            self._play(cast, wanted)
            mine = self.trail[self.steps % KEPT]
            mine.copy_(self.losses)
        here.wait_stream(self.stream)
        self.steps += 1
        return [Loss(task, tuple(rows), mine[self.tasks.index(task)], len(rows)) for task, rows in wanted.items()]

    def _cast(self, mold: Mold) -> Cast:
        device = self.engine.model.device
        pinned = [Frame(mold, torch.device("cpu"), pinned=True) for _ in range(AHEAD)]
        cast = Cast(Frame(mold, device), pinned, [torch.cuda.Event() for _ in pinned])
        if len(self.casts) < KNOWN:
            self.casts[mold] = cast
        return cast

    def _play(self, cast: Cast, wanted: Wanted) -> None:
        cast.met += 1
        if cast.graph is None and cast.met > 1 and self.recording:
            self._record_if_there_is_room(cast)
        if cast.graph is None:
            self.engine.optimizer.zero_grad(set_to_none=True)
            self._learn(cast.frame)
            for parameter, users in self.users.items():
                if wanted.keys().isdisjoint(users):  # its task has seats, but nobody sits there
                    parameter.grad = None
            self.engine.move()
        else:
            cast.graph.replay()

    @property
    def _recorded(self) -> int:
        return sum(cast.graph is not None for cast in self.casts.values())

    def _record_if_there_is_room(self, cast: Cast) -> None:
        """Nothing has run while a step was being recorded, so that it can still be learned unrecorded"""
        why = f"{MOST} are"
        try:
            self._record(cast)
        except torch.OutOfMemoryError:
            why = "they do not fit into the GPU's memory beside those that are"
            self.engine.optimizer.zero_grad(set_to_none=True)
        if cast.graph is None or self._recorded == MOST:
            self.recording = False
            self.note(f"steps of further shapes are not recorded: {why}. Fewer tasks in a batch make fewer shapes")

    def _record(self, cast: Cast) -> None:
        from teabert.kernels.adamw import RecordedAdamW

        optimizer = self.engine.optimizer
        assert isinstance(optimizer, RecordedAdamW), "an optimiser whose steps can be recorded"
        plan, uses = optimizer.plan(), self._uses(cast.frame, optimizer.numbers)
        optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
            self._learn(cast.frame)
            self.engine.clip()
            optimizer.settle()
            optimizer.launch(plan, taken(cast.frame, uses))
        optimizer.write(plan)
        cast.graph, cast.kept = graph, [plan, uses]

    def _uses(self, frame: Frame, parameters: Iterable[Tensor]) -> Tensor:
        """(parameters, tasks that have seats) 1 where a parameter serves a task"""
        seats = [part.task for part in frame.batch.parts]
        rows = [[float(task in self.users.get(parameter, seats)) for task in seats] for parameter in parameters]
        return torch.tensor(rows, device=self.losses.device)

    def _learn(self, frame: Frame) -> None:
        """Gradients, and what each task's examples cost"""
        for loss in self.engine.learn(frame.batch, frame.examples):
            self.losses[self.tasks.index(loss.task)].copy_(loss.summed.detach())


def taken(frame: Frame, uses: Tensor) -> Tensor | None:
    """(parameters,) 1 for those that serve a task of the frame's examples; nothing where all seats are one task's"""
    counted = [part.counted for part in frame.batch.parts if part.counted is not None]
    if len(counted) < 2:
        return None
    return (uses * torch.stack([each.amax() for each in counted])).amax(1)


def seed_of(seed: int, step: int) -> int:
    """The seed of a step's dropout: splitmix64 of both"""
    z = (seed * 0x9E3779B97F4A7C15 + step * 0xD1B54A32D192ED03 + 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return (z ^ (z >> 31)) >> 1


def why_not(engine: Engine, encoded: bool, accumulate: int) -> str | None:
    """Why this engine's steps are not recorded; nothing where they are"""
    if (why := why_no_kernels(engine.model.device)) is not None:
        return why
    if encoded:
        return "the encoder's answers are kept, and heads alone are quick"
    if engine.surgery is not None:
        return f"train.surgery: {engine.settings.surgery} looks at the gradients in every step"
    if accumulate > 1:
        return f"train.accumulate: {accumulate} sums up batches of several shapes"
    return None
