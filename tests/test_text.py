import json
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.implementations import ByteLevelBPETokenizer

from conftest import WORDS
from teabert.errors import UserError
from teabert.tasks import TASKS, make_task
from teabert.tasks.reading import Example, read_split
from teabert.text import TextEncoder, load_tokenizer

LONGEST = 64
PLAIN = [
    "The film was good.",
    "  Why   can't I cook RICE?\n",
    "a",
    " ",
    ".",
    "naïve café, ÉCOLE",
    "中文 the中film",
    "🙂 the 🙂",
    "\u200bthe\u00a0film\u2028was\x00good\ufffd",
    "dully dulling 12-1",
    "[SEP] the [MASK] film </s> <mask>",
    "x" * 300,
    "e\u0301",
    "the film was not very good, " * 40,
]
PAIRS = [("how do I cook rice?", "why not learn?"), ("a", "the film was good " * 40), ("x " * 200, "y " * 200), (" ", "a")]
UNICODE = st.text(st.characters(codec="utf-8"), max_size=60)
MIXED = st.lists(st.one_of(UNICODE, st.sampled_from(WORDS), st.sampled_from(PLAIN)), max_size=8).map(" ".join)


@pytest.fixture(scope="session")
def folders(tmp_path_factory, words):
    """A folder for each way in which a tokenizer is published"""
    home = tmp_path_factory.mktemp("tokenizers")
    (made := home / "tokenizer.json").mkdir()
    words.save(str(made / "tokenizer.json"))
    for name, settings_ in {"vocab.txt": {}, "cased": {"do_lower_case": False}}.items():
        (made := home / name).mkdir()
        (made / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
        (made / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"} | settings_))
    pieces = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    pieces.train_from_iterator(PLAIN, vocab_size=320, min_frequency=1, special_tokens=special, show_progress=False)
    for name, settings_ in {"merges.txt": {}, "spaced": {"add_prefix_space": True}}.items():
        (made := home / name).mkdir()
        pieces.save_model(str(made))
        (made / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "RobertaTokenizer"} | settings_))
    return home


@pytest.fixture(scope="session")
def both(folders):
    """A folder's name -> our tokenizer and transformers'"""
    from transformers import BertTokenizer, PreTrainedTokenizerFast, RobertaTokenizer

    kinds = {"tokenizer.json": PreTrainedTokenizerFast, "vocab.txt": BertTokenizer, "cased": BertTokenizer}
    made = {}

    def pair(name):
        if name not in made:
            folder = folders / name
            if name == "tokenizer.json":
                other = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
            else:
                other = kinds.get(name, RobertaTokenizer).from_pretrained(folder)
            made[name] = TextEncoder.load(folder, LONGEST), other
        return made[name]

    return pair


WAYS = ("tokenizer.json", "vocab.txt", "cased", "merges.txt", "spaced")


def assert_same_ids(ours, theirs, texts, longest=LONGEST):
    """The ids, and for pairs also where the second text begins, are transformers'"""
    tokens = ours.tokens(texts)
    pairs = isinstance(texts[0], tuple)
    given = tuple(map(list, zip(*texts, strict=True))) if pairs else (list(texts),)
    expected = list(theirs(*given).encodings)
    too_long = [row for row, encoding in enumerate(expected) if len(encoding.ids) > longest]
    assert tokens.cut == len(too_long)
    if too_long:
        cut = theirs(*([each[row] for row in too_long] for each in given), truncation=True, max_length=longest)
        for row, encoding in zip(too_long, cut.encodings, strict=True):
            expected[row] = encoding
    assert [ids.tolist() for ids in tokens.ids] == [encoding.ids for encoding in expected]
    for ids, begins, encoding in zip(tokens.ids, tokens.second_text, expected, strict=True):
        which, kinds = encoding.sequence_ids, encoding.type_ids
        if not pairs:
            assert begins == len(ids)
        elif any(kinds):
            assert [int(place >= begins) for place in range(len(ids))] == kinds
        elif 1 in which:
            assert begins == which.index(1)
        else:
            assert begins == len(ids)


@pytest.mark.parametrize("way", WAYS)
def test_ids_equal_transformers_on_awkward_texts(way, both):
    assert_same_ids(*both(way), PLAIN)


@pytest.mark.parametrize("way", WAYS)
def test_ids_equal_transformers_on_pairs(way, both):
    assert_same_ids(*both(way), PAIRS)


@pytest.mark.parametrize("way", WAYS)
def test_ids_equal_transformers_on_any_unicode(way, both):
    @settings(max_examples=50)
    @given(st.lists(MIXED, min_size=1, max_size=4), MIXED)
    def check(texts, other):
        assert_same_ids(*both(way), texts)
        assert_same_ids(*both(way), [(text, other) for text in texts])

    check()


@pytest.mark.parametrize("way", WAYS)
def test_ten_thousand_words_are_cut_and_counted(way, both):
    texts = ["the film " * 5000, "good", "was not " * 5000]
    assert_same_ids(*both(way), texts)
    tokens = both(way)[0].tokens(texts)
    assert tokens.cut == 2
    assert [len(ids) for ids in tokens.ids] == [LONGEST, len(tokens.ids[1]), LONGEST]
    ends = {int(ids[-1]) for ids in tokens.ids}
    assert len(ends) == 1, "the closing token stays"


def test_a_text_that_just_fits_is_not_cut(text):
    for words, cut in ((18, 0), (19, 1)):
        tokens = text.tokens(["the " * words], max_tokens=20)
        assert (len(tokens.ids[0]), tokens.cut) == (20, cut)


def test_a_task_cannot_ask_for_more_tokens_than_the_encoder_takes(text):
    assert len(text.tokens(["the " * 500], max_tokens=500).ids[0]) == text.longest


def test_the_longer_text_of_a_pair_is_cut_first(text):
    [ids] = text.tokens([("film", "good " * 100)], max_tokens=10).ids
    assert [WORDS[place] for place in ids] == ["[CLS]", "film", "[SEP]", *["good"] * 6, "[SEP]"]


def test_padding_and_truncation_that_a_file_asks_for_are_ignored(words, tmp_path):
    asking = type(words).from_str(words.to_str())
    asking.enable_padding(length=30)
    asking.enable_truncation(4)
    asking.save(str(tmp_path / "tokenizer.json"))
    [ids] = TextEncoder.load(tmp_path, LONGEST).tokens(["the film was not very good"]).ids
    assert len(ids) == 8


def test_a_saved_tokenizer_loads_with_the_same_ids(both, tmp_path):
    for way in WAYS:
        ours, _ = both(way)
        before = ours.tokens(PLAIN)
        ours.save(tmp_path)
        after = TextEncoder.load(tmp_path, LONGEST).tokens(PLAIN)
        assert [ids.tolist() for ids in after.ids] == [ids.tolist() for ids in before.ids]
        assert after.cut == before.cut


def examples(*texts):
    return [Example(str(row), each, float(row % 2)) for row, each in enumerate(texts)]


def task_of(**facts):
    return make_task("t", {"kind": "binary", "labels": ["0", "1"], "files": "{split}.csv"} | facts, "t")


def test_rows_of_single_texts(text):
    rows, cut = text.rows(task_of(texts="a"), examples(("the film",), ("good " * 100,)))
    assert (rows.task, rows.second_text, len(rows.sequences), cut) == ("t", None, 1, 1)
    assert [len(ids) for ids in rows.sequences[0]] == [4, text.longest]
    assert rows.labels.tolist() == [0, 1]
    assert rows.labels.dtype == np.float32
    assert rows.names == ("0", "1")


def test_rows_of_pairs_together_and_apart(text):
    pairs = examples(("the film", "good"), ("why", "not good"))
    together, _ = text.rows(task_of(texts=["a", "b"]), pairs)
    assert together.second_text == [4, 3]
    assert [[WORDS[place] for place in ids] for ids in together.sequences[0]] == [
        ["[CLS]", "the", "film", "[SEP]", "good", "[SEP]"],
        ["[CLS]", "why", "[SEP]", "not", "good", "[SEP]"],
    ]
    apart, _ = text.rows(task_of(texts=["a", "b"], pair="apart", head={"answer": "difference"}), pairs)
    assert apart.second_text is None
    assert [[len(ids) for ids in part] for part in apart.sequences] == [[4, 3], [3, 4]]


def test_a_task_may_cut_its_texts_shorter(text):
    rows, cut = text.rows(task_of(texts="a", max_tokens=8), examples(("the " * 6,), ("the " * 7,)))
    assert [len(ids) for ids in rows.sequences[0]] == [8, 8]
    assert cut == 1


def test_rows_of_several_labels_keep_them_all(text):
    task = task_of(texts="a", kind="multilabel", labels=["x", "y", "z"])
    rows, _ = text.rows(task, [Example("1", ("the",), (1.0, 0.0, 1.0)), Example("2", ("a",), (0.0, 0.0, 0.0))])
    assert rows.labels.tolist() == [[1, 0, 1], [0, 0, 0]]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "holds no tokenizer: neither tokenizer.json, vocab.txt, nor vocab.json with merges.txt"),
        ({"vocab.json": "{}"}, "holds no tokenizer"),
        ({"tokenizer.json": "{"}, "its tokenizer cannot be read"),
        ({"tokenizer.json": "{}"}, "its tokenizer cannot be read"),
        ({"vocab.txt": "a\nb\n"}, "its tokenizer cannot be read"),
        ({"vocab.txt": "\n".join(WORDS), "tokenizer_config.json": "[]"}, "its tokenizer cannot be read"),
        ({"vocab.txt": "[CLS]\n[SEP]\n[PAD]\n"}, "its tokenizer cannot be read: its vocabulary lacks [UNK]"),
        ({"vocab.json": '{"<s>": 0, "a": 1}', "merges.txt": ""}, "cannot be read: its vocabulary lacks </s>"),
    ],
)
def test_a_folder_without_a_usable_tokenizer_is_refused(files, message, tmp_path):
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        load_tokenizer(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert message in str(caught.value)


@pytest.fixture(scope="session")
def real(minilm):
    from transformers import AutoTokenizer

    return TextEncoder.load(minilm, 512), AutoTokenizer.from_pretrained(minilm)


def test_the_real_tokenizer_gives_transformers_ids(real):
    assert_same_ids(*real, [*PLAIN, "the film " * 5000], longest=512)
    assert_same_ids(*real, [*PAIRS, ("the film " * 5000, "good")], longest=512)


@settings(max_examples=50)
@given(texts=st.lists(UNICODE, min_size=1, max_size=4), other=UNICODE)
def test_the_real_tokenizer_gives_transformers_ids_on_any_unicode(real, texts, other):
    assert_same_ids(*real, texts, longest=512)
    assert_same_ids(*real, [(text, other) for text in texts], longest=512)


def test_the_real_vocabulary_file_gives_the_same_ids_as_the_tokenizer_file(real, minilm, tmp_path):
    os.symlink(minilm / "vocab.txt", tmp_path / "vocab.txt")
    expected, found = real[0].tokens(PLAIN), TextEncoder.load(tmp_path, 512).tokens(PLAIN)
    assert [ids.tolist() for ids in found.ids] == [ids.tolist() for ids in expected.ids]


@pytest.mark.parametrize("name", ["sst", "quora", "sts", "cfimdb"])
def test_real_dev_rows_get_transformers_ids(name, real, real_data):
    task = TASKS[name]
    texts = [example.texts for example in read_split(task, "dev", str(real_data)).examples]
    assert len(texts) > 200
    pairs = texts if len(task.texts) == 2 else [each for (each,) in texts]
    assert_same_ids(*real, pairs, longest=512)
