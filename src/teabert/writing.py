"""What a run saves while it learns on: on a GPU in a thread of its own, elsewhere at once, always in the order given."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from torch import Tensor, device

Job = Callable[[], object]


class Writing:
    """Jobs that are gathered, then done one after another; one that goes wrong ends the rest and is heard of at the next
    `wait`."""

    def __init__(self, beside: bool) -> None:
        self.beside = beside
        self.gathered: list[Job] = []
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="writing") if beside else None
        self.going: Future[None] | None = None

    def add(self, job: Job) -> None:
        """One more, for the next `begin`; where there is no thread it is done now"""
        if self.beside:
            self.gathered.append(job)
        else:
            job()

    def begin(self) -> None:
        """Begin all that was gathered, once what was begun before is done"""
        if self.thread is not None and self.gathered:
            self.wait()
            jobs, self.gathered = self.gathered, []
            self.going = self.thread.submit(_all, jobs)

    def wait(self) -> None:
        """Until everything that was begun is done"""
        going = self.going
        if going is not None:
            try:
                going.result()
            finally:
                if going.done():  # not so where Ctrl+C ended the waiting
                    self.going = None

    def finish(self) -> None:
        """All that is left, to its end"""
        self.begin()
        self.wait()

    def copy(self, tensor: Tensor) -> Tensor:
        """A tensor as it is now, whatever becomes of it while it is written"""
        return tensor.detach().to("cpu", copy=self.beside).contiguous()


def beside(where: device) -> bool:
    """Whether a run writes beside learning: a processor that learns has no time for both"""
    return where.type == "cuda"


def _all(jobs: list[Job]) -> None:
    for job in jobs:
        job()
