"""The README.md of an ONNX folder: what goes in, what comes out, how to run it with onnxruntime and tokenizers alone."""

from teabert.exports.card import labels, table
from teabert.exports.folders import calibrated, cleaning, special_tokens
from teabert.exports.single import MEANING
from teabert.predictor import Predictor
from teabert.tasks import Task

INPUTS = {
    "input_ids": "(batch, tokens) token ids, filled up at the end",
    "attention_mask": "(batch, tokens) 1 for real tokens, 0 for what fills up",
    "task_ids": "(batch,) the number of each row's task",
    "token_type_ids": "(batch, tokens) 1 from the second text of a joined pair on, else 0",
    "second_row": (
        "(batch,) for tasks with `pair: apart`, the row that holds a pair's second text, which is a row of its own with the"
        " same task id; for all other rows their own number. The answer stands in the row of the first text"
    ),
}
LOGITS = MEANING | {"binary": "One logit z; sigmoid(z) is the probability of the second label."}


def onnx_readme(predictor: Predictor, inputs: list[str]) -> str:
    """The whole page."""
    shape, tasks = predictor.model.encoder.shape, [predictor.tasks[name] for name in predictor.model.tasks]
    lines = [(str(number), f"`{task.name}`", labels(task), LOGITS[task.kind]) for number, task in enumerate(tasks)]
    takes = "\n".join(f"- `{name}`: {INPUTS[name]}" for name in inputs)
    notes = "".join(f"\n## Cleaning of {task.name}\n{cleaning(task)}" for task in tasks if cleaning(task))
    warmth = "\n".join(filter(None, [calibrated(predictor, task) for task in tasks]))
    padding = special_tokens(predictor.text.tokenizer, shape)["pad_token"]
    return f"""# {predictor.run.recipe.name}: all tasks in one ONNX graph

Inputs, all int64:

{takes}

Every output is called as its task. Rows of other tasks are not-a-number in it.

{table(("task id", "output", "labels", "meaning"), lines)}

```python
import numpy as np
import onnxruntime
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("THIS_FOLDER/tokenizer.json")
tokenizer.enable_truncation({shape.longest})
tokenizer.enable_padding(pad_id={shape.padding_id}, pad_token="{padding}")
session = onnxruntime.InferenceSession("THIS_FOLDER/model.onnx")
{_snippet(tasks, inputs)}
```

`teabert.json` says the same for programs, with the most tokens of each task. {warmth}
{notes}"""


def _snippet(tasks: list[Task], inputs: list[str]) -> str:
    """One example of the first task that is simplest to show"""
    number, task = min(enumerate(tasks), key=lambda each: (each[1].sequences, len(each[1].texts)))
    texts = {1: '"A text."', 2: '("The first text.", "The second.")'}[len(task.texts)]
    count = 1
    if task.sequences == 2:
        texts, count = '"The first text.", "The second."', 2
    lines = [
        f"rows = tokenizer.encode_batch([{texts}])",
        "given = {",
        '    "input_ids": np.array([row.ids for row in rows]),',
        '    "attention_mask": np.array([row.attention_mask for row in rows]),',
        f'    "task_ids": np.array({[number] * count}),',
    ]
    if "token_type_ids" in inputs:
        lines.append('    "token_type_ids": np.array([row.type_ids for row in rows]),')
    if "second_row" in inputs:
        lines.append(f'    "second_row": np.array({[count - 1] * count}),')
    return "\n".join([*lines, "}", f'print(session.run(["{task.name}"], given)[0][0])'])
