"""The low-rank updates of a task as a PEFT adapter: on its encoder it gives the run's own token states."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import exported
from exported import SINGLE, close, make_run, opened, single
from teabert.catalogue import ENCODERS
from teabert.errors import UserError
from teabert.exports import export
from teabert.injections import INJECTIONS
from teabert.pretrained import to_config, to_published
from teabert.progress import Quiet

TASKS = {"mood": single("classes"), "fine": single("binary")}


def own_states(predictor, name):
    """The token states of each text of SINGLE"""
    source = predictor.source({name: exported.examples(predictor, name, SINGLE)}, Quiet())
    place = predictor.model.tasks.index(name)
    with torch.no_grad():
        return [predictor.model.read(source.batch([(place, row)])).states.numpy() for row in range(len(SINGLE))]


def adapted(folder, base):
    """transformers' encoder in a folder with the adapter, and what it makes of SINGLE"""
    import transformers
    from peft import PeftModel

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = PeftModel.from_pretrained(transformers.AutoModel.from_pretrained(base), folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    given = tokenizer(SINGLE, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        states = model(**given).last_hidden_state.numpy()
        with model.disable_adapter():
            plain = model(**given).last_hidden_state.numpy()
    lengths = given["attention_mask"].sum(1).tolist()
    return [x[:n] for x, n in zip(states, lengths, strict=True)], [x[:n] for x, n in zip(plain, lengths, strict=True)]


@pytest.mark.parametrize("layers", ["all", 1])
@pytest.mark.parametrize("family", exported.FAMILIES)
def test_adapter_gives_the_run_s_own_token_states(tmp_path, family, layers):
    run = make_run(tmp_path / "run", TASKS, family, {"method": "lora", "rank": 3, "alpha": 5, "layers": layers})
    for name in TASKS:
        export(run.path, "peft", name, tmp_path / name)
        states, plain = adapted(tmp_path / name, tmp_path / name / "encoder")
        ours = own_states(opened(run), name)
        assert all(close(theirs, mine) for theirs, mine in zip(states, ours, strict=True))
        assert all(np.abs(theirs - mine).max() > 1e-2 for theirs, mine in zip(plain, ours, strict=True))


def test_adapter_of_a_frozen_encoder_goes_onto_the_published_one(tmp_path):
    base = tmp_path / "published"
    run = make_run(tmp_path / "run", TASKS, injection="lora", encoder=str(base), train={"mode": "frozen"})
    encoder = opened(run).model.encoder
    base.mkdir()
    save_file(to_published(encoder.state_dict(), encoder.shape), base / "model.safetensors", {"format": "pt"})
    (base / "config.json").write_text(json.dumps(to_config(encoder.shape)))
    made = export(run.path, "peft", "mood", tmp_path / "out")
    assert not (tmp_path / "out" / "encoder").exists()
    assert str(base) in made.written.notes[0]
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    states, _ = adapted(tmp_path / "out", config["base_model_name_or_path"])
    assert all(close(theirs, mine) for theirs, mine in zip(states, own_states(opened(run), "mood"), strict=True))


def test_known_encoder_is_named_by_its_hub_id(tmp_path):
    run = make_run(tmp_path / "run", TASKS, injection="lora", encoder="minilm", train={"mode": "frozen"})
    export(run.path, "peft", "mood", tmp_path / "out")
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == ENCODERS["minilm"].hub


@pytest.mark.parametrize("injection", [*(name for name in INJECTIONS if name != "lora"), ["lora", "gate"]], ids=str)
def test_other_injections_are_refused_with_what_to_use_instead(tmp_path, injection):
    run = make_run(tmp_path / "run", TASKS, injection=injection)
    with pytest.raises(UserError, match=r"'injection: lora' alone.*--to hf.*--to onnx"):
        export(run.path, "peft", "mood", tmp_path / "out")


def test_readme_s_code_runs(tmp_path):
    export(make_run(tmp_path / "run", TASKS, injection="lora").path, "peft", "mood", tmp_path / "out")
    names = {}
    exec(exported.snippet(tmp_path / "out"), names)
    assert type(names["model"]).__name__.startswith("PeftModel")
