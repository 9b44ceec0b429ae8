"""What a long run tells its user: nothing, or live bars and a line per epoch on standard error."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from teabert.evaluation import Scores

Advance = Callable[[int], None]


class Progress:
    """Says nothing; base of what says something."""

    shown = False
    """Whether downloads show their progress too."""

    def note(self, text: str) -> None:
        """Something the user should know."""

    def notes(self, texts: Iterable[str]) -> None:
        """Several of them."""
        for text in texts:
            self.note(text)

    @contextmanager
    def bar(self, title: str, total: int, done: int = 0) -> Iterator[Advance]:
        """A bar that runs to `total`."""
        yield lambda count: None

    def epoch(self, number: int, scores: "Scores", best: bool) -> None:
        """An epoch has ended with these scores."""


Quiet = Progress


class Live(Progress):
    """Bars and lines on standard error; in a file, lines only."""

    shown = True

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(stderr=True, highlight=False)

    def note(self, text: str) -> None:
        """Something the user should know."""
        from rich.text import Text

        self.console.print(Text.assemble(("note ", "yellow"), text), soft_wrap=True)  # text as it is: it may quote brackets

    @contextmanager
    def bar(self, title: str, total: int, done: int = 0) -> Iterator[Advance]:
        """A bar that runs to `total`, with the time left."""
        from rich import progress

        columns = (
            "{task.description}",
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(),
        )
        quiet = not self.console.is_terminal
        with progress.Progress(*columns, console=self.console, transient=True, disable=quiet) as bars:
            bar = bars.add_task(title, total=total, completed=done)
            yield lambda count: bars.advance(bar, count)

    def epoch(self, number: int, scores: "Scores", best: bool) -> None:
        """An epoch has ended with these scores."""
        first = {task: next(iter(metrics.items())) for task, metrics in scores.tasks.items()}
        values = "  ".join(f"{task} {metric} {value:.3f}" for task, (metric, value) in first.items())
        mean = f"[bold]mean {scores.overall['mean']:.3f}[/]{'  best' if best else ''}"
        self.console.print(f"epoch {number:<3} {values}  {mean}", soft_wrap=True)
