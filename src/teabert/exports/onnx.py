"""The whole model as one ONNX graph: padded ids, a mask and each row's task in, every task's outputs out; also in int8."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from teabert.batches import collate
from teabert.errors import UserError, missing_extra
from teabert.evaluation import judge
from teabert.exports.asked import Asked, Loss, Written
from teabert.exports.folders import calibrated, token_limit, write_json, write_tokenizer
from teabert.exports.padded import PaddedModel
from teabert.exports.readme import onnx_readme
from teabert.exports.running import answers, open_session, outputs, random_rows
from teabert.predictor import Predictor
from teabert.source import Source
from teabert.tasks import Task

GRAPH, SMALL = "model.onnx", "model-int8.onnx"
OPSET = 18
ALLOWED = 1e-4
"""Largest difference between the graph's outputs and the run's own, relative to outputs above 1."""
JUDGED = 1000
"""Dev rows of each task that int8 is judged on, chosen by seed where there are more."""


def write(asked: Asked, folder: Path) -> Written:
    """The graph, the tokenizer, teabert.json on inputs and outputs; with int8 a second graph and what it costs."""
    _check_extra()
    predictor = asked.predictor
    padded = PaddedModel(predictor.model, predictor.tasks).eval()
    with asked.progress.bar("writing the graph", 1) as advance:
        inputs = write_graph(padded, folder / GRAPH)
        advance(1)
    shape = predictor.model.encoder.shape
    difference = compare(predictor, folder / GRAPH)
    write_json(folder / "teabert.json", facts(predictor, inputs))
    write_tokenizer(predictor.text, shape, shape.longest, folder)
    (folder / "README.md").write_text(onnx_readme(predictor, inputs), encoding="utf-8")
    notes = [f"{_size(folder / GRAPH)}; its outputs differ from the run's own by {difference:.1g} at most"]
    notes += filter(None, [calibrated(predictor, predictor.tasks[name]) for name in predictor.model.tasks])
    if not asked.int8:
        return Written(notes)
    quantise(folder / GRAPH, folder / SMALL)
    return Written([*notes, _size(folder / SMALL)], judge_int8(asked, folder))


def write_graph(padded: PaddedModel, file: Path) -> list[str]:
    """Write the graph; the names of its inputs."""
    ids = torch.ones(3, 5, dtype=torch.long)
    rows = torch.zeros(3, dtype=torch.long)
    given: dict[str, Tensor] = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "task_ids": rows}
    if padded.segmented:
        given["token_type_ids"] = torch.zeros_like(ids)
    if padded.paired:
        given["second_row"] = torch.arange(3)
    sizes = {name: {0: "batch", 1: "tokens"} if each.ndim == 2 else {0: "batch"} for name, each in given.items()}
    # fused attention has strides that the exporter's decompositions forget; the plain one becomes the same operators
    with _quietly(), sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        program = torch.onnx.export(
            padded, kwargs=given, dynamic_shapes=sizes, opset_version=OPSET, dynamo=True, verbose=False
        )
        assert program is not None, "an export to no file gives the graph"
        name_outputs(program.model.graph, list(padded.sequences))
        program.save(file, external_data=False)
    return list(given)


def name_outputs(graph: Any, names: list[str]) -> None:
    """Call the outputs as the tasks are called; what inside the graph has such a name, such as `mean`, gets another one"""
    for value in [value for node in graph for value in node.outputs if value.name in names]:
        value.name = f"{value.name}.inner"
    for value, name in zip(graph.outputs, names, strict=True):
        value.name = name


def compare(predictor: Predictor, file: Path) -> float:
    """The largest difference between a graph's outputs and the run's own, on random rows; refused where it is large."""
    model = predictor.model
    shape = model.encoder.shape
    rows = random_rows({name: predictor.tasks[name].sequences for name in model.tasks}, shape.vocabulary, shape.longest)
    batch = collate([(mine, row) for mine in rows.values() for row in range(len(mine))], model.tasks)
    with torch.inference_mode():
        ours = {name: answer.numpy() for name, answer in model(batch).items()}
    theirs = answers(open_session(file), batch, shape.padding_id)
    off = [np.abs(theirs[name] - mine) / np.maximum(1, np.abs(mine)) for name, mine in ours.items()]
    worst = float(max(each.max() for each in off))
    if not worst <= ALLOWED:
        raise UserError(
            f"The ONNX graph answers otherwise than the run (by {worst:.2g} of 1), so it is not kept. Please report this"
            " with what `teabert doctor` prints; the run itself is intact."
        )
    return worst


def facts(predictor: Predictor, inputs: list[str]) -> dict[str, Any]:
    """What a program needs to know to use the graph"""
    shape = predictor.model.encoder.shape
    tasks = [_task_facts(predictor.tasks[name], number) for number, name in enumerate(predictor.model.tasks)]
    for each, name in zip(tasks, predictor.model.tasks, strict=True):
        each["max_tokens"] = token_limit(predictor.tasks[name], shape)
        each["temperature"] = predictor.calibration.temperature(name)
    return {"inputs": inputs, "padding_id": shape.padding_id, "tasks": tasks}


def _task_facts(task: Task, number: int) -> dict[str, Any]:
    found = {"task_id": number, "output": task.name, "kind": task.kind, "texts": len(task.texts), "clean": task.clean}
    labels = {"range": task.range} if task.kind == "score" else {"labels": task.labels}
    return found | labels | ({"pair": task.pair} if len(task.texts) == 2 else {})


def quantise(graph: Path, small: Path) -> None:
    """The same graph with weights of eight bits; what enters a multiplication is rounded to eight bits as it comes."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(graph)
    del model.graph.value_info[:]  # the exporter's notes on shapes contradict the weights that the quantiser turns round
    with _quietly():
        quantize_dynamic(model, small, weight_type=QuantType.QInt8, per_channel=True)


def judge_int8(asked: Asked, folder: Path) -> list[Loss]:
    """What eight bits cost each task: on its dev rows where they can be read, else on random ones."""
    predictor = asked.predictor
    shape = predictor.model.encoder.shape
    full, small = open_session(folder / GRAPH), open_session(folder / SMALL)
    losses = []
    for name in predictor.model.tasks:
        task = predictor.tasks[name]
        source, judged = _rows(asked, task)
        with asked.progress.bar(f"judging int8 on {name}", 2 * len(source.rows[name])) as advance:
            pair = [outputs(session, source, shape.padding_id, advance) for session in (full, small)]
        difference = float(np.abs(pair[0][name] - pair[1][name]).max())
        metric = task.all_metrics[0] if judged else ""
        labels = {name: source.rows[name].labels}
        values = [judge({name: task}, each, labels).tasks[name][metric] for each in pair] if judged else [None, None]
        losses.append(Loss(name, metric, len(source.rows[name]), values[0], values[1], difference))
    return losses


def _rows(asked: Asked, task: Task) -> tuple[Source, bool]:
    """Dev rows of a task and true; or random ones and false"""
    predictor = asked.predictor
    try:
        examples = predictor.read_split(task, "dev", asked.progress)
    except UserError:
        shape = predictor.model.encoder.shape
        rows = random_rows({task.name: task.sequences}, shape.vocabulary, shape.longest, count=64)
        return Source(rows, predictor.model.tasks), False
    order = np.random.default_rng(0).permutation(len(examples))[:JUDGED]
    return predictor.source({task.name: [examples[row] for row in sorted(order)]}, asked.progress), True


def _size(file: Path) -> str:
    return f"{file.name}: {file.stat().st_size / 1e6:.1f} MB"


def _check_extra() -> None:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        try:
            __import__(package)
        except ImportError as error:
            raise missing_extra(package, "export", "The ONNX export") from error


@contextmanager
def _quietly() -> Iterator[None]:
    """Without what the exporter says of other packages and of its own insides"""
    loggers = [logging.getLogger(name) for name in ("", "torch.onnx", "onnxscript", "onnx_ir")]
    levels = [each.level for each in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for each in loggers:
                each.setLevel(logging.ERROR)
            yield
        finally:
            for each, level in zip(loggers, levels, strict=True):
                each.setLevel(level)
