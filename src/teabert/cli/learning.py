"""Commands that train: what is learned, from what, and one task more."""

from pathlib import Path
from typing import Annotated

import typer

from teabert.cli.base import (
    Changes,
    Json,
    Out,
    QuietFlag,
    RecipeFile,
    RunFolder,
    app,
    in_words,
    make_progress,
    print_json,
    print_scores,
    print_table,
    show,
)


@app.command()
def demo(out: Out = None, change: Changes = None, as_json: Json = False, quiet: QuietFlag = False) -> None:
    """Train the demo recipe on a synthetic corpus and show what it learned."""
    from teabert.demo import run_demo

    shown = run_demo(out, change or [], make_progress(quiet))
    if as_json:
        print_json(
            {"run": str(shown.run.path), "seconds": shown.seconds, "baseline": shown.baseline, "teabert": shown.ours}
        )
        return
    before, after = shown.baseline, shown.ours
    scores = [
        (task, metric, f"{before[task]:.3f}", f"{after[task]:.3f}", f"{100 * (after[task] - before[task]):+.1f}")
        for task, metric in shown.metrics.items()
    ]
    print_table(("task", "metric (dev)", "TF-IDF", "teabert", "points"), scores)
    samples = [(each.task, " / ".join(each.texts), in_words(each.answer), each.label) for each in shown.samples]
    print_table(("task", "first dev row", "answer", "label"), samples)
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
        run = training.train(config.load_recipe(recipe, change or []), out, resume, make_progress(quiet))
    except KeyboardInterrupt:
        typer.echo("teabert: interrupted; what was saved is intact, go on with --resume", err=True)
        raise typer.Exit(130) from None
    print_scores(run.scores() | {"run": str(run.path)}, as_json)
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

    print_scores(load(run).evaluate(split, make_progress(quiet)).as_json(), as_json)


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
    show(whole, ("task", "text", "kind", "metrics", column), rows, as_json)


@app.command("add-task")
def add_task(
    run: RunFolder,
    task: Annotated[Path, typer.Argument(help="A YAML file with one task, as in a recipe; or a task file to install.")],
    change: Changes = None,
    quiet: QuietFlag = False,
) -> None:
    """Train one more task on a run's model; what the old tasks answer stays the same to the bit."""
    from teabert.adding import add_task as add

    path = add(run, task, change or [], make_progress(quiet))
    typer.echo(f"{path} ({path.stat().st_size / 1000:.0f} kB)")


@app.command("remove-task")
def remove_task(run: RunFolder, name: Annotated[str, typer.Argument(help="An added task.")]) -> None:
    """Take an added task out of a run."""
    from teabert.adding import remove_task as remove

    remove(run, name)
    typer.echo(f"{run} no longer has task '{name}'.")
