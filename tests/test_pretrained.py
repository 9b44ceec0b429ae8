import json
import pickle
import re

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from conftest import FAMILIES, packed, padded, plain, published, rows_of, spread, tiny_shape
from teabert.encoder import Encoder
from teabert.errors import UserError
from teabert.pretrained import load_encoder, published_names, read_shape, read_weights, to_ours, to_published

SIZES = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
CONFIG = {"model_type": "bert", "max_position_embeddings": 40, "type_vocab_size": 2, **SIZES}
DISTIL = {"model_type": "distilbert", "vocab_size": 64, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}
SHAPES = {
    "bert": tiny_shape(),
    "distilbert": tiny_shape(family="distilbert", segments=0, pooler=False),
    "roberta": tiny_shape(family="roberta", segments=1, first_position=2, padding_id=1),
    "mpnet": tiny_shape(family="mpnet", segments=0, first_position=2, padding_id=1, relative_buckets=32),
}
QUERY = "encoder.layer.0.attention.self.query.weight"


@pytest.fixture
def folder(tmp_path, folder_of):
    """A BERT folder that a test may spoil"""
    for file in folder_of("bert").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


@pytest.fixture
def weights(folder):
    return load_file(folder / "model.safetensors")


def store(folder, weights):
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, folder / "model.safetensors")


def refuse(folder, *parts):
    """Loading fails with one message, which holds all these parts"""
    with pytest.raises(UserError) as caught:
        load_encoder(folder)
    message = str(caught.value)
    assert str(folder) in message
    for part in parts:
        assert part in message
    return message


def same(encoder, weights):
    """The encoder holds exactly the published weights"""
    held = to_published(encoder.state_dict(), encoder.shape)
    return set(held) <= set(weights) and all(torch.equal(tensor, weights[name]) for name, tensor in held.items())


def with_prefix(weights, prefix):
    return {prefix + name: tensor for name, tensor in weights.items()}


@pytest.mark.parametrize("family", FAMILIES)
@given(seed=st.integers(0, 10**6))
@settings(max_examples=10)
def test_to_published_and_back_is_where_it_began(family, seed):
    encoder = Encoder(SHAPES[family])
    spread(encoder, seed)
    ours = encoder.state_dict()
    theirs = to_published(ours, encoder.shape)
    back, missing = to_ours(theirs, encoder.shape, "memory")
    assert missing == []
    assert back.keys() == ours.keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in ours.items())
    again = to_published(back, encoder.shape)
    assert all(torch.equal(again[name], tensor) for name, tensor in theirs.items())


@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_of_the_published_model_has_one_place_in_ours(family):
    names = [part for parts in published_names(SHAPES[family]).values() for part in parts]
    assert len(set(names)) == len(names)
    assert set(names) == {name for name, _ in published(family).named_parameters()}
    assert set(published_names(SHAPES[family])) == {name for name, _ in Encoder(SHAPES[family]).named_parameters()}


@pytest.mark.parametrize("family", FAMILIES)
def test_what_we_save_loads_in_transformers(family, tmp_path, folder_of):
    from transformers import AutoModel

    encoder = Encoder(load_encoder(folder_of(family))[0].shape).eval()
    spread(encoder, seed=7)
    save_file(to_published(encoder.state_dict(), encoder.shape), tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_bytes((folder_of(family) / "config.json").read_bytes())
    model, report = AutoModel.from_pretrained(tmp_path, attn_implementation="eager", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    batch = packed(rows_of("task", [3, 11, 6], seed=1))
    inputs = padded(batch, model.config.pad_token_id)
    real = inputs["attention_mask"].bool()
    del inputs["token_type_ids"]
    with torch.no_grad():
        states = model.eval()(**inputs).last_hidden_state[real]
        assert (states - encoder(batch, plain())).abs().max() <= 1e-5


def test_a_prefix_is_taken_off(folder, weights):
    heads = {"cls.predictions.bias": torch.ones(3), "classifier.weight": torch.ones(2), "other.weight": torch.ones(1)}
    store(folder, with_prefix(weights, "bert.") | heads)
    encoder, missing = load_encoder(folder)
    assert missing == []
    assert same(encoder, weights)


def test_old_layer_norm_names_are_understood(folder, weights):
    old = {name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): w for name, w in weights.items()}
    assert sum(name.endswith((".gamma", ".beta")) for name in old) == 10
    store(folder, old)
    assert same(load_encoder(folder)[0], weights)


def test_pretraining_heads_and_position_buffers_are_left_out(folder, weights):
    extra = {"cls.seq_relationship.bias": torch.ones(2), "embeddings.position_ids": torch.arange(40)[None]}
    store(folder, weights | extra)
    assert same(load_encoder(folder)[0], weights)


def test_half_precision_weights_become_fp32(folder, weights):
    store(folder, {name: tensor.half() for name, tensor in weights.items()})
    encoder, _ = load_encoder(folder)
    assert {parameter.dtype for parameter in encoder.parameters()} == {torch.float32}
    assert same(encoder, {name: tensor.half().float() for name, tensor in weights.items()})


def test_a_missing_pooler_is_allowed_and_listed(folder, weights):
    store(folder, {name: tensor for name, tensor in weights.items() if not name.startswith("pooler.")})
    encoder, missing = load_encoder(folder)
    assert sorted(missing) == ["pooler.dense.bias", "pooler.dense.weight"]
    assert encoder.pooler.weight.std().item() == pytest.approx(0.02, rel=0.3)
    assert not encoder.pooler.bias.any()


@pytest.mark.parametrize("name", ["embeddings.word_embeddings.weight", QUERY, "encoder.layer.1.output.LayerNorm.bias"])
def test_a_missing_weight_is_refused_by_name(folder, weights, name):
    del weights[name]
    store(folder, weights)
    message = refuse(folder, "do not fit a bert of 2 layers", f"missing: {name}")
    assert "unknown" not in message


@pytest.mark.parametrize("prefix", ["", "bert."])
@pytest.mark.parametrize("name", ["encoder.layer.2.output.dense.bias", "embeddings.extra.weight"])
def test_an_unknown_weight_is_refused_by_name(folder, weights, name, prefix):
    store(folder, with_prefix(weights | {name: torch.ones(32)}, prefix))
    assert "missing" not in refuse(folder, f"unknown: {name}")


@pytest.mark.parametrize(
    ("name", "given", "wanted"),
    [
        ("embeddings.word_embeddings.weight", (60, 32), None),
        (QUERY, (32, 31), (32, 32)),
        (QUERY, (), (32, 32)),
        ("encoder.layer.1.intermediate.dense.bias", (32,), (48,)),
    ],
)
def test_a_weight_of_another_shape_is_refused_by_name(folder, weights, name, given, wanted):
    wanted = wanted or tuple(weights[name].shape)
    weights[name] = torch.ones(given)
    store(folder, weights)
    refuse(folder, f"{name}: {given} instead of {wanted}")


def test_wrong_shapes_that_add_up_are_refused(folder, weights):
    weights[QUERY], weights[QUERY.replace("query", "key")] = torch.ones(16, 32), torch.ones(48, 32)
    store(folder, weights)
    refuse(folder, f"{QUERY}: (16, 32) instead of (32, 32)", "(48, 32) instead of (32, 32)")


def old_format(folder, content):
    (folder / "model.safetensors").unlink()
    torch.save(content, folder / "pytorch_model.bin")


def test_old_weights_are_read(folder, weights):
    old_format(folder, with_prefix(weights, "bert."))
    encoder, missing = load_encoder(folder)
    assert missing == []
    assert same(encoder, weights)


def test_safetensors_are_preferred_to_old_weights(folder, weights):
    (folder / "pytorch_model.bin").write_bytes(b"not looked at")
    assert same(load_encoder(folder)[0], weights)


class Malicious:
    """Unpickling it writes a file"""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("how", ["torch", "pickle"])
def test_a_malicious_pickle_is_refused_and_does_not_run(folder, weights, how):
    trace = folder / "trace"
    pickle.loads(pickle.dumps(Malicious(trace))).close()
    assert trace.exists(), "the pickle would do harm"
    trace.unlink()
    old_format(folder, {**weights, "harm": Malicious(trace)})
    if how == "pickle":
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Malicious(trace)))
    refuse(folder, "pytorch_model.bin does not hold plain weights")
    assert not trace.exists()


@pytest.mark.parametrize("content", [[1, 2], torch.ones(2), "text"])
def test_old_weights_that_are_no_mapping_are_refused(folder, content):
    old_format(folder, content)
    refuse(folder, f"does not hold plain weights but a {type(content).__name__}")


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
@given(data=st.binary(max_size=60))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_at_all_break_the_weight_readers(name, data, tmp_path):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match=re.escape(name)):
        read_weights(tmp_path)


def test_a_folder_without_weights_or_config_is_refused(folder):
    (folder / "model.safetensors").unlink()
    refuse(folder, "holds no weights: neither model.safetensors nor pytorch_model.bin")
    (folder / "config.json").unlink()
    refuse(folder, "is no encoder folder: it has no config.json")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a": 1' + b"0" * 5000 + b"}"])
def test_a_config_that_is_no_json_is_refused(folder, content):
    (folder / "config.json").write_bytes(content)
    refuse(folder, "config.json is not valid JSON")


def test_a_config_that_is_no_object_is_refused(folder):
    (folder / "config.json").write_text("[]")
    refuse(folder, "config.json does not hold a JSON object")


def test_a_config_is_read_into_a_shape():
    assert read_shape(CONFIG | {"layer_norm_eps": 1e-5, "hidden_act": "relu", "pad_token_id": 3}, "here") == tiny_shape(
        vocabulary=64, epsilon=1e-5, activation="relu", padding_id=3
    )
    assert read_shape(CONFIG | {"model_type": "roberta"}, "here").longest == 38
    assert read_shape(CONFIG | {"pad_token_id": None}, "here").padding_id == 0
    assert read_shape(DISTIL | {"max_position_embeddings": 40}, "here").pooler is False


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model_type": "t5"},
            "model_type 't5' is not supported. Supported: bert, roberta, xlm-roberta, distilbert,",
        ),
        ({"model_type": None}, "model_type None is not supported"),
        ({"model_type": ["bert"]}, "model_type ['bert'] is not supported"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type 'relative_key' is not supported, only"),
        ({"hidden_act": "quick_gelu"}, "activation 'quick_gelu' is not supported. Supported: gelu,"),
        ({"num_attention_heads": 5}, "width 32 does not divide into 5 attention heads"),
        ({"num_attention_heads": 0}, "'num_attention_heads' must be a whole number from 1, got 0"),
        ({"num_hidden_layers": 10**9}, "'num_hidden_layers' must be a whole number from 1, got 1000000000"),
        ({"hidden_size": None}, "'hidden_size' is missing"),
        ({"vocab_size": "many"}, "'vocab_size' must be a whole number from 1, got 'many'"),
        ({"vocab_size": float("inf")}, "'vocab_size' must be a whole number from 1, got inf"),
        ({"model_type": "roberta", "max_position_embeddings": 2}, "max_position_embeddings 2 leaves no place"),
        ({"pad_token_id": 64}, "pad_token_id 64 is not in a vocabulary of 64"),
        ({"hidden_dropout_prob": 1.5}, "'hidden_dropout_prob' must be a number from 0 to below 1, got 1.5"),
        ({"attention_probs_dropout_prob": float("nan")}, "'attention_probs_dropout_prob' must be a number"),
    ],
)
def test_an_unusable_config_is_refused_with_what_was_given(changes, message):
    with pytest.raises(UserError) as caught:
        read_shape(CONFIG | changes, "here/config.json")
    assert str(caught.value).startswith(f"here/config.json: {message}")


numbers = st.one_of(st.integers(), st.floats())
anything = st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=5), st.lists(st.integers(), max_size=2))


@given(st.dictionaries(st.sampled_from(sorted(CONFIG)), anything, min_size=1))
def test_no_config_at_all_breaks_the_loader(changes):
    try:
        shape = read_shape(CONFIG | changes, "here")
    except UserError as error:
        message = str(error)
        assert message.startswith("here: ")
    else:
        assert shape.longest > 0
        assert shape.width % shape.attention_heads == 0
        assert 0 <= shape.padding_id < shape.vocabulary


@given(st.data())
@settings(max_examples=15)
def test_a_config_that_lies_is_refused_before_memory_is_taken(folder_of, data):
    config = json.loads((folder_of("bert") / "config.json").read_text())
    key = data.draw(st.sampled_from(["vocab_size", "intermediate_size", "max_position_embeddings", "type_vocab_size"]))
    shape = read_shape(config | {key: data.draw(st.integers(10**6, 10**9))}, "here")
    with pytest.raises(UserError, match=r"weights of another shape than config\.json says"):
        to_ours(read_weights(folder_of("bert")), shape, "here")
