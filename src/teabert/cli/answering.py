"""Commands that use what was trained: answers, vectors, probabilities, the server, exports."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from teabert.cli.base import FORMATS, Json, QuietFlag, RunFolder, TaskName, app, make_progress, print_json, print_table


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
    asked = predicting.Predicting(run, given, wanted, make_progress(quiet))
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

    done = embed(run, task, column, source, out, make_progress(quiet))
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

    fitted = calibrate(run, task, source, make_progress(quiet))
    if as_json:
        print_json(fitted.model_dump())
        return
    before = ("1", f"{fitted.loss_before:.4f}", f"{fitted.ece_before:.4f}")
    after = (f"{fitted.temperature:.4f}", f"{fitted.loss_after:.4f}", f"{fitted.ece_after:.4f}")
    print_table(("temperature", "negative log-likelihood", "calibration error"), [before, after])
    typer.echo(f"Fitted on {fitted.rows} rows; kept in {run}.")


def _list_settings(wanted: bool) -> None:
    if wanted:
        from teabert.serving.settings import describe_settings

        print_table(("setting", "default", "meaning"), describe_settings())
        raise typer.Exit


@app.command()
def serve(
    run: RunFolder,
    host: Annotated[str | None, typer.Option("--host", help="Where to listen; by default 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option("--port", help="By default 8000; 0 takes any free one.")] = None,
    task: Annotated[str | None, typer.Option("--task", help="The task that /predict answers.")] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", help="Processes that compute; by default one for each thread of the CPU.")
    ] = None,
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

    serve(run, serve_settings({"host": host, "port": port, "task": task, "workers": workers}, change or []), typer.echo)


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

    made = exports.export(run, to, task, out, int8, make_progress(quiet))
    if as_json:
        print_json(made.as_json())
        return
    if made.written.losses:
        titles = ("task", "rows", "metric", "fp32", "int8", "points lost", "largest difference")
        print_table(titles, [loss.cells() for loss in made.written.losses])
    for note in made.written.notes:
        typer.echo(note)
    typer.echo(f"Written: {made.path}")
