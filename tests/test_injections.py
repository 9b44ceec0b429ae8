"""The contract of every injection, over INJECTIONS: a new method is tested the moment it is listed."""

from dataclasses import replace

import pytest
import torch

from conftest import plain, tiny_shape
from injected import (
    ALL,
    METHODS,
    SMALL,
    TASKS,
    Watch,
    answers,
    build,
    chosen,
    every,
    gradients,
    mixed,
    name_of,
    pack,
    ways,
)
from teabert.config import load_recipe, parse_recipe, to_yaml
from teabert.encoder import Encoder, EncoderShape
from teabert.errors import UserError
from teabert.heads import ANSWERS, READERS
from teabert.injections import INJECTIONS, Injection, check_injection, make_injection
from teabert.injections.folding import fold
from teabert.injections.several import Several
from teabert.model import Model
from teabert.optim import CourseAdamW
from textbook import by_the_book

SHAPES = pytest.mark.parametrize("shape", [{}, {"relative_buckets": 8, "segments": 0}], ids=["bert", "mpnet"])
FOLDABLE = [
    choice
    for choice in [*ALL, ["input", "attention", "projected", "gate", "lora"]]
    if all(method.foldable for method, _ in check_injection(choice).values())
]


@every
@SHAPES
def test_mixed_shuffled_padded_and_single_task_batches_answer_alike(choice, shape):
    model = build(choice, **shape)
    with torch.no_grad():
        found = {way: answers(model, batches) for way, batches in ways(mixed()).items()}
    for way, outputs in found.items():
        assert outputs.keys() == found["mixed"].keys()
        for key, out in outputs.items():
            other = found["mixed"][key]
            assert (out - other).abs().max() <= 1e-5 * max(1, other.abs().max()), f"{way} {key}"


@every
def test_mixed_shuffled_padded_and_single_task_batches_have_the_same_gradients(choice):
    model = build(choice).double()
    found = {way: gradients(model, batches) for way, batches in ways(mixed()).items()}
    for way, grads in found.items():
        for name, grad in grads.items():
            other = found["mixed"][name]
            assert (grad is None) == (other is None), f"{way} {name}"
            assert grad is None or (grad - other).abs().max() <= 1e-9 * max(1, other.abs().max()), f"{way} {name}"


@every
@SHAPES
def test_packed_answers_and_gradients_are_those_of_a_padded_textbook_encoder(choice, shape):
    model, batch = build(choice, **shape), pack(mixed())
    with torch.no_grad():
        mine, book = answers(model, [batch]), answers(model, [by_the_book(model, batch)])
    assert all((out - book[key]).abs().max() <= 1e-5 * max(1, out.abs().max()) for key, out in mine.items())
    model.double()
    mine, book = gradients(model, [batch]), gradients(model, [by_the_book(model, batch)])
    for name, grad in mine.items():
        assert (grad is None) == (book[name] is None), name
        assert grad is None or (grad - book[name]).abs().max() <= 1e-9 * max(1, grad.abs().max()), name


@every
def test_half_precision_answers_and_gradients_are_near_those_of_full_precision(choice):
    torch.manual_seed(0)
    model, rows = build(choice, filled=False), mixed()
    seen = Watch(Injection.Config(), tiny_shape(), TASKS)
    full = answers(model, [pack(rows)])
    with torch.autocast("cpu", torch.bfloat16):
        half = answers(model, [pack(rows)])
        sum(out.float().sum() for out in half.values()).backward()
        model.encoder(pack(rows), Several({"mine": model.injection, "seen": seen}, TASKS))
    assert seen.seen.dtype == torch.bfloat16, "an injection made the attention compute in full precision"
    assert all((out - full[key]).abs().max() <= 0.1 * max(1, out.abs().max()) for key, out in half.items())
    assert all(p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in model.injection.parameters())


@every
def test_every_number_of_an_injection_is_used(choice):
    grads = gradients(build(choice).double(), [pack(mixed())])
    mine = {name: grad for name, grad in grads.items() if name.startswith("injection")}
    assert all(grad is not None and grad.any() for grad in mine.values())
    assert mine or choice == {"method": "none"}


@every
def test_the_injection_changes_every_answer_and_the_tasks_differ(choice):
    model, rows = build(choice), chosen({"mood": 3})
    if choice == {"method": "none"}:
        return
    without = answers(Model(model.encoder, plain(), model.heads, model.uses), [pack(rows)])
    batch = pack(rows)
    with torch.no_grad():
        states = [model.encoder(replace(batch, **other_task(batch, task)), model.injection) for task in TASKS]
    assert all((out - without[key]).abs().max() > 1e-3 for key, out in answers(model, [batch]).items())
    assert all((states[0] - state).abs().max() > 1e-3 for state in states[1:])


def other_task(batch, task):
    parts = tuple(replace(part, task=task) for part in batch.parts)
    return {"parts": parts, "task_of_sequence": torch.full_like(batch.task_of_sequence, TASKS.index(task))}


# how they start


@pytest.mark.parametrize("choice", [*METHODS, {"method": "activated", "init": "residual"}], ids=name_of)
def test_a_safe_start_leaves_the_pretrained_answers_exactly_as_they_were(choice):
    model, batches = build(choice, filled=False), [pack(mixed())]
    mine = answers(model, batches)
    theirs = answers(Model(model.encoder, plain(), model.heads, model.uses), batches)
    same = all(torch.equal(out, theirs[key]) for key, out in mine.items())
    assert same == (model.injection.exact_at_start or choice.get("init") == "residual")


@pytest.mark.parametrize("name", ["input", "attention", "projected", "activated", "pal", "adapter", "prefix"])
def test_the_papers_start_is_small_random_numbers(name):
    model = build({"method": name, "init": "paper", **SMALL.get(name, {})}, filled=False)
    drawn = torch.cat([p.flatten() for key, p in model.injection.named_parameters() if "bias" not in key])
    assert 0.005 < drawn.std() < 0.03
    assert (drawn != 0).all()


@every
def test_a_seed_decides_how_it_starts_and_how_it_trains(choice):
    first, second = build(choice, 3, filled=False), build(choice, 3, filled=False)
    found = []
    for model in (first.train(), second.train()):
        torch.manual_seed(0)
        found.append(answers(model, [pack(mixed())]))
    assert first.state_dict().keys() == second.state_dict().keys()
    assert all(torch.equal(value, second.state_dict()[key]) for key, value in first.state_dict().items())
    assert all(torch.equal(out, found[1][key]) and out.isfinite().all() for key, out in found[0].items())


@every
def test_training_answers_as_use_does_but_for_dropout(choice):
    model = build(choice, dropout=0.0, attention_dropout=0.0)
    for head in model.heads.values():
        head.dropout.p = 0.0
    with torch.no_grad():
        found = [answers(each, [pack(mixed())]) for each in (model.eval(), model.train())]
    assert all((out - found[1][key]).abs().max() <= 1e-5 * max(1, out.abs().max()) for key, out in found[0].items())


@every
def test_what_is_saved_and_loaded_answers_alike(choice):
    first, second = build(choice, 0), build(choice, 5)
    second.load_state_dict({key: value.clone() for key, value in first.state_dict().items()})
    found = answers(second, [pack(mixed())])
    assert all(torch.equal(out, found[key]) for key, out in answers(first, [pack(mixed())]).items())


# what a task owns


def owner(name):
    return next((task for task in TASKS if task in name.split(".")), None)


@every
@pytest.mark.parametrize("present", [["mood"], ["same", "near"]], ids="+".join)
def test_gradients_reach_only_the_tasks_in_the_batch(choice, present):
    model = build(choice)
    grads = gradients(model, [pack(chosen(dict.fromkeys(present, 3)))])
    for name, grad in grads.items():
        if name.startswith(("injection", "heads")) and owner(name):
            assert (grad is not None and bool(grad.any())) == (owner(name) in present), name
            assert (grad is not None) == (owner(name) in present), name


@every
def test_no_optimiser_step_moves_a_task_that_is_not_in_the_batch(choice):
    model = build(choice)
    optimiser = CourseAdamW([{"params": list(model.parameters())}], lr=1e-2, weight_decay=0.1)
    for present in (TASKS, ("mood",)):  # the first step gives every task momentum
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        optimiser.zero_grad()
        out = answers(model, [pack(chosen(dict.fromkeys(present, 2)))])
        sum(each.pow(2).sum() for each in out.values()).backward()
        optimiser.step()
        for name, parameter in model.injection.named_parameters():
            moved = not torch.equal(parameter, before[f"injection.{name}"])
            assert moved == (owner(name) in (None, *present)), name


# how many numbers they add


BERT = EncoderShape("bert", 30522, 768, 12, 12, 3072, 512, 2, 1e-12)


def count(choice, tasks=3, shape=BERT):
    with torch.device("meta"):
        return sum(p.numel() for p in make_injection(choice, shape, [f"task{i}" for i in range(tasks)]).parameters())


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("none", 0),
        ("input", 2_304),
        ("attention", 82_944),
        ({"method": "attention", "share_layers": True}, 6_912),
        ({"method": "attention", "vectors": "qv"}, 55_296),
        ("projected", 21_235_968),
        ({"method": "projected", "share_layers": True}, 1_771_776),
        ("activated", 42_469_632),
        ({"method": "activated", "share_layers": True}, 3_541_248),
        ("gate", 3 * 144),
        ({"method": "lora", "share_layers": True}, 3 * 2 * 8 * (768 + 768)),
        ({"method": "adapter", "share_layers": True}, 3 * 2 * (64 * 768 + 64 + 768 * 64 + 768)),
        ({"method": "prefix", "share_layers": True}, 3 * 2 * 8 * 768),
        ("lora", 3 * 12 * 2 * 8 * (768 + 768)),
        ("adapter", 3 * 12 * 2 * (64 * 768 + 64 + 768 * 64 + 768)),
        ("pal", 3 * 1_811_520),
        ("prefix", 3 * 12 * 2 * 8 * 768),
        ({"method": "attention", "layers": "4-11"}, 55_296),
        (["input", "attention"], 85_248),
    ],
    ids=str,
)
def test_the_parameters_are_as_many_as_the_formulas_say(choice, expected):
    assert count(choice) == expected


def test_projected_attention_layers_for_8_tasks_make_bert_1_13_times_as_big():
    with torch.device("meta"):
        encoder = sum(p.numel() for p in Encoder(BERT).parameters())
    assert round((encoder + count("pal", tasks=8)) / encoder, 2) == 1.13


# what keys and values do


def keys_of(injection):
    """The numbers that reach the keys only"""
    if hasattr(injection, "projections"):
        return [linear.weight.chunk(3)[1] for linear in injection.projections]
    return [parameter.chunk(3, dim=1)[1] for parameter in injection.vectors.values()]


@pytest.mark.parametrize("name", ["attention", "projected"])
def test_the_keys_vector_has_no_effect_and_no_gradient(name):
    model = build(name).double()
    before = answers(model, [pack(mixed())])
    grads = gradients(model, [pack(mixed())])
    with torch.no_grad():
        for keys in keys_of(model.injection):
            keys.add_(3.0)
    assert all((out - before[key]).abs().max() <= 1e-9 for key, out in answers(model, [pack(mixed())]).items())
    for key, parameter in model.injection.named_parameters():
        parameter.grad = grads[f"injection.{key}"]
    keys = (
        [linear.weight.grad.chunk(3)[1] for linear in model.injection.projections]
        if name == "projected"
        else [p.grad.chunk(3, dim=1)[1] for p in model.injection.vectors.values()]
    )
    assert max(grad.abs().max() for grad in keys) <= 1e-9


@pytest.mark.parametrize("name", ["attention", "projected"])
def test_the_values_vector_shifts_what_every_token_reads_by_a_constant(name):
    model, batch = build(name).double(), pack(mixed())
    mine, watch = model.injection, Watch(Injection.Config(), tiny_shape(), TASKS)
    with torch.no_grad():
        model.encoder(batch, watch)
        before = watch.seen
        if name == "attention":
            for parameter in mine.vectors.values():
                parameter[:, :64] = 0
            vectors = torch.stack([mine.vectors[task][0, 64:] for task in TASKS])
        else:
            mine.projections[0].weight[:64] = 0
            vectors = torch.stack([mine.projections[0].weight[64:] @ mine.vectors[task][0] for task in TASKS])
        model.encoder(batch, Several({"mine": mine, "watch": watch}, TASKS))
    task_of_token = batch.task_of_sequence[batch.layout.sequence_of_token]
    assert (watch.seen - before - vectors[task_of_token]).abs().max() <= 1e-12


# folding


@pytest.mark.parametrize("choice", FOLDABLE, ids=name_of)
@pytest.mark.parametrize("task", TASKS)
def test_one_task_folds_into_a_plain_encoder_with_the_same_answers(choice, task):
    model, rows = build(choice), [pack(chosen({task: 4}))]
    original = {key: value.clone() for key, value in model.encoder.state_dict().items()}
    folded = Model(fold(model.encoder, model.injection, task), plain(), model.heads, model.uses)
    found, injected = answers(folded, rows), answers(model, rows)
    assert all((out - found[key]).abs().max() <= 1e-5 * max(1, out.abs().max()) for key, out in injected.items())
    assert folded.encoder.state_dict().keys() == original.keys()
    assert all(torch.equal(value, original[key]) for key, value in model.encoder.state_dict().items())


@every
def test_a_method_either_folds_or_says_that_it_cannot(choice):
    model = build(choice)
    if model.injection.foldable:
        assert isinstance(fold(model.encoder, model.injection, "near"), Encoder)
        with pytest.raises(UserError, match="Unknown task 'moods'"):
            fold(model.encoder, model.injection, "moods")
    else:
        with pytest.raises(UserError, match="cannot be folded"):
            fold(model.encoder, model.injection, "near")


# what a recipe may say


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("inptu", "Unknown injection 'inptu'. Did you mean 'input'"),
        (["input", "lorra"], "Unknown injection 'lorra'. Did you mean 'lora'"),
        (["input", {"method": "input", "place": "after"}], "'input' is named twice"),
        ([], "the list is empty"),
        ({"method": "attention", "layers": "3-1"}, "ends before it begins"),
        ({"method": "attention", "layers": "first"}, "names no layers"),
        ({"method": "attention", "layers": -1}, "names no layers"),
        ({"method": "attention", "layers": True}, "names no layers"),
        ({"method": "attention", "layer": 3}, "Did you mean 'layers'"),
        ({"method": "attention", "vectors": "k"}, "'qkv' or 'qv'"),
        ({"method": "input", "init": "residual"}, "'safe' or 'paper'"),
        ({"method": "pal", "attention_heads": 5}, "cannot be shared equally by 5"),
        ({"method": "lora", "rank": 0}, "rank"),
        ({"layers": 3}, "say which method"),
    ],
    ids=str,
)
def test_a_mistake_is_refused_before_anything_is_built(choice, message):
    with pytest.raises(UserError, match=message):
        check_injection(choice)
    with pytest.raises(UserError, match=message):
        parse_recipe({"tasks": ["sst"], "injection": choice})


@pytest.mark.parametrize("layers", ["2", "1-2", "5-9", 2])
def test_layers_that_the_encoder_has_not_are_refused_when_built(layers):
    for choice in ({"method": "gate", "layers": layers}, ["input", {"method": "gate", "layers": layers}]):
        with pytest.raises(UserError, match=r"injection \(gate\): layers: '.*' goes .* which has 2 layers: 0-1"):
            build(choice)


@every
def test_a_recipe_with_it_is_written_out_and_read_back(choice, tmp_path):
    recipe = parse_recipe({"tasks": ["sst"], "injection": choice})
    (tmp_path / "recipe.yaml").write_text(to_yaml(recipe))
    assert load_recipe(tmp_path / "recipe.yaml").injection == recipe.injection == choice


SIZES = [
    (key, name, option)
    for key, methods in (("injection", INJECTIONS), ("read", READERS), ("answer", ANSWERS))
    for name, method in methods.items()
    for option, field in method.Config.model_fields.items()
    if field.annotation is int
]


@pytest.mark.parametrize(("key", "name", "option"), SIZES)
@pytest.mark.parametrize("number", [0, -1, 10**15])
def test_a_size_beyond_reason_is_refused_before_memory_is_asked_for(key, name, option, number):
    choice = {"method": name, option: number}
    given = {"injection": choice} if key == "injection" else {"tasks": {"sts": {"pair": "apart", "head": {key: choice}}}}
    with pytest.raises(UserError, match=f"{key} \\({name}\\): {option}: {number} does not fit"):
        parse_recipe({"tasks": ["sst"]} | given)


@pytest.mark.parametrize("name", INJECTIONS)
def test_every_option_has_its_help(name):
    fields = INJECTIONS[name].Config.model_fields
    assert all(field.description for field in fields.values())
    assert INJECTIONS[name].__doc__
