"""Commands around tables of results: run, carry, write, judge, show."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from teabert.cli.base import Json, QuietFlag, app, make_progress, print_json, print_table, show

if TYPE_CHECKING:
    from teabert.experiments.summary import Summary


@app.command()
def report(
    place: Annotated[Path, typer.Argument(metavar="RUN_OR_TABLE", help="A run folder, or a table's folder.")],
    out: Annotated[Path | None, typer.Option("--out", help="A file; by default report.html in that folder.")] = None,
    as_json: Json = False,
    quiet: QuietFlag = False,
) -> None:
    """Write one page that shows all of a run or a table, to be opened in any browser; --json prints its numbers too."""
    from teabert.reports import report

    made = report(place, out, make_progress(quiet))
    if as_json:
        print_json(made.as_json())
    else:
        typer.echo(f"Written: {made.path}")


@app.command()
def table(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Which tables; without one, they are listed.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="ROW", help="Run this row, a pattern ('input-*'), TABLE/ROW or TABLE/ROW/TASK."),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="So many runs of each row, seeds counted up.")] = 3,
    encoder: Annotated[str | None, typer.Option("--encoder", help="Start from this one.")] = None,
    workers: Annotated[int, typer.Option("--workers", min=1, help="So many runs at once, each in a process.")] = 1,
    minutes: Annotated[
        float | None,
        typer.Option("--minutes", min=0.0, help="For the runs: none begins that cannot end in this time, then all stops."),
    ] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", min=1, help="A reduced table: so many epochs.")] = None,
    rows: Annotated[
        float | None, typer.Option("--rows", help="A reduced table: this part of all training rows, such as 0.1.")
    ] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A reduced table: change a key of every recipe.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Where results, runs and tables are.")] = Path("results"),
    keep_models: Annotated[
        bool,
        typer.Option("--keep-models", help="Keep the best model of every run; runs whose model is gone are done again."),
    ] = False,
    show_plan: Annotated[bool, typer.Option("--plan", help="Run nothing: show what is missing and its steps.")] = False,
    run_only: Annotated[bool, typer.Option("--run-only", help="Write no tables, only results to be merged.")] = False,
    write_only: Annotated[bool, typer.Option("--write-only", help="Run nothing: write tables of what is there.")] = False,
    as_json: Json = False,
    quiet: QuietFlag = False,
) -> None:
    """Run what is missing of the papers' tables and write them down; stopped at any moment, the same command goes on."""
    from teabert.experiments import TABLES

    if not names:
        found = [(each.name, str(len(each.rows)), each.title) for each in TABLES.values()]
        rows_of = {each.name: {"title": each.title, "rows": [row.name for row in each.rows]} for each in TABLES.values()}
        show(rows_of, ("table", "rows", "title"), found, as_json)
        return
    from teabert.experiments import plan, running
    from teabert.experiments.jobs import Choices

    choices = Choices(encoder, seeds, epochs, rows, tuple(change or ()))
    if show_plan:
        planned = running.plan_tables(names, choices, out, only or [])
        show([each.as_json() for each in planned], plan.TITLES, [each.cells() for each in planned], as_json)
        if not as_json:
            typer.echo(f"{sum(each.steps_missing for each in planned):,} steps are missing.")
        return
    how = running.How(only or [], workers, minutes, keep_models, run=not write_only, write=not run_only)
    try:
        with running.stoppable():
            done = running.run_tables(names, choices, out, how, make_progress(quiet))
    except KeyboardInterrupt:
        typer.echo("teabert: interrupted; what was saved is intact, the same command goes on", err=True)
        raise typer.Exit(130) from None
    if as_json:
        print_json(done.summaries[0] if len(done.summaries) == 1 else done.summaries)
    else:
        for summary, folder in zip(done.summaries, done.folders, strict=True):
            _table_of_results(summary, folder)
    if done.failed:
        typer.echo(
            f"teabert: {len(done.failed)} runs failed; table.md says why, the same command tries them again", err=True
        )
        raise typer.Exit(1)


def _table_of_results(summary: "Summary", folder: Path) -> None:
    from teabert.experiments import writing

    typer.echo(summary["title"])
    lines = [writing.in_one_cell(row, summary) for row in summary["rows"]]
    print_table(("row", "seeds", "mean ± deviation over seeds (the paper's)"), lines)
    typer.echo(f"Written: {folder}")


@app.command()
def verdicts(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where `teabert table` put its results.")] = Path("results"),
    as_json: Json = False,
    quiet: QuietFlag = False,
) -> None:
    """Say which claims of the papers hold, with the numbers and the test behind each."""
    from teabert.experiments.verdicts import TITLES
    from teabert.experiments.verdicts import verdicts as judge

    found = judge(folder, progress=make_progress(quiet))
    lines = [(each.encoder, *each.cells()) for each in found]
    show([each.as_json() for each in found], ("encoder", *TITLES), lines, as_json)


results_app = typer.Typer(help="Results of tables, from machine to machine.", no_args_is_help=True)


app.add_typer(results_app, name="results")


ResultsFolder = Annotated[Path, typer.Option("--out", help="Where `teabert table` keeps its results.")]


@results_app.command("pack")
def results_pack(
    file: Annotated[Path, typer.Argument(help="The file to write, such as results.tar.xz.")],
    folder: ResultsFolder = Path("results"),
    as_json: Json = False,
) -> None:
    """Write all results into one small file, to be merged on another machine."""
    from teabert.experiments.carrying import pack

    made = pack(folder, file)
    line = f"Written: {file} ({made.runs} runs, {made.failed} failed ones, {file.stat().st_size / 1e6:.2f} MB)"
    print_json(vars(made)) if as_json else typer.echo(line)


@results_app.command("merge")
def results_merge(
    given: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Packs, or folders of results.")],
    folder: ResultsFolder = Path("results"),
    as_json: Json = False,
) -> None:
    """Add the results of other machines; `teabert table NAME --write-only` then writes the tables."""
    from teabert.experiments.carrying import merge

    merged = [merge(each, folder) for each in given]
    if as_json:
        print_json([vars(each) for each in merged])
        return
    for each in merged:
        typer.echo(f"{each.file}: {each.runs} runs, {each.new} of them new, {each.failed} failed ones")


@results_app.command("predictions")
def results_predictions(
    row: Annotated[str, typer.Argument(metavar="TABLE[/ROW]", help="A row, or a table, whose best row is then taken.")],
    encoder: Annotated[str | None, typer.Option("--encoder", help="Of the runs that started from this one.")] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="As for `teabert table`.")] = 3,
    to: Annotated[Path | None, typer.Option("--to", help="By default predictions/ below the results.")] = None,
    folder: ResultsFolder = Path("results"),
) -> None:
    """Write the course's prediction files for its unlabelled test rows, from what runs answered; no model is needed."""
    from teabert.experiments.jobs import Choices
    from teabert.experiments.submitting import submit

    for file in submit(row, Choices(encoder, seeds), folder, to or folder / "predictions"):
        typer.echo(f"Written: {file}")
