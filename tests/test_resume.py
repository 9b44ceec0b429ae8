"""A run that is killed and resumed ends with the same bits as one that was never stopped."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tiny
from teabert import load_recipe, parse_recipe, train, training
from teabert.errors import UserError
from teabert.files import sha256
from teabert.runs import Run
from teabert.training import Trainer

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tiny.write_world(tmp_path_factory.mktemp("world"))
    given = tiny.recipe(folder, checkpoint_every=3)
    given["train"] |= {"clip": 1.0, "schedule": "linear", "warmup": 0.2, "epochs": 2}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(given))
    torch.set_num_threads(1)  # as in killed.py: sums depend on how they are shared out
    train(load_recipe(folder / "recipe.yaml"), folder / "whole")
    return folder


def result(run: Path):
    """Everything that must not depend on interruptions: weights, scores, log."""
    opened = Run.open(run)
    scores = {key: value for key, value in opened.scores().items() if key != "seconds"}
    last = opened.checkpoints()[-1]
    files = [run / "best" / "model.safetensors", last / "weights.safetensors", last / "optimizer.safetensors"]
    return [sha256(file) for file in files], scores, opened.log()


def killed(world, out, where, number, when, *more):
    command = [
        sys.executable,
        str(HERE / "killed.py"),
        str(world / "recipe.yaml"),
        str(out),
        where,
        str(number),
        when,
        *more,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


POINTS = [
    ("os:replace", 2, "before"),
    ("teabert.training:Trainer.step", 1, "before"),
    ("teabert.training:Trainer.step", 8, "after"),
    ("safetensors.torch:save_file", 1, "half"),
    ("safetensors.torch:save_file", 4, "half"),
    ("os:replace", 9, "before"),
    ("os:replace", 11, "after"),
    ("teabert.training:Trainer.keep_best", 1, "after"),
]


@pytest.mark.parametrize("more", [(), ("--beside",)], ids=["in turn", "beside"])
@pytest.mark.parametrize(("where", "number", "when"), POINTS, ids=lambda value: str(value).split(":")[-1])
def test_run_killed_with_sigkill_resumes_to_the_same_bits(world, tmp_path, where, number, when, more):
    died = killed(world, tmp_path / "run", where, number, when, *more)
    assert died.returncode == -signal.SIGKILL, died.stderr
    resumed = train(load_recipe(world / "recipe.yaml"), tmp_path / "run", resume=True)
    assert result(resumed.path) == result(world / "whole")
    assert not list(resumed.path.rglob(".unfinished-*"))


def test_run_killed_twice_resumes_to_the_same_bits(world, tmp_path):
    first = killed(world, tmp_path / "run", "teabert.training:Trainer.step", 5, "after")
    second = killed(world, tmp_path / "run", "teabert.training:Trainer.step", 4, "before", "--resume")
    assert [first.returncode, second.returncode] == [-signal.SIGKILL] * 2, first.stderr + second.stderr
    train(load_recipe(world / "recipe.yaml"), tmp_path / "run", resume=True)
    assert result(tmp_path / "run") == result(world / "whole")


def test_a_run_that_writes_beside_learning_saves_the_same_bits(world, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "beside", lambda device: True)
    train(load_recipe(world / "recipe.yaml"), tmp_path / "run")
    assert result(tmp_path / "run") == result(world / "whole")


def test_a_full_disk_beside_learning_ends_the_run_and_leaves_what_was_saved(world, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError("No space left on device")

    monkeypatch.setattr(training, "beside", lambda device: True)
    trainer = Trainer.begin(load_recipe(world / "recipe.yaml"), tmp_path / "run", _quiet())
    trainer.epoch()
    trainer.writing.wait()
    monkeypatch.setattr(Run, "save_checkpoint", full)
    with pytest.raises(OSError, match="No space left"):
        trainer.run_all()
    monkeypatch.undo()
    train(load_recipe(world / "recipe.yaml"), tmp_path / "run", resume=True)
    assert result(tmp_path / "run") == result(world / "whole")


class Stop(Exception):
    """Interrupts a run inside this process."""


def stop_at(step):
    class Stopping(Trainer):
        def step(self, group):
            if self.place.step == step:
                raise Stop
            super().step(group)

    return Stopping


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    stop=st.integers(0, 8),
    accumulate=st.integers(1, 3),
    every=st.sampled_from([None, 1, 2]),
    optimizer=st.sampled_from(["adamw", "course"]),
    mode=st.sampled_from(["finetune", "frozen"]),
    sampling=st.sampled_from(
        [
            {"strategy": "proportional", "batch": 8},
            {"strategy": "annealed", "batch": 8, "mixed": False},
            {"strategy": "round_robin", "tokens": 150, "mixed": False},
            {"strategy": "square_root", "tokens": 200},
            {"strategy": "blocks", "batch": 8, "mixed": False},
        ]
    ),
)
def test_resumed_equals_uninterrupted(world, tmp_path, stop, accumulate, every, optimizer, mode, sampling):
    given = tiny.recipe(world, accumulate=accumulate, checkpoint_every=every, optimizer=optimizer, mode=mode)
    recipe = parse_recipe(given | {"sampling": sampling})
    shutil.rmtree(tmp_path / "a", ignore_errors=True)
    shutil.rmtree(tmp_path / "b", ignore_errors=True)
    train(recipe, tmp_path / "a")
    begun = stop_at(stop).begin(recipe, tmp_path / "b", _quiet())
    try:
        begun.run_all()
    except Stop:
        train(recipe, tmp_path / "b", resume=True)
    assert result(tmp_path / "a") == result(tmp_path / "b")


def _quiet():
    from teabert.progress import Quiet

    return Quiet()


@pytest.mark.parametrize("file", ["weights.safetensors", "optimizer.safetensors", "state.json", "checksums.json"])
@pytest.mark.parametrize("damage", ["truncated", "altered", "deleted"])
def test_damaged_checkpoint_is_named_and_the_one_before_it_is_used(world, tmp_path, file, damage):
    shutil.copytree(world / "whole", tmp_path / "run")
    run = Run.open(tmp_path / "run")
    older, newest = run.checkpoints()
    target = newest / file
    whole = target.read_bytes()
    if damage == "deleted":
        target.unlink()
    else:
        target.write_bytes(whole[: len(whole) // 2] if damage == "truncated" else bytes([whole[0] ^ 1]) + whole[1:])
    checkpoint, problems = run.load_checkpoint()
    assert checkpoint is not None
    assert checkpoint.state == json.loads((older / "state.json").read_text())
    assert len(problems) == 1
    assert str(newest) in problems[0]
    assert file in problems[0]
    train(load_recipe(world / "recipe.yaml"), tmp_path / "run", resume=True)
    assert result(tmp_path / "run") == result(world / "whole")


def test_damaged_best_model_is_refused_by_name(world, tmp_path):
    shutil.copytree(world / "whole", tmp_path / "run")
    file = tmp_path / "run" / "best" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"best is damaged: model\.safetensors"):
        Run.open(tmp_path / "run").load_best()


def test_resuming_with_another_recipe_is_refused(world, tmp_path):
    other = parse_recipe(tiny.recipe(world, lr=2e-3))
    with pytest.raises(UserError, match="another recipe: train differ"):
        train(other, world / "whole", resume=True)


def test_resuming_from_other_encoder_weights_is_refused(world, tmp_path):
    tiny.write_world(tmp_path)
    recipe = parse_recipe(tiny.recipe(tmp_path))
    train(recipe, tmp_path / "run")
    tiny.write_encoder(tmp_path / "encoder", seed=1)
    with pytest.raises(UserError, match="other weights"):
        train(recipe, tmp_path / "run", resume=True)


def test_run_folder_in_use_is_never_overwritten(world):
    with pytest.raises(UserError, match="--resume"):
        train(load_recipe(world / "recipe.yaml"), world / "whole")


def test_resuming_a_finished_run_changes_nothing(world, tmp_path):
    shutil.copytree(world / "whole", tmp_path / "run")
    before = sha256(tmp_path / "run" / "log.jsonl")
    train(load_recipe(world / "recipe.yaml"), tmp_path / "run", resume=True)
    assert sha256(tmp_path / "run" / "log.jsonl") == before
