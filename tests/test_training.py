"""The training loop: what a step means, what frozen mode may touch, what it says when things go wrong."""

import json
import math

import numpy as np
import pytest
import torch

import tiny
from teabert import load, parse_recipe, train
from teabert.calibration import fit_temperature
from teabert.device import is_out_of_memory, shortcomings
from teabert.errors import UserError
from teabert.evaluation import outputs
from teabert.progress import Progress, Quiet
from teabert.runs import Run
from teabert.source import Encoded
from teabert.tasks.reading import read_split
from teabert.training import Trainer


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return tiny.write_world(tmp_path_factory.mktemp("world"))


class Heard(Progress):
    """Keeps what the user would read."""

    def __init__(self):
        self.heard = []

    def note(self, text):
        self.heard.append(text)


def begin(world, out, progress=None, **train):
    changes = train.pop("changes", {})
    return Trainer.begin(parse_recipe(tiny.recipe(world, **train) | changes), out, progress or Quiet())


def without_dropout(trainer):
    for module in trainer.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    for block in trainer.model.encoder.blocks:
        object.__setattr__(block.shape, "attention_dropout", 0.0)
    return trainer


@pytest.mark.parametrize("optimizer", ["adamw", "course"])
def test_accumulated_batches_equal_one_large_batch(world, tmp_path, optimizer):
    whole = without_dropout(begin(world, tmp_path / "a", optimizer=optimizer, changes={"sampling": {"batch": 24}}))
    parts = without_dropout(begin(world, tmp_path / "b", optimizer=optimizer, accumulate=3))
    pairs = whole.sampler.epoch(0)[0]
    whole.step([pairs])
    parts.step([pairs[:10], pairs[10:17], pairs[17:]])
    for (name, one), (_, other) in zip(whole.model.named_parameters(), parts.model.named_parameters(), strict=True):
        assert one.grad is None or torch.allclose(one.grad, other.grad, atol=2e-6), name


def test_clipping_bounds_the_gradient_norm(world, tmp_path):
    trainer = begin(world, tmp_path / "run", clip=0.01)
    trainer.step([trainer.sampler.epoch(0)[0]])
    norms = [parameter.grad.norm() for parameter in trainer.model.parameters() if parameter.grad is not None]
    assert torch.stack(norms).norm() == pytest.approx(0.01, rel=1e-3)


def test_schedule_sets_the_learning_rate_of_every_step(world, tmp_path):
    trainer = begin(world, tmp_path / "run", schedule="linear", warmup=2, lr=0.01)
    rates = []
    for pairs in trainer.sampler.epoch(0)[:4]:
        trainer.step([pairs])
        rates.append(trainer.engine.optimizer.param_groups[0]["lr"])
    rest = trainer.steps - 2
    assert rates == pytest.approx([0.0, 0.005, 0.01, 0.01 * (rest - 1) / rest])


def test_task_weight_scales_its_loss(world, tmp_path):
    given = tiny.recipe(world)
    given["tasks"]["mood"]["weight"] = 3.0
    heavy = without_dropout(Trainer.begin(parse_recipe(given), tmp_path / "a", Quiet()))
    light = without_dropout(begin(world, tmp_path / "b"))
    gradients = []
    for trainer in (heavy, light):
        batch = trainer.source.batch([(0, 0), (0, 1)])
        trainer.engine.joint(list(trainer.engine.losses(trainer.model(batch), batch))).backward()
        gradients.append(trainer.model.head("mood").answer.linear.weight.grad)
    assert torch.allclose(gradients[0], 3 * gradients[1])


def test_balanced_class_weights_are_inverse_to_frequency(world, tmp_path):
    given = tiny.recipe(world)
    given["tasks"]["mood"]["class_weights"] = "balanced"
    trainer = Trainer.begin(parse_recipe(given), tmp_path / "run", Quiet())
    from sklearn.utils.class_weight import compute_class_weight

    labels = trainer.source.rows["mood"].labels
    expected = compute_class_weight("balanced", classes=np.arange(5), y=labels)
    assert trainer.engine.weights["mood"].tolist() == pytest.approx(expected, rel=1e-6)


def test_frozen_mode_leaves_every_encoder_weight_as_it_was(world, tmp_path):
    trainer = begin(world, tmp_path / "run", mode="frozen")
    before = {name: tensor.clone() for name, tensor in trainer.model.encoder.state_dict().items()}
    heads = {name: tensor.clone() for name, tensor in trainer.model.heads.state_dict().items()}
    trainer.run_all()
    assert all(torch.equal(before[name], tensor) for name, tensor in trainer.model.encoder.state_dict().items())
    assert not any(torch.equal(heads[name], tensor) for name, tensor in trainer.model.heads.state_dict().items())


@pytest.mark.parametrize("reader", ["mean", "first_token"])
def test_frozen_mode_on_kept_vectors_equals_encoding_anew(world, tmp_path, reader):
    given = tiny.recipe(world, mode="frozen")
    for task in given["tasks"].values():
        task["head"] = task.get("head", {}) | {"read": reader, "dropout": 0.0}
    kept = Trainer.begin(parse_recipe(given), tmp_path / "a", Quiet())
    anew = Trainer.begin(parse_recipe(given), tmp_path / "b", Quiet())
    assert isinstance(kept.source, Encoded)
    anew.encode_once = None
    anew.engine.source, anew.select = (type(kept.source).__mro__[1](each.rows) for each in (kept.source, kept.select))
    assert not isinstance(anew.engine.source, Encoded)
    kept.run_all()
    anew.run_all()
    for name, tensor in kept.model.heads.state_dict().items():
        assert torch.allclose(tensor, anew.model.heads.state_dict()[name], atol=1e-5), name
    found = (Run.open(tmp_path / side).scores()["tasks"] for side in "ab")
    for one, other in zip(*(scores.values() for scores in found), strict=True):
        assert one == pytest.approx(other, abs=1e-4)


def test_frozen_task_whose_head_has_nothing_to_learn_is_said_and_judged(world, tmp_path):
    given = tiny.recipe(world, mode="frozen") | {"sampling": {"batch": 8, "strategy": "blocks", "mixed": False}}
    given["tasks"]["near"]["head"] = {"answer": "cosine"}
    heard = Heard()
    run = train(parse_recipe(given), tmp_path / "run", progress=heard)
    assert "nothing is learned for near: frozen encoder, and a head without weights" in heard.heard
    assert set(run.scores()["tasks"]) == {"mood", "same", "near"}


def test_encoder_dropout_option_encodes_every_text_anew_with_dropout(world, tmp_path):
    trainer = begin(world, tmp_path / "run", mode="frozen", encoder_dropout=True)
    assert not isinstance(trainer.source, Encoded)
    trainer.engine.set_modes()
    assert trainer.model.encoder.training
    batch = trainer.source.batch([(0, 0), (0, 1)])
    assert not torch.equal(trainer.model.read(batch).states, trainer.model.read(batch).states)


def test_a_frozen_encoder_under_an_injection_never_drops_out(world, tmp_path):
    given = tiny.recipe(world, mode="frozen") | {"injection": "attention"}
    trainer = Trainer.begin(parse_recipe(given), tmp_path / "run", Quiet())
    for trained in (False, True):
        trainer.model.train(trained)  # as a new model is, and as judging leaves it
        trainer.step([trainer.sampler.epoch(0)[0]])
        assert trainer.model.training
        assert not trainer.model.encoder.training


def test_same_seed_gives_the_same_bits_and_another_seed_does_not(world, tmp_path):
    weights = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run = train(parse_recipe(tiny.recipe(world, seed=seed)), tmp_path / name)
        weights.append(run.load_best()["heads.mood.answer.linear.weight"])
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_best_epoch_is_kept_not_the_last(world, tmp_path):
    run = train(parse_recipe(tiny.recipe(world, epochs=4, lr=5e-3)), tmp_path / "run")
    epochs = [line["scores"]["overall"]["mean"] for line in run.log() if line["event"] == "epoch"]
    assert len(epochs) == 4
    assert run.scores()["epoch"] == epochs.index(max(epochs)) + 1
    assert run.scores()["overall"]["mean"] == max(epochs)
    again = load(run.path).evaluate("dev")
    assert again.overall["mean"] == pytest.approx(max(epochs))


def test_patience_stops_early(world, tmp_path):
    run = train(parse_recipe(tiny.recipe(world, epochs=30, patience=2, lr=1e-9)), tmp_path / "run")
    assert sum(line["event"] == "epoch" for line in run.log()) < 30


def test_selecting_on_a_part_of_train_keeps_those_rows_out_of_training(world, tmp_path):
    trainer = begin(world, tmp_path / "run", select=0.25)
    for name in trainer.tasks:
        trained, chosen = (set(source.rows[name].names) for source in (trainer.source, trainer.select))
        assert (len(trained), len(chosen)) == (18, 6)
        assert not trained & chosen
    trainer.run_all()
    assert trainer.run.scores()["select"] == "0.25 of the training rows"


def test_rows_held_out_for_calibration_neither_train_nor_select(world, tmp_path):
    trainer = begin(world, tmp_path / "run", select=0.25, calibrate=0.25)
    record = trainer.run._json("subsets.json")
    for name, held in (("mood", 6), ("same", 6), ("near", 0)):  # scores have no temperature
        rows = [set(map(int, trainer.source.rows[name].names)), set(record[name]["select"])]
        rows.append(set(record[name].get("calibrate", [])))
        assert [len(each) for each in rows] == [18 - held, 6, held]
        assert len(set.union(*rows)) == 24, "no row serves two purposes"


@pytest.mark.parametrize("mode", ["finetune", "frozen"])
def test_held_out_rows_make_the_best_models_probabilities_honest(world, tmp_path, mode):
    run = train(parse_recipe(tiny.recipe(world, calibrate=0.25, mode=mode)), tmp_path / "run")
    predictor = load(run.path)
    assert set(predictor.calibration.tasks) == {"mood", "same"}
    held = json.loads((run.path / "subsets.json").read_text())["mood"]["calibrate"]
    table = read_split(predictor.tasks["mood"], "train", str(world / "data"))
    source = predictor.source({"mood": [table.examples[row] for row in held]}, Quiet())
    found = outputs(predictor.model, source, "fp32")["mood"]
    fitted = predictor.calibration.tasks["mood"]
    assert fitted.temperature == pytest.approx(fit_temperature("classes", found, source.rows["mood"].labels), rel=1e-3)
    assert (fitted.rows, fitted.source) == (6, "0.25 of the training rows, held out")


@pytest.mark.parametrize(("take", "count"), [(7, 7), (0.5, 12)])
def test_taken_rows_are_seeded_and_saved(world, tmp_path, take, count):
    given = tiny.recipe(world)
    given["tasks"]["mood"]["take"] = take
    names = []
    for run in ("a", "b"):
        trainer = Trainer.begin(parse_recipe(given), tmp_path / run, Quiet())
        names.append(trainer.source.rows["mood"].names)
    assert names[0] == names[1]
    assert len(names[0]) == count
    saved = trainer.run._json("subsets.json")["mood"]
    assert [str(row) for row in saved["rows"]] == list(names[0])  # the tiny rows are named by their number


def test_taking_more_rows_than_there_are_is_refused(world, tmp_path):
    given = tiny.recipe(world)
    given["tasks"]["mood"]["take"] = 1000
    with pytest.raises(UserError, match="1000 of 24"):
        train(parse_recipe(given), tmp_path / "run")


def test_loss_that_is_no_number_stops_with_the_rows_and_keeps_what_was_saved(world, tmp_path):
    trainer = begin(world, tmp_path / "run", epochs=3)
    trainer.epoch()
    with torch.no_grad():
        trainer.model.heads["mood"].answer.linear.weight.fill_(math.nan)
    with pytest.raises(UserError, match=r"loss of 'mood' became nan at step 10 \(rows \d+") as caught:
        trainer.epoch()
    assert "intact" in str(caught.value)
    assert load(tmp_path / "run").predict("a film", task="mood")[0].label in "01234"


def test_collapse_is_said_in_words_and_can_stop_the_run(world, tmp_path):
    heard = Heard()
    trainer = begin(world, tmp_path / "a", heard, lr=1e-9)
    with torch.no_grad():
        trainer.model.heads["mood"].answer.linear.bias[3] = 100.0
    trainer.run_all()
    assert any(note.startswith("mood: every row got the same prediction") for note in heard.heard)
    stopped = begin(world, tmp_path / "b", lr=1e-9, on_collapse="stop")
    with torch.no_grad():
        stopped.model.heads["mood"].answer.linear.bias[3] = 100.0
    with pytest.raises(UserError, match="on_collapse"):
        stopped.run_all()


def test_log_tells_planned_and_actual_examples(world, tmp_path):
    given = tiny.recipe(world) | {"sampling": {"batch": 8, "strategy": "square_root", "epoch_examples": 50}}
    run = train(parse_recipe(given), tmp_path / "run")
    line = next(line for line in run.log() if line["event"] == "epoch")
    seen = {}
    for each in run.log():
        if each["event"] == "loss" and each["epoch"] == 1:
            for task, count in each["examples"].items():
                seen[task] = seen.get(task, 0) + count
    assert {task: count["actual"] for task, count in line["examples"].items()} == seen
    assert sum(count["planned"] for count in line["examples"].values()) == pytest.approx(50)


def test_long_texts_are_cut_and_counted(world, tmp_path):
    long = tmp_path / "data"
    tiny.write_data(long)
    file = long / "mood-train.tsv"
    file.write_text(file.read_text() + "99\t" + "film " * 10_000 + "\t3\n")
    heard = Heard()
    given = tiny.recipe(world) | {"data": str(long)}
    Trainer.begin(parse_recipe(given), tmp_path / "run", heard)
    assert "mood: 1 of 25 examples were cut to 48 tokens" in heard.heard


def test_skipped_rows_are_counted_and_said(world, tmp_path):
    tiny.write_data(tmp_path / "data")
    file = tmp_path / "data" / "mood-train.tsv"
    file.write_text(file.read_text() + "99\tfine\tseven\n")
    given = tiny.recipe(world) | {"data": str(tmp_path / "data")}
    given["tasks"]["mood"]["on_bad_row"] = "skip"
    heard = Heard()
    Trainer.begin(parse_recipe(given), tmp_path / "run", heard)
    [skipped] = [note for note in heard.heard if "skipped" in note]
    assert skipped.startswith("mood: 1 rows skipped (mood-train.tsv line 26: label 'seven' is not one of 0, 1")


@pytest.mark.parametrize(
    ("device", "precision", "native", "line"),
    [
        ("cpu", "bf16", True, "there is no GPU: computing on CPU, 1 thread"),
        ("cpu", "fp32", True, "there is no GPU: computing on CPU, 1 thread"),
        (
            "cpu",
            "fp32",
            False,
            "there is no GPU: computing on CPU, 1 thread in fp32, as the processor does not compute in bf16",
        ),
        ("cuda", "fp32", False, "computing on Tesla T4 in fp32, as it does not compute in bf16"),
        ("cuda", "fp32", True, None),
        ("cuda", "bf16", True, None),
    ],
)
def test_a_line_says_what_is_slower_here(monkeypatch, device, precision, native, line):
    monkeypatch.setattr("teabert.device.computes_bf16", lambda device: native)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    assert list(shortcomings(torch.device(device), precision)) == ([] if line is None else [line])


def test_bf16_keeps_fp32_master_weights_and_stays_close(world, tmp_path):
    losses = {}
    for precision in ("fp32", "bf16"):
        run = train(parse_recipe(tiny.recipe(world, precision=precision)), tmp_path / precision)
        assert {tensor.dtype for tensor in run.load_best().values()} == {torch.float32}
        losses[precision] = [line["loss"] for line in run.log() if line["event"] == "loss"][-1]
    for task, loss in losses["fp32"].items():
        assert losses["bf16"][task] == pytest.approx(loss, rel=0.05)


def test_bf16_run_gives_scores_in_full_precision(world, tmp_path):
    trainer = begin(world, tmp_path / "run", precision="bf16")
    found = outputs(trainer.model, trainer.select, "bf16")["near"]
    assert found.dtype == np.float32
    rounded = torch.from_numpy(found).bfloat16().float().numpy()
    assert (found != rounded).mean() > 0.9


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes"),
        MemoryError("no more"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_out_of_memory_names_what_to_lower_and_leaves_the_checkpoint(world, tmp_path, monkeypatch, error):
    trainer = begin(world, tmp_path / "run")
    trainer.epoch()
    saved = {path: path.read_bytes() for path in sorted((tmp_path / "run").rglob("*")) if path.is_file()}

    def full(*given):
        raise error

    monkeypatch.setattr(trainer.engine, "backward", full)
    with pytest.raises(
        UserError, match=r"Out of memory at step 10, with 8 examples of \d+ tokens.*\nLower sampling.batch .now 8"
    ):
        trainer.epoch()
    assert saved == {path: path.read_bytes() for path in sorted((tmp_path / "run").rglob("*")) if path.is_file()}
    monkeypatch.undo()
    assert Trainer.resume(tmp_path / "run", Quiet()).run_all().scores()


def test_an_error_that_follows_from_a_lack_of_memory_is_one():
    error = RuntimeError("operation failed due to a previous error during capture")
    error.__context__ = torch.OutOfMemoryError("CUDA out of memory")
    assert is_out_of_memory(error)
    assert not is_out_of_memory(RuntimeError("operation failed due to a previous error during capture"))


def test_an_error_that_is_not_about_memory_is_not_made_one(world, tmp_path, monkeypatch):
    trainer = begin(world, tmp_path / "run")

    def broken(*given):
        raise RuntimeError("shapes cannot be multiplied")

    monkeypatch.setattr(trainer.engine, "backward", broken)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        trainer.epoch()
