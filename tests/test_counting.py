"""The numbers of a model, counted truly and as Table 2 of Task-specific attention counts them."""

import pytest

from conftest import tiny_shape
from teabert.config import load_recipe, parse_recipe
from teabert.counting import count
from teabert.encoder import EncoderShape

BERT = EncoderShape("bert", 30522, 768, 12, 12, 3072, 512, 2, 1e-12)


@pytest.mark.parametrize(
    ("recipe", "true", "table"),
    [
        (
            "task-attention-baseline",
            {"sst": 3_845, "quora": 590_592, "sts": 2_362_368},
            {"sst": 3_840, "quora": 589_824, "sts": 2_359_296},
        ),
        (
            "task-attention",  # the code allocates unused parts beside these: 3,543,552 for Quora, 21,853,440 for STS
            {"sst": 14_179_589, "quora": 2_952_960, "sts": 20_081_664},
            {"sst": 4_722_432, "quora": 3_538_944, "sts": 11_206_656},
        ),
    ],
)
def test_table_2_by_its_own_counting_and_the_true_counts(recipe, true, table):
    found = count(load_recipe(recipe), BERT)
    assert {each.task: each.head for each in found.tasks} == true
    assert {each.task: each.table for each in found.tasks} == table
    assert found.heads == sum(true.values())
    assert (found.encoder, found.injection) == (109_482_240, 0)
    assert found.total == 109_482_240 + sum(true.values())


def test_what_each_task_owns_of_an_injection_and_what_they_share():
    injection = [{"method": "projected", "share_layers": True}, {"method": "attention", "layers": 0}]
    found = count(parse_recipe({"tasks": ["sst", "quora"], "injection": injection}), tiny_shape())
    assert [each.injection for each in found.tasks] == [32 + 3 * 32] * 2
    assert found.injection == 2 * (32 + 3 * 32) + 3 * 32 * 32


def test_a_shared_head_counts_for_each_task_and_once_in_all():
    found = count(load_recipe("all-sharable"), BERT)
    assert [each.head for each in found.tasks] == [3_845, 1_537, 1_537]
    assert found.heads == 3_845 + 1_537
