"""What all commands share: the app, their options, how they print."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from teabert.progress import Progress

app = typer.Typer(
    help="One BERT, many tasks: train, judge and use one encoder for all your text tasks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
RecipeFile = Annotated[str, typer.Argument(help="A recipe file, or the name of one that comes with teabert.")]
RunFolder = Annotated[Path, typer.Argument(help="A run folder.")]
Changes = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key, such as train.lr=3e-5.")
]
Out = Annotated[Path | None, typer.Option("--out", help="The run folder; by default a new one under runs/.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
QuietFlag = Annotated[bool, typer.Option("--quiet", help="No progress.")]
TaskName = Annotated[str | None, typer.Option("--task", help="Which task; not needed where the model has one.")]
FORMATS = Literal["jsonl", "csv", "tsv", "cs224n"]


def make_progress(quiet: bool) -> "Progress":
    """Live progress, or none"""
    from teabert.progress import Live, Quiet

    return Quiet() if quiet else Live()


def print_json(content: Any) -> None:
    """For programs"""
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False))


def show(content: Any, titles: "Sequence[str]", rows: "Iterable[Sequence[str]]", as_json: bool) -> None:
    """The content as JSON, or else as a table"""
    if as_json:
        print_json(content)
    else:
        print_table(titles, rows)


def print_table(titles: "Sequence[str]", rows: "Iterable[Sequence[str]]") -> None:
    """Columns with their titles"""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold")  # a path is of no use cut short
    for row in rows:
        table.add_row(*row)
    Console(highlight=False, markup=False).print(table)


def print_scores(scores: dict[str, Any], as_json: bool) -> None:
    """The table of scores, both overall ones beneath, and what they were chosen on."""
    if as_json:
        print_json(scores)
        return
    rows = [
        (task, str(scores["rows"][task]), "  ".join(f"{metric} {value:.4f}" for metric, value in metrics.items()))
        for task, metrics in scores["tasks"].items()
    ]
    print_table(("task", "rows", "scores"), rows)
    overall = scores["overall"]
    typer.echo(f"mean {overall['mean']:.4f}   course, (1+r)/2 for correlations: {overall['course']:.4f}")
    if "epoch" in scores:
        typer.echo(f"epoch {scores['epoch']}, the best by {scores['aggregate']} on {scores['select']}")


def in_words(answer: Any) -> str:
    """A score, or a label and its probability"""
    if answer.score is not None:
        return f"{answer.score:.2f}"
    return str(answer.label) if answer.probability is None else f"{answer.label} ({answer.probability:.2f})"
