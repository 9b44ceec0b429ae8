"""`teabert calibrate`: labelled rows that neither trained nor scored -> a task's temperature, kept in the run folder."""

from collections.abc import Sequence
from pathlib import Path

from teabert.calibration import Calibration, TaskCalibration, fit
from teabert.dataset import read_examples, skipped_notes
from teabert.errors import UserError
from teabert.evaluation import outputs
from teabert.predictor import Predictor, load
from teabert.progress import Progress
from teabert.tasks import Task
from teabert.tasks.reading import Example, read_file


def calibrate(run: Path, task: str | None, path: Path, progress: Progress) -> TaskCalibration:
    """Fit the temperature of one of a run's tasks on the rows of a file; other tasks keep theirs."""
    predictor = load(run)
    chosen = predictor.task(task)
    if chosen.kind == "score":
        raise UserError(f"Task '{chosen.name}' answers with scores, which have no probabilities to calibrate.")
    table = read_file(chosen, path, labelled=True)
    progress.notes(skipped_notes(chosen.name, table))
    refuse_known(predictor, chosen, path, table.examples, progress)
    source = predictor.source({chosen.name: table.examples}, progress)
    with progress.bar("answering", len(table.examples)) as advance:
        found = outputs(predictor.model, source, predictor.precision, advance)
    fitted = fit({chosen.name: chosen}, found, {chosen.name: source.rows[chosen.name].labels}, path.name)
    Calibration(tasks=predictor.calibration.tasks | fitted.tasks).save(predictor.run.path)
    return fitted.tasks[chosen.name]


def refuse_known(predictor: Predictor, task: Task, path: Path, examples: Sequence[Example], progress: Progress) -> None:
    """Refuse rows whose texts the model was trained or scored on: it is surer of these than of others."""
    recipe = predictor.run.recipe
    try:
        known = read_examples(recipe.model_copy(update={"tasks": {task.name: task}}))
    except UserError as error:
        progress.note(f"whether these rows trained or scored the model is not checked: {error}")
        return
    for rows, how in ((known.select[task.name], "scored"), (known.train[task.name], "trained")):
        texts = {example.texts for example in rows}
        same = [example.name for example in examples if example.texts in texts]
        if same:
            raise UserError(
                f"{path}: {len(same)} of its {len(examples)} rows (row {', '.join(same[:5])}) have texts that the model was"
                f" {how} on. A temperature must be fitted on others: leave them out."
            )
