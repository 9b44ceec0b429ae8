"""Requests of any mix of tasks, in packed batches: as each alone; a bad one harms no other."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import WORDS
from injected import name_of
from predictors import predictor
from teabert.answers import Answer
from teabert.errors import UserError
from teabert.predictor import Prepared, Refusal, Request
from teabert.requests import by_tokens

TEXT = st.lists(st.sampled_from(WORDS[5:]), min_size=1, max_size=12).map(" ".join)
SINGLES, PAIRS = ("mood", "stars", "tags", "told"), ("same", "near", "kin", "heard")
ANY = st.one_of(
    st.builds(Request, st.sampled_from(SINGLES), TEXT), st.builds(Request, st.sampled_from(PAIRS), st.tuples(TEXT, TEXT))
)
INJECTIONS = ["none", "attention", {"method": "gate", "layers": "1"}, "prefix", ["input", "lora"]]


def assert_alike(one, other):
    assert (one.task, one.id) == (other.task, other.id)
    assert one.score == pytest.approx(other.score, abs=1e-5)
    assert one.probabilities == pytest.approx(other.probabilities, abs=1e-5)
    if one.label != other.label:  # only where the model wavers
        chances = sorted(one.probabilities.values())
        assert chances[-1] - chances[-2] < 1e-5 or any(abs(chance - 0.5) < 1e-5 for chance in chances)


@pytest.mark.parametrize("choice", INJECTIONS, ids=name_of)
def test_mixed_requests_in_any_order_answer_as_each_alone(text, choice):
    mine = predictor(text, choice)

    @settings(max_examples=20)
    @given(st.lists(ANY, min_size=1, max_size=12))
    def check(requests):
        together = mine.answers(requests)
        for request, answer in zip(requests, together, strict=True):
            assert_alike(answer, mine.answer_prepared([mine.prepare(request)])[0])

    check()


@pytest.mark.parametrize("choice", INJECTIONS, ids=name_of)
def test_all_tasks_of_a_text_answer_as_each_alone(text, choice):
    mine = predictor(text, choice)

    @settings(max_examples=10)
    @given(st.lists(st.one_of(TEXT, st.tuples(TEXT, TEXT)), min_size=1, max_size=4))
    def check(texts):
        for one, answers in zip(texts, mine.predict([*texts, "film"], tasks="all")[:-1], strict=True):
            assert tuple(sorted(answers)) == tuple(sorted(SINGLES if isinstance(one, str) else PAIRS))
            for name, answer in answers.items():
                assert answer.task == name
                alone = mine.predict([one], task=name)[0]
                assert answer.probabilities == pytest.approx(alone.probabilities, abs=1e-5)
                assert answer.score == pytest.approx(alone.score, abs=1e-5)

    check()


def tokens_read(mine, act):
    """How many tokens enter the encoder's last layer meanwhile"""
    count = []
    hook = mine.model.encoder.blocks[-1].register_forward_pre_hook(lambda block, given: count.append(len(given[0].input)))
    act()
    hook.remove()
    return sum(count)


def test_a_text_that_several_tasks_share_is_encoded_and_tokenised_once(text, monkeypatch):
    mine = predictor(text)
    tokenised = []
    original = mine.text.tokens
    monkeypatch.setattr(
        mine.text, "tokens", lambda texts, longest: tokenised.append(len(texts)) or original(texts, longest)
    )
    once = mine.prepare(Request("mood", "the film was good")).tokens
    tokenised.clear()
    requests = [Request(task, "the film was good") for task in ("mood", "stars", "tags")]
    assert tokens_read(mine, lambda: mine.answers(requests)) == once
    assert tokenised == [1]
    conditioned = predictor(text, "attention")
    assert tokens_read(conditioned, lambda: conditioned.answers(requests)) == 3 * once


def test_bad_requests_are_refused_in_words_and_harm_no_other(text):
    mine = predictor(text)
    requests = [
        Request("mood", "the film was good", "1"),
        Request("moods", "the film", "2"),
        Request("mood", "  ", "3"),
        Request("mood", ("a", "b"), "4"),
        Request("same", "a", "5"),
        Request("same", ("a", None), "6"),  # type: ignore[arg-type]
        Request("mood", b"bytes", "7"),  # type: ignore[arg-type]
        Request("same", {"one": 1, "two": 2}, "8"),  # type: ignore[arg-type]
        Request("mood\ud83d", "the film", "9\ud83d"),
        Request(None, "the film", "10"),  # type: ignore[arg-type]
        Request("mood", "the film \ud83d\x00 was", "11"),
        Request("near", ("a film", "a plot"), "12"),
    ]
    found = mine.answers(requests)
    kinds = [type(each).__name__ for each in found]
    assert kinds == ["Answer"] + ["Refusal"] * 9 + ["Answer"] * 2
    assert [each.id for each in found] == [str(number) if number != 9 else "9?" for number in range(1, 13)]
    words = ["Did you mean 'mood'?", "is empty", "takes one text, got ('a', 'b')", "takes a pair of texts, got 'a'"]
    words += ["takes a pair of texts, got ('a', None)", "takes one text, got b'bytes'", "takes a pair of texts, got {'one'"]
    words += ["Unknown task 'mood?'", "Unknown task 'None'"]
    for refusal, message in zip(found[1:10], words, strict=True):
        assert message in refusal.message
        (refusal.message + refusal.task).encode()  # can be printed and sent
    assert_alike(found[0], mine.answers(requests[:1])[0])


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 9)), max_size=30), st.integers(1, 60), st.booleans())
def test_batches_hold_every_request_once_within_the_budget(drawn, budget, once):
    arrays = {key: np.zeros(key[0], dtype=np.int32) for key in drawn}
    prepared = [Prepared("t", "", (arrays[key],), key[0]) for key in drawn]
    batches = list(by_tokens(prepared, budget, once))
    assert sorted(place for batch in batches for place in batch) == list(range(len(drawn)))
    for batch in batches:
        sizes = {id(prepared[place].sequences[0]): prepared[place].tokens for place in batch}
        cost = sum(sizes.values()) if once else sum(prepared[place].tokens for place in batch)
        assert cost <= budget or len(batch) == 1 or (once and len(sizes) == 1)
    lengths = [prepared[place].tokens for batch in batches for place in batch]
    assert lengths == sorted(lengths)


def test_many_requests_go_through_in_batches_of_the_budget(text, monkeypatch):
    mine = predictor(text, "attention")
    sizes = []
    original = mine.answer_prepared
    monkeypatch.setattr(mine, "answer_prepared", lambda given, abstain: sizes.append(given) or original(given, abstain))
    monkeypatch.setattr("teabert.source.ENCODE_TOKENS", 64)
    requests = [Request("mood", "film " * (1 + number % 20), str(number)) for number in range(50)]
    assert [each.id for each in mine.answers(requests)] == [str(number) for number in range(50)]
    assert max(sum(each.tokens for each in given) for given in sizes) <= 64
    assert len(sizes) > 5


def test_requests_prepared_in_several_threads_are_cut_each_as_its_task_wants(text):
    mine = predictor(text, tasks={"brief": {"texts": "sentence", "kind": "classes", "labels": ["a", "b"], "max_tokens": 8}})
    wrong = []

    def ask(task, tokens):
        for _ in range(300):
            if mine.prepare(Request(task, "film " * 50)).tokens != tokens:
                wrong.append(task)

    threads = [threading.Thread(target=ask, args=pair) for pair in (("brief", 8), ("mood", 40)) * 2]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert wrong == []


def test_prepared_request_of_a_task_that_is_gone_is_an_error_in_words(text):
    mine = predictor(text)
    prepared = mine.prepare(Request("mood", "film"))
    del mine.tasks["mood"]
    with pytest.raises(UserError, match="Unknown task 'mood'"):
        mine.answer_prepared([prepared])


def test_nothing_asked_is_nothing_answered(text):
    mine = predictor(text)
    assert mine.answers([]) == mine.answer_prepared([]) == mine.predict([], task="mood") == []
    assert mine.predict([], tasks="all") == []


@pytest.mark.parametrize(
    ("texts", "tasks", "expected"),
    [
        ("film", "all", [SINGLES]),
        (("film", "plot"), "all", [PAIRS]),
        (["film", "plot"], "all", [SINGLES, SINGLES]),
        (["film", ("film", "plot")], "all", [SINGLES, PAIRS]),
        (["film", "plot"], ["same", "near"], [("same", "near")]),
        (("film", "plot"), ["mood", "tags"], [("mood", "tags")] * 2),
        ("film", "mood", [("mood",)]),
        ("film", ["stars", "mood", "stars"], [("stars", "mood")]),
    ],
)
def test_tasks_are_those_that_take_what_was_given(text, texts, tasks, expected):
    found = predictor(text).predict(texts, tasks=tasks)
    assert [set(answers) for answers in found] == [set(names) for names in expected]


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ("film", {"tasks": ["mood", "same"]}, "Text 1: task 'same' takes a pair of texts, got 'film'"),
        ("film", {"tasks": []}, "the list is empty. Name some of mood, same"),
        ("film", {"tasks": ["moods"]}, "Unknown task 'moods'. Did you mean 'mood'"),
        ("film", {"task": "mood", "tasks": "all"}, "not both"),
        ("film", {"task": "mood", "abstain": 1.2}, "1.2 is not between 0 and 1"),
        (5, {"task": "mood"}, "Give a text, a pair of texts, or a list of these; got 5"),
        (b"film", {"tasks": "all"}, "got b'film'"),
        ({"a": "b"}, {"task": "mood"}, "got {'a': 'b'}"),
        (["film", ""], {"tasks": "all"}, "Text 2: the text in column 'sentence' is empty"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_words(text, texts, options, message):
    with pytest.raises(UserError) as caught:
        predictor(text).predict(texts, **options)
    assert message in str(caught.value)


def test_texts_may_come_from_anything_that_gives_them_one_by_one(text):
    mine = predictor(text)
    assert mine.predict((each for each in ("film", "plot")), task="mood") == mine.predict(["film", "plot"], task="mood")
    assert mine.predict(np.array([["film", "plot"]]), task="same") == mine.predict([("film", "plot")], task="same")


def test_text_for_a_model_of_pairs_only_is_refused_in_words(text):
    mine = predictor(text)
    mine.tasks = {"same": mine.tasks["same"]}
    with pytest.raises(UserError, match="Text 1: the tasks of this model take pairs of texts, got 'film'"):
        mine.predict("film", tasks="all")


def test_answers_and_refusals_are_told_apart(text):
    found = predictor(text).answers([Request("mood", "film"), Request("mood", "")])
    assert isinstance(found[0], Answer)
    assert isinstance(found[1], Refusal)
    assert not torch.is_inference_mode_enabled()
