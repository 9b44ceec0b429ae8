"""The only training loop: a recipe in, a run folder with a trained, judged model out.

Killed at any moment, it goes on from the last checkpoint to the same bits: the order of rows, the learning rate and
the dropout of every step depend on nothing but the recipe, the step and the saved state of the random generator.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from teabert.calibration import FILE as CALIBRATION
from teabert.calibration import fit
from teabert.capturing import Recorder, why_not
from teabert.config import Recipe, load_recipe
from teabert.dataset import Examples, read_examples, tokenise
from teabert.device import is_out_of_memory, pick_device, pick_precision, shortcomings
from teabert.encoder import EncoderShape
from teabert.engine import Engine, Loss
from teabert.errors import UserError
from teabert.evaluation import Scores, evaluate, outputs
from teabert.files import write_json
from teabert.model import check_fits
from teabert.optim import lr_factor
from teabert.origins import Origin, build, find_origin
from teabert.progress import Progress, Quiet
from teabert.runs import Checkpoint, Run, free_folder, newest_folder, save_shape, unbegun
from teabert.sampling import Pairs, Sampler
from teabert.source import Source, encode, encode_states
from teabert.text import TextEncoder
from teabert.writing import Writing, beside

LOG_EVERY = 50
"""Steps between two lines of the log."""


@dataclass
class Place:
    """How far a run has come; with weights, optimiser and random state this is all that resuming needs."""

    step: int = 0
    best: float = -math.inf
    best_epoch: int = -1
    epochs_without_gain: int = 0
    seconds: float = 0.0
    seen: dict[str, int] = field(default_factory=dict)
    """examples of each task since the last line of the log"""
    lost: dict[str, float] = field(default_factory=dict)
    """their summed losses"""
    met: dict[str, int] = field(default_factory=dict)
    """steps since then in which two tasks met"""
    clashed: dict[str, int] = field(default_factory=dict)
    """those in which their gradients pointed against each other"""
    finished: bool = False


def train(
    recipe: Recipe | str | Path, out: str | Path | None = None, resume: bool = False, progress: Progress | None = None
) -> Run:
    """Train a recipe; `out` is the run folder, by default a new one under runs/."""
    recipe = recipe if isinstance(recipe, Recipe) else load_recipe(recipe)
    folder = Path(out).expanduser() if out else (newest_folder if resume else free_folder)(recipe.name)
    if resume and not (folder.exists() and unbegun(folder)):
        return Trainer.resume(folder, progress or Quiet(), recipe).run_all()
    return Trainer.begin(recipe, folder, progress or Quiet()).run_all()


class Trainer:
    """One run in the making."""

    def __init__(self, recipe: Recipe, run: Run, examples: Examples, origin: Origin, progress: Progress) -> None:
        self.recipe, self.run, self.progress = recipe, run, progress
        self.tasks = recipe.tasks
        self.device = pick_device()
        self.writing = Writing(beside(self.device))
        self.precision = recipe.train.precision
        torch.backends.cudnn.benchmark = False
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # costs, changes nothing
        torch.use_deterministic_algorithms(recipe.train.deterministic and self.device.type == "cuda", warn_only=True)
        self.model, missing = build(recipe, origin)
        shape = self.model.encoder.shape
        self.examples, self.text = examples, self.load_text(origin.folder, shape)
        self.text.save(run.path)
        save_shape(run, shape)
        train_rows, cut = tokenise(self.text, self.tasks, examples.train)
        select_rows, _ = tokenise(self.text, self.tasks, examples.select)
        self.held = Source(tokenise(self.text, self.tasks, examples.calibrate)[0], tuple(self.tasks))
        notes = [*examples.notes, *cut]
        if missing and any(task.head.read == "first_token" for task in self.tasks.values()):
            notes.append(f"the encoder brings no {', '.join(missing)}: its pooler starts from new weights")
        progress.notes(notes)
        self.freeze()
        self.model.to(self.device)
        begun = time.perf_counter()
        self.source, self.select = self.encode_once(Source(train_rows), Source(select_rows))
        self.place = Place(seconds=time.perf_counter() - begun)
        self.engine = Engine(recipe, self.model, self.source)
        self.recorder = self.make_recorder()
        self.unread: list[tuple[int, Loss]] = []
        """losses of the last steps, with the number of the step: on a GPU nothing waits for them"""
        if recipe.train.surgery != "none" and self.engine.surgery is None:
            progress.note(f"train.surgery: {recipe.train.surgery} has nothing to do: the tasks learn nothing in common")
        self.sampler = Sampler(
            {name: len(rows) for name, rows in train_rows.items()},
            recipe.sampling,
            seed=recipe.train.seed,
            epochs=recipe.train.epochs,
            lengths={name: rows.lengths() for name, rows in train_rows.items()},
        )
        batches = [len(self.sampler.epoch(epoch)) for epoch in range(recipe.train.epochs)]
        self.steps = sum(-(-count // recipe.train.accumulate) for count in batches)
        torch.manual_seed(recipe.train.seed)

    @classmethod
    def begin(cls, recipe: Recipe, folder: Path, progress: Progress) -> Self:
        """A new run: rows are read before weights, so that a mistake in them costs nothing."""
        precision = pick_precision(recipe.train.precision, pick_device())
        recipe = recipe.model_copy(update={"train": recipe.train.model_copy(update={"precision": precision})})
        examples = cls.read(recipe)
        origin = find_origin(recipe, progress.shown)
        check_fits(recipe, origin.shape)
        name = recipe.base or recipe.encoder
        facts = {"encoder": {"name": name, "sha256": origin.checksum}, "seed": recipe.train.seed}
        run = Run.create(folder, recipe, facts)
        write_json(run.path / "subsets.json", examples.chosen)
        return cls(recipe, run, examples, origin, progress)

    @classmethod
    def resume(cls, folder: Path, progress: Progress, given: Recipe | None = None) -> Self:
        """The run in a folder, where its last undamaged checkpoint left it."""
        run = Run.open(folder)
        run.clean()
        recipe = run.recipe
        if given is not None:
            _same(given, recipe, folder)
        origin = find_origin(recipe, progress.shown)
        torch.set_num_threads(run.facts().get("threads", torch.get_num_threads()))  # sums depend on how they are shared out
        known = run.facts().get("encoder", {}).get("sha256")
        if known != origin.checksum:
            raise UserError(f"{folder} was started from other weights than {origin.folder} now holds. Start a new run.")
        trainer = cls(recipe, run, cls.read(recipe), origin, progress)
        checkpoint, problems = run.load_checkpoint()
        for problem in problems:
            progress.note(f"{problem} Going on from the one before it.")
        if checkpoint is None:
            run.cut_log(0)
        else:
            trainer.restore(checkpoint)
        progress.note(f"going on from step {trainer.place.step}")
        return trainer

    # what is trained, and on what

    @staticmethod
    def read(recipe: Recipe) -> Examples:
        """The rows of all tasks"""
        return read_examples(recipe)

    @staticmethod
    def load_text(folder: Path, shape: EncoderShape) -> TextEncoder:
        """The encoder's tokenizer"""
        return TextEncoder.load(folder, shape.longest, shape.vocabulary)

    def freeze(self) -> None:
        """In frozen mode only heads and injection learn."""
        if self.recipe.train.mode == "finetune":
            return
        self.model.encoder.requires_grad_(False)
        if self.recipe.base is not None:
            for parameter in self.model.shared_parameters():
                parameter.requires_grad_(False)
        still = [name for name in self.tasks if not any(True for _ in self.model.head(name).parameters())]
        if still and self.plain_encoder:
            self.progress.note(f"nothing is learned for {', '.join(still)}: frozen encoder, and a head without weights")

    @property
    def plain_encoder(self) -> bool:
        """Whether no injection changes what the encoder answers."""
        return not any(True for _ in self.model.injection.parameters())

    def encode_once(self, source: Source, select: Source) -> tuple[Source, Source]:
        """A frozen encoder without injection reads every text once, and the heads learn from what it answered."""
        settings = self.recipe.train
        if settings.mode != "frozen" or settings.encoder_dropout or not self.plain_encoder:
            return source, select
        vectors = all(self.model.head(task).reader.keeps == "vectors" for task in self.tasks)
        read: Callable[..., Source] = encode if vectors else encode_states
        total = sum(len(rows) for each in (source, select) for rows in each.rows.values())
        with self.progress.bar("encoding every text once", total) as advance:
            return read(self.model, source, self.precision, advance), read(self.model, select, self.precision, advance)

    def make_recorder(self) -> Recorder | None:
        """Where a GPU can play back recorded steps; a line on why it cannot"""
        settings = self.recipe.train
        self.progress.notes(shortcomings(self.device, settings.precision))
        if self.device.type != "cuda" or not settings.record:
            return None
        why = why_not(self.engine, type(self.source) is not Source, settings.accumulate)
        if why is None:
            room = self.recipe.sampling.batch if self.recipe.sampling.tokens is None else 1
            return Recorder(self.engine, room, self.progress.note)
        self.progress.note(f"steps are not recorded: {why}")
        return None

    # the loop

    def run_all(self) -> Run:
        """Train to the end, or until patience runs out."""
        try:
            while not self.place.finished:
                self.epoch()
        finally:
            self.writing.finish()
        if self.held.rows:
            self.calibrate()
        return self.run

    def epoch(self) -> None:
        """The rest of the current epoch, its scores and its checkpoint."""
        number, settings = self.sampler.current, self.recipe.train
        begun = time.perf_counter()
        total = len(self.sampler.epoch(number))
        with self.progress.bar(f"epoch {number + 1} of {settings.epochs}", total, done=self.sampler.batch) as advance:
            for group in self.groups(total):
                self.step(group)
                advance(len(group))
                if (
                    settings.checkpoint_every
                    and self.place.step % settings.checkpoint_every == 0
                    and self.sampler.batch < total
                ):
                    self.read_losses()
                    begun = self.clock(begun)
                    self.checkpoint()
        self.read_losses()
        self.clock(begun)
        self.sampler.current, self.sampler.batch = number + 1, 0
        self.log_losses(number)
        self.finish_epoch(number)

    def groups(self, total: int) -> Iterator[list[Pairs]]:
        """The remaining batches of the epoch, `accumulate` at a time."""
        batches = self.sampler.epoch(self.sampler.current)
        size = self.recipe.train.accumulate
        yield from (batches[start : start + size] for start in range(self.sampler.batch, total, size))

    def step(self, group: list[Pairs]) -> None:
        """One step of the optimiser over one or more batches."""
        schedule = self.recipe.train
        rate = self.recipe.lr * lr_factor(self.place.step, self.steps, schedule.schedule, schedule.warmup)
        try:
            losses, clashes = self.learn(group, rate)
        except (RuntimeError, MemoryError) as error:
            if is_out_of_memory(error):
                raise self.too_large(error, group) from error
            raise
        self.unread += [(self.place.step + 1, loss) for loss in losses]
        for pair, clash in clashes.items():
            self.place.met[pair] = self.place.met.get(pair, 0) + 1
            self.place.clashed[pair] = self.place.clashed.get(pair, 0) + clash
        self.place.step += 1
        self.sampler.batch += len(group)
        if self.place.step % LOG_EVERY == 0:
            self.log_losses(self.sampler.current)
        elif self.device.type == "cpu":
            self.read_losses()

    def learn(self, group: list[Pairs], rate: float) -> tuple[list[Loss], dict[str, bool]]:
        """One step of the optimiser, played back where it can be"""
        if self.recorder is None:
            return self.engine.step(group, self.place.step, rate)
        self.engine.set_modes()
        self.engine.set_rate(rate)
        return self.recorder.step(group[0], self.place.step), {}

    def too_large(self, error: BaseException, group: list[Pairs]) -> UserError:
        """What to do about a step that needs more memory than there is"""
        lengths = [self.source.rows[self.source.tasks[task]].lengths()[row] for pairs in group for task, row in pairs]
        key = "sampling.batch" if self.recipe.sampling.tokens is None else "sampling.tokens"
        now = self.recipe.sampling.batch if self.recipe.sampling.tokens is None else self.recipe.sampling.tokens
        return UserError(
            f"Out of memory at step {self.place.step + 1}, with {len(lengths)} examples of {sum(lengths)} tokens:"
            f" {str(error).splitlines()[0]}\nLower {key} (now {now}) and raise train.accumulate by as much, which trains"
            f" alike, or set tasks.NAME.max_tokens (the longest had {max(lengths)}). What was saved in {self.run.path} is"
            " intact."
        )

    def read_losses(self) -> None:
        """Hear what the last steps cost; on a GPU this waits for them"""
        if self.unread:
            values = torch.stack([loss.summed.detach().float() for _, loss in self.unread]).tolist()
            unread, self.unread = self.unread, []
            for (step, loss), value in zip(unread, values, strict=True):
                self.watch(step, loss.task, loss.rows, value)

    def watch(self, step: int, task: str, rows: tuple[int, ...], loss: float) -> None:
        """Keep the loss for the log; stop where it is no number."""
        if not math.isfinite(loss):
            names = [self.source.rows[task].names[row] for row in rows]
            raise UserError(
                f"The loss of '{task}' became {loss} at step {step} (rows {', '.join(names[:20])})."
                f" What was saved in {self.run.path} is intact. Lower train.lr, set train.clip: 1, or use precision: fp32."
            )
        self.place.seen[task] = self.place.seen.get(task, 0) + len(rows)
        self.place.lost[task] = self.place.lost.get(task, 0.0) + loss

    # between epochs

    def finish_epoch(self, number: int) -> None:
        """Judge, keep the best, log, and save the place."""
        total = sum(len(rows) for rows in self.select.rows.values())
        with self.progress.bar("judging", total) as advance:
            scores = evaluate(self.model, self.tasks, self.select, self.precision, advance)
        aggregate = scores.overall[self.recipe.train.aggregate]
        counts = self.sampler.log(number)
        self.run.append(event="epoch", epoch=number + 1, step=self.place.step, scores=scores.as_json(), examples=counts)
        self.collapse(scores, number)
        self.place.epochs_without_gain += 1
        if aggregate > self.place.best or self.place.best_epoch < 0:
            self.place.best, self.place.best_epoch, self.place.epochs_without_gain = aggregate, number + 1, 0
            self.keep_best(scores, number)
        patience = self.recipe.train.patience
        stopped = patience is not None and self.place.epochs_without_gain >= patience
        self.place.finished = stopped or number + 1 == self.recipe.train.epochs
        seconds = round(self.place.seconds, 2)
        self.writing.add(lambda: self.run.save_scores(self.run.scores() | {"seconds": seconds}))
        self.checkpoint()
        self.writing.begin()
        self.progress.epoch(number + 1, scores, best=self.place.best_epoch == number + 1)
        if stopped:
            self.progress.note(f"stopped: no better aggregate for {patience} epochs")

    def keep_best(self, scores: Scores, number: int) -> None:
        """The model to use, and what it scored."""
        settings = self.recipe.train
        chosen_on = "dev" if settings.select == "dev" else f"{settings.select:g} of the training rows"
        record = scores.as_json() | {"epoch": number + 1, "select": chosen_on, "aggregate": settings.aggregate}
        self.save_best(record)
        calibration = self.run.path / CALIBRATION
        self.writing.add(lambda: calibration.unlink(missing_ok=True))  # it was fitted on the weights before
        self.writing.add(lambda: self.run.save_scores(record))

    def save_best(self, record: Mapping[str, Any]) -> None:
        """Write the weights as they are now, with what they scored"""
        self.writing.wait()
        weights = {name: self.writing.copy(tensor) for name, tensor in self.model.state_dict().items()}
        self.writing.add(lambda: self.run.save_best(weights, record))

    def load_best(self) -> dict[str, Tensor]:
        """The weights of the best epoch"""
        return self.run.load_best()

    def collapse(self, scores: Scores, number: int) -> None:
        """Say so where a task answers every row alike."""
        for task in scores.collapsed:
            message = f"{task}: every row got the same prediction after epoch {number + 1}; a lower train.lr often helps"
            if self.recipe.train.on_collapse == "stop":
                self.checkpoint()
                raise UserError(f"{message}. Stopped because of train.on_collapse: stop; {self.run.path} is intact.")
            self.progress.note(message)

    def log_losses(self, epoch: int) -> None:
        """One line: the mean loss of each task since the last line."""
        self.read_losses()
        seen = self.place.seen
        if seen:
            means = {task: self.place.lost[task] / count for task, count in seen.items()}
            rate = self.engine.optimizer.param_groups[0]["lr"]
            more: dict[str, Any] = {"weights": weights} if (weights := self.engine.weighting.current()) else {}
            if met := self.place.met:
                more["conflicts"] = {pair: round(self.place.clashed[pair] / count, 4) for pair, count in met.items()}
            self.run.append(event="loss", step=self.place.step, epoch=epoch + 1, lr=rate, loss=means, examples=seen, **more)
        self.place.seen, self.place.lost, self.place.met, self.place.clashed = {}, {}, {}, {}

    def clock(self, begun: float) -> float:
        """Add the time since `begun` to the time spent training."""
        now = time.perf_counter()
        self.place.seconds += now - begun
        return now

    def calibrate(self) -> None:
        """Fit the best model's temperatures on the rows that were held out for it"""
        self.model.load_state_dict(self.load_best())
        total = sum(len(rows) for rows in self.held.rows.values())
        with self.progress.bar("calibrating", total) as advance:
            found = outputs(self.model, self.held, self.precision, advance)
        labels = {task: rows.labels for task, rows in self.held.rows.items()}
        source = f"{self.recipe.train.calibrate:g} of the training rows, held out"
        fit(self.tasks, found, labels, source).save(self.run.path)

    # checkpoints

    def checkpoint(self) -> None:
        """Save all that going on needs."""
        self.writing.wait()
        learned = {name: parameter for name, parameter in self.model.named_parameters() if parameter.requires_grad}
        learned |= {f"weighting.{name}": parameter for name, parameter in self.engine.weighting.named_parameters()}
        memory = self.engine.optimizer.state_dict()["state"]
        kept = {
            f"{index}.{key}": self.writing.copy(torch.as_tensor(value))
            for index, values in memory.items()
            for key, value in values.items()
        }
        kept["random.cpu"] = torch.get_rng_state()
        if self.device.type == "cuda":
            kept["random.cuda"] = torch.cuda.get_rng_state()
        weights = {name: self.writing.copy(parameter) for name, parameter in learned.items()}
        place, sampler = asdict(self.place), self.sampler.state()
        saved = Checkpoint(weights, kept, {"place": place, "sampler": sampler, "log": len(self.run.log())})
        self.writing.add(lambda: self.run.save_checkpoint(place["step"], saved))
        self.writing.begin()

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go back to where a checkpoint was made."""
        weights = {name: tensor for name, tensor in checkpoint.weights.items() if name.startswith("weighting.")}
        self.engine.weighting.load_state_dict({name.removeprefix("weighting."): tensor for name, tensor in weights.items()})
        self.model.load_state_dict(checkpoint.weights, strict=False)
        memory: dict[int, dict[str, Tensor]] = {}
        for name, tensor in checkpoint.optimizer.items():
            index, key = name.split(".")
            if index != "random":
                memory.setdefault(int(index), {})[key] = tensor
        self.engine.optimizer.load_state_dict(
            {"state": memory, "param_groups": self.engine.optimizer.state_dict()["param_groups"]}
        )
        torch.set_rng_state(checkpoint.optimizer["random.cpu"])
        with suppress(KeyError):
            torch.cuda.set_rng_state(checkpoint.optimizer["random.cuda"])
        self.sampler.restore(checkpoint.state["sampler"])
        self.place = Place(**checkpoint.state["place"])
        self.run.cut_log(checkpoint.state["log"])


def _same(given: Recipe, kept: Recipe, folder: Path) -> None:
    """Refuse to resume a run with another recipe."""
    if given.train.precision == "auto":
        given = given.model_copy(update={"train": given.train.model_copy(update={"precision": kept.train.precision})})
    mine, theirs = given.model_dump(mode="json"), kept.model_dump(mode="json")
    other = [key for key in mine if mine[key] != theirs[key]]
    if other:
        raise UserError(
            f"{folder} was started with another recipe: {', '.join(other)} differ."
            " Resume with the recipe it was started with, or start a new run with --out."
        )
