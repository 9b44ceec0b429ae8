"""One task as a plain HuggingFace folder: for transformers where it fits exactly, else for sentence-transformers."""

from pathlib import Path

from teabert.errors import UserError
from teabert.exports import classification, sentences
from teabert.exports.asked import Asked, Written
from teabert.exports.folders import calibrated, cleaning
from teabert.exports.single import INSTEAD, MEANING, linear_layer, plain_encoder, pooling
from teabert.predictor import Predictor
from teabert.tasks import Task


def write(asked: Asked, folder: Path) -> Written:
    """Fill the folder of a task."""
    predictor, task, model = asked.predictor, asked.task, asked.predictor.model
    pooled, layer = pooling(predictor, task), linear_layer(model, task)
    if pooled is None:
        raise UserError(
            f"Task '{task.name}' reads by '{_named(task.head.read)}', which no class of transformers or"
            f" sentence-transformers does. {INSTEAD}"
        )
    if layer is None and sentences.similarity(model, task) is None:
        raise UserError(
            f"Task '{task.name}' compares two texts encoded apart by '{_named(task.head.answer)}', which no class of"
            f" transformers or sentence-transformers has; of answers for such pairs, dot and cosine fit. {INSTEAD}"
        )
    encoder = plain_encoder(predictor, task)
    _check_segments(predictor, task)
    if layer is not None and model.uses[task.name].stretch != "sigmoid" and classification.fits(encoder, pooled, layer):
        classification.write(predictor, task, encoder, layer, folder)
        kind, usage, meaning = "transformers' sequence classification", classification.usage(task), MEANING[task.kind]
    else:
        sentences.write(predictor, task, encoder, pooled, layer, folder)
        meaning = MEANING[task.kind] if layer is not None else sentences.meaning(model, task)
        kind, usage = "sentence-transformers", sentences.usage(model, task, layer)
    (folder / "README.md").write_text(
        f"# {task.name}\n\nOne task of a teabert model, as a plain folder for {kind}; the outputs are the model's own."
        f"\n\n{usage}\n{meaning} {calibrated(predictor, task)}".rstrip()
        + f"\n{cleaning(task)}",
        encoding="utf-8",
    )
    notes = [f"{task.name}: written for {kind}"]
    if cleaning(task):
        notes.append(f"{task.name}: texts must be cleaned first (clean: {task.clean}); README.md says how")
    return Written([*notes, *filter(None, [calibrated(predictor, task)])])


def _named(choice: object) -> str:
    return str(choice["method"]) if isinstance(choice, dict) else str(choice)


def _check_segments(predictor: Predictor, task: Task) -> None:
    """Refuse a joined pair whose second text has a segment of its own that the tokenizer's files do not give it"""
    if len(task.texts) == 1 or task.sequences == 2 or predictor.model.encoder.shape.segments < 2:
        return
    if 1 not in predictor.text.tokenizer.encode("a", "b").type_ids:
        raise UserError(
            f"Task '{task.name}': the run's tokenizer does not mark the second text of a pair, so transformers would read"
            f" pairs in another way. {INSTEAD}"
        )
