"""How evenly task attention reads before it learns."""

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch

import tiny
from conftest import rows_of, tiny_shape
from teabert.batches import collate
from teabert.encoder import Encoder
from teabert.entropy import STARTS, _measure, _states, entropies
from teabert.heads import Reading
from teabert.heads.attending import Attention
from teabert.progress import Quiet
from teabert.tasks import make_task
from teabert.tasks.reading import read_split

MOOD = {"texts": "sentence", "label": "mood", "kind": "classes", "labels": [0, 1, 2, 3, 4], "files": "mood-{split}.tsv"}
NEAR = {"texts": ["one", "two"], "label": "near", "kind": "score", "range": [0, 5], "files": "near-{split}.tsv"}
APART = NEAR | {"pair": "apart", "head": {"answer": "difference"}}


def test_entropy_is_scipy_s_of_every_token_over_the_real_tokens_of_its_text():
    rows = rows_of("task", [3, 7, 5])
    batch = collate([(rows, row) for row in range(3)], ["task"])
    encoder = Encoder(tiny_shape())
    states = torch.randn(len(batch.ids), 32, generator=torch.Generator().manual_seed(0))
    attention = Attention(32, 4)
    torch.nn.init.normal_(attention.query.weight, std=1)
    pack = _states(Reading(states, batch.layout, encoder), batch.parts[0].first)
    with torch.no_grad():
        whole, first, away = _measure(attention, [(pack, pack)])
        every, firsts, distances = [], [], []
        for start, length in zip(batch.layout.starts, batch.layout.lengths, strict=True):
            x = states[start : start + length]
            q, k, v = (part(x).view(length, 4, 8).numpy() for part in (attention.query, attention.key, attention.value))
            read = []
            for head in range(4):
                weights = scipy.special.softmax(q[:, head] @ k[:, head].T / 8**0.5, axis=1)
                found = scipy.stats.entropy(weights, axis=1) / np.log(length)
                every += [found]
                firsts.append(found[0])
                read.append(weights[0] @ v[:, head])
            mean = v.mean(0)
            distances.append(np.linalg.norm(np.stack(read) - mean) / np.linalg.norm(mean))
    assert whole == pytest.approx(np.concatenate(every).mean(), abs=1e-5)
    assert first == pytest.approx(np.mean(firsts), abs=1e-5)
    assert away == pytest.approx(np.mean(distances), abs=1e-5)


@pytest.mark.parametrize("facts", [MOOD, NEAR, APART], ids=["text", "pair together", "pair apart"])
def test_the_mean_start_reads_all_tokens_alike_and_the_others_do_not(tmp_path, facts):
    world = tiny.write_world(tmp_path)
    task = make_task("own", facts, "own")
    found = {each.start: each for each in _entropies(world, task, 2)}
    assert set(found) == set(STARTS)
    assert found["mean"].entropy == pytest.approx(1, abs=1e-5)
    assert found["mean"].from_mean == pytest.approx(0, abs=1e-5)
    assert found["mean"].spread == pytest.approx(0, abs=1e-6)
    assert all(0 < found[start].entropy < 0.99999 for start in ("default", "uniform"))
    assert all(found[start].from_mean > 1e-4 for start in ("default", "uniform"))


def _entropies(world, task, seeds):
    examples = read_split(task, "dev", str(world / "data")).examples
    return entropies(world / "encoder", task, examples, seeds, Quiet())


def test_real_sentences_under_u_0_9_1_are_read_in_few_tokens_and_under_torchs_default_nearly_evenly(minilm, real_data):
    task = make_task("sst", None, "sst")
    examples = read_split(task, "dev", str(real_data)).examples[:40]
    found = {each.start: each for each in entropies(minilm, task, examples, 1, Quiet())}
    assert found["uniform"].entropy < 0.2 < 0.99 < found["default"].entropy < found["mean"].entropy
