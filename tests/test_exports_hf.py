"""A task as a plain HuggingFace folder: transformers and sentence-transformers answer as the run itself."""

import json

import numpy as np
import pytest
import torch

import exported
from exported import FAMILIES, FOLDING, PAIRS, SINGLE, close, examples, make_run, opened, own_outputs, pair, single, task_of
from teabert.calibration import Calibration, TaskCalibration
from teabert.errors import UserError
from teabert.exports import export
from teabert.heads import ANSWERS, READERS
from teabert.injections import INJECTIONS
from teabert.pretrained import read_shape, to_config
from teabert.progress import Quiet

LINEAR = {
    "mood": single("classes"),
    "shares": single("soft"),
    "stars": single("ordinal", answer="coral"),
    "steps": single("ordinal"),
    "fine": single("binary"),
    "tags": single("multilabel"),
    "rate": single("score"),
    "rate-raw": single("score", stretch="raw"),
    "same": pair("binary"),
    "near": pair("score") | {"max_tokens": 12},
}


def quiet():
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def texts_of(task):
    return PAIRS if len(task.texts) == 2 else SINGLE


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A family's name -> its run over all linear tasks"""
    made = {}

    def run(family):
        if family not in made:
            made[family] = make_run(tmp_path_factory.mktemp("runs") / family, LINEAR, family, FOLDING)
        return made[family]

    return run


@pytest.mark.parametrize("family", FAMILIES)
def test_written_config_describes_the_shape_it_was_written_from(family):
    shape = exported.shape_of(family)
    config = to_config(shape)
    assert read_shape(config, "here").__dict__ | {"pooler": shape.pooler} == shape.__dict__


def test_written_config_loads_in_transformers_as_the_family_s_own():
    transformers = quiet()
    for family in FAMILIES:
        config = transformers.AutoConfig.for_model(**to_config(exported.shape_of(family)))
        assert config.model_type == family


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("family", FAMILIES)
def test_sequence_classification_gives_the_run_s_own_logits(runs, tmp_path, family, name):
    transformers = quiet()
    run = runs(family)
    export(run.path, "hf", name, tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    model, info = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not info["missing_keys"] | info["unexpected_keys"] | info["mismatched_keys"]
    predictor = opened(run)
    task = predictor.task(name)
    texts = texts_of(task)
    ours = own_outputs(predictor, name, texts)
    given = [list(part) for part in zip(*texts, strict=True)] if len(task.texts) == 2 else [texts]
    with torch.no_grad():
        theirs = model(**tokenizer(*given, padding=True, truncation=True, return_tensors="pt")).logits.numpy()
    if task.kind == "binary":
        assert (theirs[:, 0] == 0).all()
        theirs = theirs[:, 1:]
    assert close(theirs, ours)
    assert np.ptp(ours, axis=0).min() > 1e-3, "the texts do not differ, so that equality says nothing"


@pytest.mark.parametrize("name", ["mood", "shares", "fine", "tags", "rate", "same"])
def test_pipeline_gives_the_probabilities_of_the_predictor(runs, tmp_path, name):
    transformers = quiet()
    run = runs("bert")
    export(run.path, "hf", name, tmp_path / "out")
    pipeline = transformers.pipeline("text-classification", str(tmp_path / "out"), top_k=None, truncation=True)
    predictor = opened(run)
    texts = texts_of(predictor.task(name))
    given = [{"text": text[0], "text_pair": text[1]} if isinstance(text, tuple) else text for text in texts]
    for theirs, answer in zip(pipeline(given), predictor.predict(texts, task=name), strict=True):
        named = {each["label"]: each["score"] for each in theirs}
        ours = {"score": answer.score} if answer.score is not None else answer.probabilities
        assert named == pytest.approx(ours, abs=1e-5)


def test_ordinal_logits_count_up_to_the_label(runs, tmp_path):
    run = runs("bert")
    export(run.path, "hf", "stars", tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert list(config["id2label"].values()) == ["above 1", "above 2", "above 3"]
    assert config["problem_type"] == "multi_label_classification"
    predictor = opened(run)
    passed = (own_outputs(predictor, "stars", SINGLE) > 0).sum(-1)
    assert [str(1 + count) for count in passed] == [answer.label for answer in predictor.predict(SINGLE, task="stars")]


@pytest.mark.parametrize("family", ["bert", "mpnet"])
def test_tokenizer_gives_the_run_s_own_ids_whatever_the_text(runs, tmp_path, family):
    transformers = quiet()
    run = runs(family)
    export(run.path, "hf", "mood", tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    text = opened(run).text
    odd = [*SINGLE, "", "ﬁlm É [SEP] </s> <pad>[PAD]", "can ' t ,dull . NICE  plot\tx\u200b", "good" * 40]
    ours = [ids.tolist() for ids in text.tokens(odd).ids]
    assert tokenizer(odd, truncation=True)["input_ids"] == ours
    pairs = [ids.tolist() for ids in text.tokens(PAIRS).ids]
    assert tokenizer(*[list(part) for part in zip(*PAIRS, strict=True)], truncation=True)["input_ids"] == pairs


# sentence-transformers


def sentences(folder):
    quiet()
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu")


def logits(model, texts):
    return np.stack([row["logits"].numpy() for row in model.encode(texts, output_value=None)])


MEAN = {
    "mood": single("classes", "mean"),
    "bare": single("classes", {"method": "first_token", "pooler": False}),
    "fine": single("binary", "mean"),
    "stars": single("ordinal", "mean", answer="coral"),
    "rate": single("score", "mean", stretch="sigmoid"),
    "deep": single("classes", {"method": "mlp", "times": 3, "layers": 2}),
    "pooled": single("score", "first_token", stretch="sigmoid"),
    "same": pair("binary", "mean"),
    "near": pair("score", "mean") | {"max_tokens": 9},
}


# a bare first token fits DistilBERT's own classifier
IN_SENTENCES = [(family, name) for family in FAMILIES for name in MEAN if (family, name) != ("distilbert", "bare")]


@pytest.mark.parametrize(("family", "name"), IN_SENTENCES)
def test_sentence_transformers_gives_the_run_s_own_logits(tmp_path, family, name):
    run = make_run(tmp_path / "run", {name: MEAN[name]}, family, FOLDING)
    export(run.path, "hf", out=tmp_path / "out")
    predictor = opened(run)
    task = predictor.task(name)
    texts = texts_of(task)
    theirs, ours = logits(sentences(tmp_path / "out"), texts), own_outputs(predictor, name, texts)
    assert close(theirs[:, 1:] if task.kind == "binary" else theirs, ours)
    assert np.ptp(ours, axis=0).min() > 1e-3


@pytest.mark.parametrize("read", ["mean", "mlp", "first_token", {"method": "first_token", "pooler": False}])
def test_embeddings_are_the_vectors_that_the_head_reads(tmp_path, read):
    run = make_run(tmp_path / "run", {"mood": single("score", read, stretch="sigmoid")}, injection=FOLDING)
    export(run.path, "hf", out=tmp_path / "out")
    predictor = opened(run)
    model = predictor.model
    source = predictor.source({"mood": examples(predictor, "mood", SINGLE)}, Quiet())
    batch = source.batch([(0, row) for row in range(len(SINGLE))])
    with torch.no_grad():
        ours, _ = model.head("mood").reader(model.read(batch), batch.parts[0])
    assert close(sentences(tmp_path / "out").encode(SINGLE), ours)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("kind", "answer", "stretch"),
    [
        ("score", "cosine", None),
        ("score", "cosine", "none"),
        ("score", {"method": "dot", "width": 7}, "sigmoid"),
        ("score", {"method": "dot", "width": 7}, "raw"),
        ("binary", {"method": "dot", "width": 7}, None),
    ],
    ids=str,
)
def test_similarity_is_the_answer_to_pairs_apart(tmp_path, family, kind, answer, stretch):
    given = {} if stretch is None else {"stretch": stretch}
    run = make_run(tmp_path / "run", {"near": pair(kind, "mean", apart=True, answer=answer, **given)}, family, FOLDING)
    export(run.path, "hf", out=tmp_path / "out")
    model = sentences(tmp_path / "out")
    first, second = zip(*PAIRS, strict=True)
    theirs = model.similarity_pairwise(model.encode(list(first)), model.encode(list(second))).numpy()
    stated = (tmp_path / "out" / "README.md").read_text()
    formula = {
        (None, "cosine"): "1 + 4 * max(0, similarity)",
        ("none", "cosine"): "max(0, similarity)",
        ("sigmoid", "dot"): "1 + 4 * sigmoid(similarity)",
        ("raw", "dot"): "1 + 4 * similarity",
        (None, "dot"): "sigmoid(similarity)",
    }[stretch, answer if isinstance(answer, str) else "dot"]
    assert f" is {formula}." in stated
    meant = eval(formula, {"similarity": theirs, "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "max": np.maximum})
    answers = opened(run).predict(PAIRS, task="near")
    ours = [each.score if kind == "score" else each.probabilities["yes"] for each in answers]
    assert close(meant, ours)


def test_more_labels_than_half_of_distilbert_s_width_go_to_sentence_transformers(tmp_path):
    labels = [str(number) for number in range(17)]
    run = make_run(tmp_path / "run", {"intent": single("classes") | {"labels": labels}}, "distilbert")
    made = export(run.path, "hf", out=tmp_path / "out")
    assert "sentence-transformers" in made.written.notes[0]
    assert close(logits(sentences(tmp_path / "out"), SINGLE), own_outputs(opened(run), "intent", SINGLE))


# what fits, over the lists


def every_head():
    """Each reader with each answer"""
    return [(reader, answer) for reader in READERS for answer in ANSWERS]


@pytest.mark.parametrize(("reader", "answer"), every_head())
def test_every_head_is_exported_or_refused_with_what_to_use_instead(tmp_path, reader, answer):
    task = task_of(reader, answer)
    run = make_run(tmp_path / "run", {"task": task})
    refused = reader == "task_attention" or answer in ("concatenated", "difference")
    if not refused:
        export(run.path, "hf", out=tmp_path / "out")
        assert (tmp_path / "out" / "config.json").is_file()
        return
    with pytest.raises(UserError, match=f"'task'.*{'task_attention' if reader == 'task_attention' else answer}.*--to onnx"):
        export(run.path, "hf", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", INJECTIONS)
def test_every_injection_is_folded_or_refused_by_name(tmp_path, name):
    run = make_run(tmp_path / "run", {"mood": single("classes"), "fine": single("binary")}, injection=name)
    if INJECTIONS[name].foldable:
        export(run.path, "hf", "mood", tmp_path / "out")
        assert (tmp_path / "out" / "model.safetensors").is_file()
        return
    with pytest.raises(UserError, match=f"injection '{name}' cannot be folded.*These fold: input.*--to onnx"):
        export(run.path, "hf", "mood", tmp_path / "out")


def test_second_text_that_the_tokenizer_does_not_mark_is_refused(tmp_path):
    from tokenizers.processors import TemplateProcessing

    from teabert.text import load_tokenizer

    run = make_run(tmp_path / "run", {"same": pair("binary")})
    tokenizer = load_tokenizer(run.path)
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS]:0 $A:0 [SEP]:0 $B:0 [SEP]:0", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    (run.path / "tokenizer.json").write_text(tokenizer.to_str())
    with pytest.raises(UserError, match=r"does not mark the second text.*--to onnx"):
        export(run.path, "hf", out=tmp_path / "out")


@pytest.mark.parametrize("clean", ["lower", "spaced"])
def test_readme_says_how_to_clean_texts_exactly(tmp_path, clean):
    from teabert.tasks.reading import clean as cleaned

    run = make_run(tmp_path / "run", {"mood": single("classes") | {"clean": clean}})
    made = export(run.path, "hf", out=tmp_path / "out")
    assert any("cleaned first" in note for note in made.written.notes)
    code = (tmp_path / "out" / "README.md").read_text().split("```python\n")[-1].split("```")[0]
    for text in ("  It's GOOD, really.Is it?  ", "x", "A.B ,c"):
        names = {"text": text}
        exec(code, names)
        assert names["text"] == cleaned(text, clean)


def test_calibration_is_told_with_what_to_divide_by(tmp_path):
    run = make_run(tmp_path / "run", {"mood": single("classes", "mean")})
    told = {"rows": 9, "loss_before": 1, "loss_after": 1, "ece_before": 1, "ece_after": 1, "source": "here"}
    Calibration(tasks={"mood": TaskCalibration(temperature=2.5, **told)}).save(run.path)
    made = export(run.path, "hf", out=tmp_path / "out")
    assert any("divide its logits by 2.5" in note for note in made.written.notes)
    assert "divide its logits by 2.5" in (tmp_path / "out" / "README.md").read_text()
    answers = opened(run).predict(SINGLE, task="mood")
    powers = np.exp(logits(sentences(tmp_path / "out"), SINGLE) / 2.5)
    assert close(powers / powers.sum(-1, keepdims=True), [list(answer.probabilities.values()) for answer in answers])


@pytest.mark.parametrize(
    "task", [single("multilabel"), pair("classes"), single("classes", "mean"), pair("score", "mean", True, answer="cosine")]
)
def test_readme_s_code_runs(tmp_path, task, capsys):
    quiet()
    export(make_run(tmp_path / "run", {"mood": task}).path, "hf", out=tmp_path / "out")
    names = {}
    exec(exported.snippet(tmp_path / "out"), names)
    assert "label" in capsys.readouterr().out or names.keys() & {"logits", "similarity"}
