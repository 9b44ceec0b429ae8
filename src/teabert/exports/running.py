"""An exported graph answers: packed rows in, padded arrays through onnxruntime, each task's outputs out."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from teabert.batches import Batch, Rows
from teabert.errors import missing_extra
from teabert.source import Source

Array = np.ndarray


def open_session(file: Path) -> Any:
    """An onnxruntime session on the processor, with as many threads as torch takes."""
    try:
        import onnxruntime
    except ImportError as error:
        raise missing_extra("onnxruntime", "export", "Running an ONNX graph") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def feed(batch: Batch, padding: int) -> dict[str, Array]:
    """A packed batch as the graph's inputs; a graph takes those that it has."""
    layout = batch.layout
    size = (len(layout.lengths), max(layout.lengths))
    place = (layout.sequence_of_token, layout.place_of_token)

    def grid(values: Tensor, fill: int) -> Array:
        return torch.full(size, fill).index_put(place, values).numpy()

    second = torch.arange(size[0])
    for part in batch.parts:
        if part.second is not None:
            second[part.first] = part.second
    return {
        "input_ids": grid(batch.ids, padding),
        "attention_mask": grid(torch.ones_like(batch.ids), 0),
        "token_type_ids": grid(batch.segments, 0),
        "task_ids": batch.task_of_sequence.numpy(),
        "second_row": second.numpy(),
    }


def answers(session: Any, batch: Batch, padding: int) -> dict[str, Array]:
    """Each task's outputs for a batch, (examples, outputs), as the model itself gives them"""
    wanted = {each.name for each in session.get_inputs()}
    given = {name: array for name, array in feed(batch, padding).items() if name in wanted}
    names = [part.task for part in batch.parts]
    found = dict(zip(names, session.run(names, given), strict=True))
    return {part.task: found[part.task][part.first.numpy()] for part in batch.parts}


def outputs(session: Any, source: Source, padding: int, advance: Callable[[int], None] | None = None) -> dict[str, Array]:
    """Each task's outputs for all its rows, (rows, outputs), in the order of the rows"""
    found: dict[str, Array] = {}
    for task, pairs in source.sweep(torch.device("cpu"), advance):
        batch = source.batch(pairs)
        part = answers(session, batch, padding)[task]
        if task not in found:
            found[task] = np.empty((len(source.rows[task]), part.shape[1]), dtype=np.float32)
        found[task][list(batch.parts[0].rows)] = part
    return found


def random_rows(sequences: Mapping[str, int], vocabulary: int, longest: int, count: int = 8) -> dict[str, Rows]:
    """Rows of random tokens for every task, seeded: enough to compare two models, of no other use"""
    draw = np.random.default_rng(0)
    made = {}
    for task, many in sequences.items():
        sizes = draw.integers(2, min(longest, 40) + 1, (many, count))
        parts = tuple([draw.integers(0, vocabulary, size).astype(np.int32) for size in part] for part in sizes)
        second = [int(size) // 2 for size in sizes[0]] if many == 1 else None
        made[task] = Rows(task, parts, second, np.zeros(count, np.float32), tuple(map(str, range(count))))
    return made
