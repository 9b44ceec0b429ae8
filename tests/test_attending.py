"""Task attention: against transformers' layers and a plain loop over examples, alone and in mixed batches."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import tiny
from teabert import parse_recipe, train
from teabert.batches import Part, collate
from teabert.encoder import Encoder
from teabert.errors import UserError
from teabert.heads import Reading
from teabert.heads.attending import TaskAttention
from teabert.pretrained import read_shape
from teabert.progress import Quiet
from teabert.source import EncodedStates
from teabert.tasks import make_task
from teabert.training import Trainer

SHAPE = read_shape(tiny.CONFIG, "tiny")
BERT_BASE = tiny.CONFIG | {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}


def reader(sequences, **options):
    torch.manual_seed(0)
    made = TaskAttention(TaskAttention.Config(**options), SHAPE, sequences).eval()
    for parameter in made.parameters():
        if options.get("start", "default") == "default" and parameter.ndim == 1:
            torch.nn.init.normal_(parameter, 0.5, 0.2)  # biases and norms that would show
    return made


def reading(lengths, pairs):
    """Random states for one task's sequences, packed by length, and which sequence is whose"""
    torch.manual_seed(1)
    rows = np.argsort(lengths, kind="stable")
    from teabert.batches import Layout

    layout = Layout.of([lengths[row] for row in rows])
    states = torch.randn(sum(lengths), SHAPE.width)
    where = torch.from_numpy(np.argsort(rows))
    half = len(lengths) // 2
    part = Part("t", where[:half] if pairs else where, where[half:] if pairs else None, torch.zeros(1), ())
    return Reading(states, layout, Encoder(SHAPE)), part


def text(reading, sequence):
    start = int(reading.layout.starts[sequence])
    return reading.states[start : start + reading.layout.lengths[sequence]]


def attention(module, asking, asked):
    """One example, written out"""
    q, k, v = (part(x) for part, x in ((module.query, asking), (module.key, asked), (module.value, asked)))
    width = q.shape[1] // module.attention_heads
    heads = []
    for head in range(module.attention_heads):
        mine = slice(head * width, (head + 1) * width)
        scores = q[:, mine] @ k[:, mine].T / math.sqrt(width)
        heads.append(scores.softmax(-1) @ v[:, mine])
    return module.output(torch.cat(heads, -1))


def test_self_attention_layers_equal_those_of_transformers():
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertLayer

    made = reader(1, layers=2)
    config = BertConfig(**{key: value for key, value in tiny.CONFIG.items() if key != "model_type"})
    config._attn_implementation = "eager"
    found, part = reading([3, 9, 5, 5, 1], pairs=False)
    layers = []
    for ours in made.stack:
        theirs = BertLayer(config).eval()
        names = {
            "attention.self.query": ours.attention.query,
            "attention.self.key": ours.attention.key,
            "attention.self.value": ours.attention.value,
            "attention.output.dense": ours.attention.output,
            "attention.output.LayerNorm": ours.attention_norm,
            "intermediate.dense": ours.inner,
            "output.dense": ours.outer,
            "output.LayerNorm": ours.final_norm,
        }
        weights = {f"{name}.{kind}": getattr(module, kind) for name, module in names.items() for kind in ("weight", "bias")}
        theirs.load_state_dict(weights)
        layers.append(theirs)
    first, second = made(found, part)
    assert second is None
    for example, sequence in enumerate(part.first.tolist()):
        x = text(found, sequence)[None]
        for layer in layers:
            x = layer(x)
            x = x[0] if isinstance(x, tuple) else x
        torch.testing.assert_close(first[example], x[0, 0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("bare_last", [True, False])
@pytest.mark.parametrize("feed_forward", [True, False])
def test_cross_attention_equals_a_plain_loop_over_pairs(layers, bare_last, feed_forward):
    made = reader(2, layers=layers, bare_last=bare_last, feed_forward=feed_forward)
    found, part = reading([3, 9, 5, 5, 1, 7], pairs=True)
    vectors = made(found, part)
    for example in range(3):
        x, y = text(found, int(part.first[example])), text(found, int(part.second[example]))
        for layer in made.stack:
            heard = attention(layer.attention, x, y), attention(layer.attention, y, x)
            if layer.bare:
                y, x = heard  # the first vector is what was heard of text 1
                continue
            x, y = (layer.attention_norm(each + layer.dense(to)) for each, to in zip((x, y), heard, strict=True))
            if feed_forward:
                x, y = (layer.final_norm(each + layer.outer(F.gelu(layer.inner(each)))) for each in (x, y))
        torch.testing.assert_close(vectors[0][example], x[0], atol=1e-5, rtol=0)
        torch.testing.assert_close(vectors[1][example], y[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("bare_last", [True, False])
def test_exchange_is_the_papers_code_on_padded_pairs(bare_last):
    made = reader(2, layers=3, bare_last=bare_last, exchange=True)
    found, part = reading([3, 9, 5, 5, 1, 7], pairs=True)
    vectors = made(found, part)
    own = reader(2, layers=3, bare_last=bare_last)(found, part)
    for example in range(3):
        texts = [text(found, int(each[example])) for each in (part.first, part.second)]
        longest = max(map(len, texts))
        real = [(torch.arange(longest) < len(each))[:, None] for each in texts]
        one, two = (F.pad(each, (0, 0, 0, longest - len(each))) for each in texts)
        for layer in made.stack:
            heard_of_one = attention(layer.attention, two, one[: len(texts[0])])  # r1: text 2 asks text 1
            heard_of_two = attention(layer.attention, one, two[: len(texts[1])])
            if layer.bare:
                one, two = heard_of_one, heard_of_two
                continue
            added = heard_of_one * real[1], heard_of_two * real[0]  # padding asks nothing
            one, two = (layer.attention_norm(x + layer.dense(r)) for x, r in zip((one, two), added, strict=True))
            one, two = (layer.final_norm(x + layer.outer(F.gelu(layer.inner(x)))) for x in (one, two))
        torch.testing.assert_close(vectors[0][example], one[0], atol=1e-5, rtol=0)
        torch.testing.assert_close(vectors[1][example], two[0], atol=1e-5, rtol=0)
    assert (vectors[0] - own[0]).abs().max() > 1e-3


@pytest.mark.parametrize("pairs", [False, True])
def test_mean_start_is_exactly_mean_pooling(pairs):
    made = reader(2 if pairs else 1, start="mean")
    found, part = reading([3, 9, 5, 5], pairs)
    vectors = made(found, part)
    for ours, sequences in zip(vectors, (part.first, part.second), strict=True):
        if sequences is not None:
            torch.testing.assert_close(ours, found.mean[sequences], atol=1e-6, rtol=0)


def test_uniform_start_fills_queries_keys_and_values_only():
    layer = reader(2, start="uniform").stack[0].attention
    for part in (layer.query, layer.key, layer.value):
        assert 0.9 <= part.weight.min() < part.weight.max() <= 1.0
    assert layer.output.weight.min() < 0


@pytest.mark.parametrize(
    ("sequences", "layers", "count"),
    [(1, 2, 2 * 7_087_872), (2, 1, 2_362_368), (2, 3, 2 * 7_678_464 + 2_362_368)],
    ids=["sst", "quora", "sts"],
)
def test_parameters_of_the_paper_s_readers_at_bert_base_size(sequences, layers, count):
    with torch.device("meta"):
        made = TaskAttention(TaskAttention.Config(layers=layers), read_shape(BERT_BASE, "base"), sequences)
    assert sum(parameter.numel() for parameter in made.parameters()) == count


def world_recipe(world, **train):
    given = tiny.recipe(world, **train)
    given["tasks"]["mood"]["head"] = {"read": {"method": "task_attention", "layers": 2}, "dropout": 0.0}
    given["tasks"]["near"]["head"] = {
        "read": {"method": "task_attention", "layers": 3},
        "answer": "difference",
        "dropout": 0.0,
    }
    return parse_recipe(given)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return tiny.write_world(tmp_path_factory.mktemp("world"))


def test_mixed_batch_equals_each_example_alone(world, tmp_path):
    trainer = Trainer.begin(world_recipe(world), tmp_path / "run", Quiet())
    trainer.model.eval()
    pairs = [(2, 1), (0, 3), (1, 2), (2, 7), (0, 5), (2, 0), (1, 8)]
    rows = trainer.source.rows
    with torch.no_grad():
        mixed = trainer.model(trainer.source.batch(pairs))
        for task, name in enumerate(trainer.source.tasks):
            mine = [row for index, row in pairs if index == task]
            alone = torch.cat([trainer.model(collate([(rows[name], row)], trainer.source.tasks))[name] for row in mine])
            torch.testing.assert_close(mixed[name], alone, atol=1e-5, rtol=0)


def test_frozen_training_on_kept_states_equals_encoding_anew(world, tmp_path):
    kept = Trainer.begin(world_recipe(world, mode="frozen"), tmp_path / "a", Quiet())
    anew = Trainer.begin(world_recipe(world, mode="frozen"), tmp_path / "b", Quiet())
    assert isinstance(kept.source, EncodedStates)
    plain = type(kept.source).__mro__[1]
    anew.engine.source, anew.select = plain(anew.source.rows), plain(anew.select.rows)
    for trainer in (kept, anew):
        for module in trainer.model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        trainer.model.heads.eval()
        trainer.engine.set_modes = lambda: None  # no dropout on either side
        trainer.model.encoder.eval()
        trainer.run_all()
    for name, tensor in kept.model.heads.state_dict().items():
        assert torch.allclose(tensor, anew.model.heads.state_dict()[name], atol=1e-4), name


def test_model_with_task_attention_is_saved_and_loaded(world, tmp_path):
    from teabert import load

    run = train(world_recipe(world), tmp_path / "run")
    scores = load(run.path).evaluate("dev")
    assert scores.tasks == run.scores()["tasks"]


def test_mean_start_with_full_layers_is_refused():
    task = {"texts": "t", "kind": "binary", "labels": ["a", "b"], "files": "{split}.csv"}
    head = {"read": {"method": "task_attention", "start": "mean", "layers": 2}}
    with pytest.raises(UserError, match="one bare layer only"):
        make_task("own", task | {"head": head}, "own")
