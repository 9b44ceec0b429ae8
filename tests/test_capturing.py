"""Recorded steps learn what unrecorded ones learn, with every injection: on a GPU. All but recording: anywhere."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import tiny
from injected import METHODS, name_of
from teabert import capturing
from teabert.batches import Layout
from teabert.capturing import Recorder, seed_of, taken, why_not
from teabert.config import parse_recipe
from teabert.encoder import attend
from teabert.errors import UserError
from teabert.kernels import Draws, has_triton
from teabert.molds import Frame, Mold
from teabert.progress import Quiet
from teabert.training import Trainer, train

gpu = pytest.mark.skipif(
    not (torch.cuda.is_available() and has_triton()), reason="recorded steps need a GPU, and Triton (pip install triton)"
)
WIDE = {"hidden_size": 64, "num_attention_heads": 4, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """The tiny world with attention heads that the kernels take, and without dropout"""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny, "CONFIG", tiny.CONFIG | WIDE)
        return tiny.write_world(tmp_path_factory.mktemp("wide"))


def losses(world, folder, steps=24, changes=None, **settings):
    """Of the first steps: (task, loss an example)"""
    given = tiny.recipe(world, **{"epochs": 8, "precision": "bf16", **settings})
    for task in given["tasks"].values():
        task["head"] = {**task.get("head", {}), "dropout": 0.0}
    trainer = Trainer.begin(parse_recipe(given | (changes or {})), folder / f"run-{len(list(folder.iterdir()))}", Quiet())
    found = []
    for epoch in range(8):
        for pairs in trainer.sampler.epoch(epoch):
            learned = trainer.learn([pairs], 1e-3)[0]
            found += sorted((loss.task, loss.summed.item() / loss.count) for loss in learned)
            trainer.place.step += 1
            if trainer.place.step == steps:
                return found, trainer
    raise AssertionError("too few batches")


def same(one, other, bound):
    assert [task for task, _ in one] == [task for task, _ in other]
    for (task, mine), (_, theirs) in zip(one, other, strict=True):
        assert abs(mine - theirs) <= bound * max(1, abs(theirs)), task


class Still:
    """A stream, an event or a graph where there is no GPU"""

    def __init__(self, *given):
        pass

    def nothing(self, *given):
        pass

    record = synchronize = wait_stream = nothing


@pytest.fixture
def still(monkeypatch):
    """torch.cuda as far as a recorder needs it to learn unrecorded, on a CPU"""
    for name in ("Stream", "Event"):
        monkeypatch.setattr(torch.cuda, name, Still)
    monkeypatch.setattr(torch.cuda, "current_stream", Still)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(capturing, "Frame", lambda mold, device, pinned=False: Frame(mold, device))
    monkeypatch.setattr(Recorder, "_record", lambda self, cast: None)


def begin(world, folder, changes=None, **settings):
    given = tiny.recipe(world, **{"epochs": 8, "precision": "fp32", **settings})
    for task in given["tasks"].values():
        task["head"] = {**task.get("head", {}), "dropout": 0.0}
    return Trainer.begin(parse_recipe(given | (changes or {})), folder, Quiet())


def steps(trainer, count):
    """The task losses of so many steps"""
    found = []
    for pairs in trainer.sampler.epoch(0)[:count]:
        losses = sorted((loss.task, loss.summed.item(), int(loss.count)) for loss in trainer.learn([pairs], 1e-3)[0])
        found.append(losses)
        trainer.place.step += 1
    return found


@pytest.mark.parametrize(("batch", "mixed"), [(8, False), (8, True), (2, True)])
@pytest.mark.parametrize("choice", ["attention", {"method": "lora", "rank": 2}], ids=name_of)
def test_steps_on_frames_are_those_on_packed_batches(world, tmp_path, still, batch, mixed, choice):
    changes = {"sampling": {"batch": batch, "mixed": mixed}, "injection": choice}
    facts = {"weighting": "uncertainty", "weight_decay": 0.1, "clip": 0.5}
    plain, framed = (begin(world, tmp_path / name, changes, **facts) for name in ("plain", "framed"))
    framed.recorder = Recorder(framed.engine, batch)
    for one, other in zip(steps(plain, 9), steps(framed, 9), strict=True):
        assert [(task, count) for task, _, count in one] == [(task, count) for task, _, count in other]
        assert np.allclose([loss for _, loss, _ in one], [loss for _, loss, _ in other], rtol=1e-4)
    for name, mine in framed.model.named_parameters():
        assert torch.allclose(mine, plain.model.get_parameter(name), atol=2e-4), name


def test_a_task_that_is_not_in_a_batch_stays_as_it_is(world, tmp_path, still):
    changes = {"sampling": {"batch": 8, "mixed": False}, "injection": "attention"}
    trainer = begin(world, tmp_path / "run", changes, weighting="uncertainty", weight_decay=0.1)
    trainer.recorder = Recorder(trainer.engine, 8)
    steps(trainer, 6)  # momentum everywhere
    mine = {name: each for name, each in trainer.model.named_parameters() if name in trainer.model.owned("near")}
    mine["weighting"] = trainer.engine.weighting.log_variances["near"]
    before = {name: each.detach().clone() for name, each in mine.items()}
    absent = [pairs for pairs in trainer.sampler.epoch(1) if list(trainer.tasks)[pairs[0, 0]] != "near"]
    for pairs in absent[:4]:
        trainer.learn([pairs], 1e-3)
        trainer.place.step += 1
    assert len(mine) > 3
    assert all(torch.equal(each, before[name]) for name, each in mine.items())


def test_a_task_that_has_seats_where_nobody_sits_is_not_taken(world, tmp_path, still):
    trainer = begin(world, tmp_path / "run", {"sampling": {"batch": 2, "mixed": True}, "injection": "attention"})
    recorder = trainer.recorder = Recorder(trainer.engine, 2)
    names = {parameter: name for name, parameter in trainer.model.named_parameters()}
    lacking = set()
    for pairs in trainer.sampler.epoch(0):
        trainer.learn([pairs], 1e-3)
        wanted = {trainer.engine.source.tasks[task] for task in pairs[:, 0]}
        if len(wanted) == 1:
            continue
        (frame,) = (cast.frame for mold, cast in recorder.casts.items() if len(mold.seats) == 3)
        found = taken(frame, recorder._uses(frame, names))
        stays = {name for name, is_taken in zip(names.values(), found.tolist(), strict=True) if not is_taken}
        absent = set(trainer.tasks) - wanted
        lacking |= absent
        pooled = any(trainer.recipe.tasks[task].head.read == "first_token" for task in wanted)
        unread = set() if pooled else {"encoder.pooler.weight", "encoder.pooler.bias"}
        assert stays == {name for name in names.values() if any(f".{task}" in name for task in absent)} | unread
    assert lacking == set(trainer.tasks)
    assert len(recorder.casts) == 4, "one for each task alone, and one for all that mix"


def test_a_loss_that_is_no_number_names_the_rows_of_its_frame(world, tmp_path, still):
    trainer = begin(world, tmp_path / "run", {"sampling": {"batch": 8, "mixed": False}})
    trainer.recorder = Recorder(trainer.engine, 8)
    with torch.no_grad():
        next(trainer.model.head("same").parameters()).fill_(torch.nan)
    batch = next(pairs for pairs in trainer.sampler.epoch(0) if list(trainer.tasks)[pairs[0, 0]] == "same")
    rows = ", ".join(trainer.source.rows["same"].names[row] for row in batch[:, 1])

    def learn():
        trainer.step([batch])
        trainer.read_losses()  # a GPU is not waited for in every step

    with pytest.raises(UserError, match=rf"loss of 'same' became nan at step 1 \(rows {rows}\)"):
        learn()


def test_where_a_recording_does_not_fit_into_memory_steps_go_on_unrecorded(world, tmp_path, still, monkeypatch):
    said = []

    def full(self, cast):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Recorder, "_record", full)
    plain, framed = (begin(world, tmp_path / name) for name in ("plain", "framed"))
    framed.recorder = Recorder(framed.engine, 8, said.append)
    for one, other in zip(steps(plain, 9), steps(framed, 9), strict=True):
        assert np.allclose([loss for _, loss, _ in one], [loss for _, loss, _ in other], rtol=1e-4)
    assert len(said) == 1
    assert "not recorded: they do not fit into the GPU's memory" in said[0]


def test_more_shapes_than_are_recorded_learn_unrecorded_and_are_not_kept(world, tmp_path, still, monkeypatch):
    said = []

    def record(self, cast):
        cast.graph = SimpleNamespace(replay=lambda: (self._learn(cast.frame), self.engine.move()))

    monkeypatch.setattr(Recorder, "_record", record)
    monkeypatch.setattr(capturing, "MOST", 1)
    monkeypatch.setattr(capturing, "KNOWN", 2)
    changes = {"sampling": {"batch": 8, "mixed": False}}
    plain, framed = (begin(world, tmp_path / name, changes) for name in ("plain", "framed"))
    framed.recorder = Recorder(framed.engine, 8, said.append)
    steps(plain, 9)
    steps(framed, 9)
    assert len(framed.recorder.casts) == 2
    assert framed.recorder._recorded == 1
    assert len(said) == 1
    assert "not recorded: 1 are" in said[0]


@gpu
@pytest.mark.parametrize("choice", METHODS, ids=name_of)
@pytest.mark.parametrize(("precision", "bound"), [("fp32", 1e-4), ("bf16", 2e-2)])
def test_recorded_steps_learn_as_unrecorded_ones_with_every_injection(world, tmp_path, choice, precision, bound):
    changes = {"injection": choice}
    recorded, trainer = losses(world, tmp_path, changes=changes, precision=precision)
    plain, other = losses(world, tmp_path, changes=changes, precision=precision, record=False)
    assert trainer.recorder is not None
    assert trainer.recorder._recorded > 0
    assert other.recorder is None
    same(recorded, plain, bound)


@gpu
@pytest.mark.parametrize("optimizer", ["adamw", "course"])
def test_recorded_steps_are_those_of_a_cpu(world, tmp_path, monkeypatch, optimizer):
    recorded, _ = losses(world, tmp_path, precision="fp32", optimizer=optimizer, clip=0.5, schedule="linear")
    monkeypatch.setattr("teabert.training.pick_device", lambda: torch.device("cpu"))
    plain, trainer = losses(world, tmp_path, precision="fp32", optimizer=optimizer, clip=0.5, schedule="linear")
    assert trainer.device.type == "cpu"
    same(recorded, plain, 1e-3)


@gpu
def test_the_same_seed_gives_the_same_bits(world, tmp_path):
    dropping = {"weighting": "uncertainty", "deterministic": True}
    one, first = losses(world, tmp_path, **dropping)
    other, second = losses(world, tmp_path, **dropping)
    assert one == other
    for mine, theirs in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@gpu
def test_a_run_that_is_resumed_ends_as_one_that_was_not(world, tmp_path):
    recipe = parse_recipe(tiny.recipe(world, epochs=4, precision="bf16"))
    whole = train(recipe, tmp_path / "whole").load_best()
    trainer = Trainer.begin(recipe, tmp_path / "cut", Quiet())
    trainer.epoch()
    trainer.epoch()
    again = Trainer.resume(tmp_path / "cut", Quiet()).run_all().load_best()
    assert again.keys() == whole.keys()
    for name, tensor in whole.items():
        assert torch.equal(again[name], tensor), name


@gpu
@pytest.mark.parametrize("biased", [False, True])
def test_kernels_attend_as_torch_does(biased):
    torch.manual_seed(0)
    lengths = [1, 4, 31, 32, 33, 64, 65, 150]
    layout = Layout.of(lengths).to(torch.device("cuda"))
    q, k, v = (torch.randn(sum(lengths), 4, 32, device="cuda", requires_grad=True) for _ in range(3))
    bias = torch.randn(4, 150, 150, device="cuda", requires_grad=True) if biased else None
    weights = torch.randn_like(q)
    learned = [q, k, v] + ([bias] if biased else [])
    plain = attend(q, k, v, layout, bias, 0.0)
    expected = torch.autograd.grad((plain * weights).sum(), learned)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        ours = attend(q, k, v, layout, bias, 0.0, None, Draws(torch.tensor([1], device="cuda")))
    found = torch.autograd.grad((ours.float() * weights).sum(), learned)
    for mine, theirs in zip((ours, *found), (plain, *expected), strict=True):
        assert (mine.float() - theirs).norm() <= 1e-2 * theirs.norm()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"device": "cpu"}, "no GPU"),
        ({"surgery": object()}, "looks at the gradients"),
        ({"encoded": True}, "kept"),
        ({"accumulate": 2}, "accumulate: 2"),
        ({}, None),
    ],
)
def test_a_line_says_why_steps_are_not_recorded(monkeypatch, changes, words):
    facts = {"device": "cuda", "surgery": None, "encoded": False, "accumulate": 1, **changes}
    monkeypatch.setattr("teabert.capturing.why_no_kernels", lambda device: None if device.type == "cuda" else "no GPU")
    model = SimpleNamespace(device=torch.device(facts["device"]))
    engine = SimpleNamespace(model=model, surgery=facts["surgery"], settings=SimpleNamespace(surgery="pcgrad"))
    why = why_not(engine, facts["encoded"], facts["accumulate"])
    assert (why is None) if words is None else words in why
    if words is None:
        monkeypatch.setattr("teabert.capturing.why_no_kernels", lambda device: "no Triton")
        assert why_not(engine, False, 1) == "no Triton"


def test_every_step_and_seed_draws_anew():
    seeds = {seed_of(seed, step) for seed in (0, 1, 11711) for step in range(1000)}
    assert len(seeds) == 3000
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_frames_keep_a_seed(world):
    from conftest import tiny_rows

    rows = tiny_rows({"mood": 3})
    frame = Frame(Mold.of({"mood": [0, 1, 2]}, rows, ("mood",), 4), torch.device("cpu"))
    frame.fill({"mood": [0, 1, 2]}, rows, seed_of(1, 2))
    assert frame.batch.seed.tolist() == [seed_of(1, 2)]
    assert replace(frame.batch).seed is frame.batch.seed
