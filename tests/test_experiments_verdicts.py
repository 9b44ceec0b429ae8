"""The paired bootstrap against scipy's, and every way a claim can come out."""

import json

import numpy as np
import pytest
import scipy.stats
from typer.testing import CliRunner

import tiny
import toys
from teabert import cli
from teabert.experiments import TABLES
from teabert.experiments.bootstrap import Term, by_seed, interval
from teabert.experiments.claims import CLAIMS, Between, Claim, gains_more, more
from teabert.experiments.comparing import losers
from teabert.experiments.results import Results
from teabert.experiments.verdicts import verdicts
from teabert.metrics import accuracy, matthews, pearson


def predictions(metric, rows=300, seed=0):
    """Labels, two good answers and one better one"""
    draw = np.random.default_rng(seed)
    if metric == "pearson":
        labels = draw.uniform(0, 5, rows)
        return labels, [labels + draw.normal(0, noise, rows) for noise in (3, 3, 2)]
    labels = draw.integers(0, 2, rows)
    return labels, [np.where(draw.random(rows) < right, labels, 1 - labels) for right in (0.7, 0.7, 0.8)]


@pytest.mark.parametrize(
    ("metric", "compute"),
    [("accuracy", accuracy), ("pearson", pearson), ("matthews", matthews)],
    ids=("accuracy", "pearson", "matthews"),
)
def test_the_interval_is_that_of_scipys_paired_bootstrap(metric, compute):
    labels, (one, other, better) = predictions(metric)
    terms = [Term(1.0, "task", metric, labels, [better, better]), Term(-1.0, "task", metric, labels, [one, other])]

    def difference(labels, one, other, better):
        return compute(better, labels) - (compute(one, labels) + compute(other, labels)) / 2

    expected = scipy.stats.bootstrap(
        (labels, one, other, better),
        difference,
        paired=True,
        vectorized=False,
        method="percentile",
        n_resamples=2000,
        rng=1,
    ).confidence_interval
    assert np.mean(by_seed(terms)) == pytest.approx(difference(labels, one, other, better))
    assert interval(terms) == pytest.approx((expected.low, expected.high), abs=0.01)


def test_tasks_are_drawn_independently_and_add_up():
    labels, (one, _, better) = predictions("accuracy")
    scores, (noisy, _, near) = predictions("pearson", rows=200)
    terms = [
        Term(weight / 2, task, metric, wanted, [found])
        for task, metric, wanted, pair in (
            ("a", "accuracy", labels, (better, one)),
            ("b", "pearson", scores, (near, noisy)),
        )
        for weight, found in zip((1, -1), pair, strict=True)
    ]
    assert by_seed(terms) == pytest.approx(
        [(accuracy(better, labels) - accuracy(one, labels) + pearson(near, scores) - pearson(noisy, scores)) / 2]
    )
    widths = [np.diff(interval(part))[0] for part in (terms, terms[:2], terms[2:])]
    assert widths[0] == pytest.approx(np.hypot(*widths[1:]), rel=0.1)


def test_runs_that_answer_alike_differ_by_nothing():
    labels, (one, _, _) = predictions("accuracy")
    terms = [Term(weight, "task", "accuracy", labels, [one]) for weight in (1.0, -1.0)]
    assert interval(terms) == (0.0, 0.0)


# verdicts


@pytest.fixture
def table(tmp_path, monkeypatch):
    made = toys.toy(tiny.write_world(tmp_path / "world"))
    monkeypatch.setitem(TABLES, "toy", made)
    return made


@pytest.fixture
def results(tmp_path):
    return Results(tmp_path / "results")


def verdict(results, *tests, **facts):
    (found,) = verdicts(results.folder, [Claim("claim", "A claim.", "a paper", "toy", tests, **facts)])
    return found


RIGHT = {"separate": (0.9, 0.95), "shared": (0.6, 0.55), "exploding": (0.9, 0.5)}
BETTER = more("separate", "shared", "same", by=0.1)
WORSE = more("shared", "separate", "same")


def test_a_claim_holds_or_does_not_where_interval_and_seeds_say_so(results, table):
    toys.write_results(results, table, RIGHT)
    found = verdict(results, BETTER)
    assert (found.verdict, found.here, found.reason) == ("holds", "holds", "")
    (outcome,) = found.tests
    assert outcome.seeds == pytest.approx([0.3, 0.4], abs=0.02)
    assert 0.1 < outcome.low < outcome.found < outcome.high
    assert verdict(results, WORSE).verdict == "does not hold"
    assert verdict(results, BETTER, more("separate", "shared")).verdict == "holds"
    assert verdict(results, BETTER, WORSE).verdict == "does not hold"


def test_seeds_that_disagree_leave_it_open(results, table):
    toys.write_results(results, table, RIGHT)
    found = verdict(results, more("exploding", "shared", "same"))
    assert (found.verdict, found.reason) == ("undecided", "seeds disagree")


def test_a_difference_that_chance_explains_leaves_it_open(results, table):
    toys.write_results(results, table, {"separate": (0.62, 0.62), "shared": (0.6, 0.6)})
    found = verdict(results, more("separate", "shared", "same", by=0.01))
    assert (found.verdict, found.reason) == ("undecided", "chance on these dev rows is not ruled out")


def test_one_seed_leaves_it_open(results, table):
    toys.write_results(results, table, RIGHT, seeds=1)
    found = verdict(results, BETTER)
    assert (found.verdict, found.reason) == ("undecided", "1 seed only; at least 2 are needed")


def test_missing_rows_leave_it_open(results, table):
    assert verdict(results, BETTER).reason == "row separate of toy has not been run"
    toys.write_results(results, table, {"separate": (0.9, 0.9)})
    assert verdict(results, BETTER).reason == "row shared of toy has not been run"


def test_failed_and_reduced_runs_decide_nothing(results, table):
    toys.write_results(results, table, RIGHT, error="out of memory")
    toys.write_results(results, table, {"separate": (0.9, 0.9)}, what="of another recipe")
    assert verdict(results, BETTER).reason == "row separate of toy has not been run"


def test_lost_predictions_and_other_dev_rows_leave_it_open(results, table):
    toys.write_results(results, table, {"separate": (0.9, 0.9)})
    toys.write_results(results, table, {"shared": (0.6, 0.6)}, rows=40)
    assert "not of the same rows" in verdict(results, BETTER).reason
    for file in results.folder.glob("answers/shared*"):
        file.unlink()
    assert "were not kept" in verdict(results, BETTER).reason


def test_runs_on_other_data_are_not_compared(results, table):
    toys.write_results(results, table, {"exploding": (0.9, 0.9)})
    toys.write_results(results, table, {"shared": (0.6, 0.6)}, data="other")
    tests = more("exploding", "shared", "same"), Between("exploding", "seconds", 0, 2, "shared")
    assert [verdict(results, test).reason for test in tests] == ["the runs are on different data files"] * 2


def test_what_depends_on_the_encoder_is_decided_for_it_and_open_for_bert(results, table):
    mpnet = {"name": "mpnet", "sha256": "1" * 64, "weights": "F32"}
    toys.write_results(results, table, RIGHT, encoder=mpnet)
    of_encoder = verdict(results, BETTER, of_encoder=True)
    assert (of_encoder.verdict, of_encoder.here) == ("undecided", "holds")
    assert of_encoder.in_words() == "undecided; holds for mpnet"
    assert "not bert-base-uncased" in of_encoder.reason
    assert "rests on Quora" in verdict(results, more("separate", "shared")).reason
    assert verdict(results, BETTER).verdict == "holds"


def test_each_encoder_has_verdicts_of_its_own(results, table):
    toys.write_results(results, table, RIGHT)
    toys.write_results(
        results, table, {"separate": (0.5, 0.5), "shared": (0.9, 0.9)}, {"name": "m", "sha256": "1", "weights": ""}
    )
    found = verdicts(results.folder, [Claim("claim", "A claim.", "a paper", "toy", (BETTER,))])
    assert {each.encoder: each.verdict for each in found} == {"bert-base-uncased": "holds", "m": "does not hold"}
    assert json.loads((results.folder / "verdicts.json").read_text()) == [each.as_json() for each in found]
    assert "## m" in (results.folder / "verdicts.md").read_text()


def test_one_gain_above_another(results, table):
    toys.write_results(results, table, {"separate": (0.9, 0.9), "shared": (0.6, 0.6), "exploding": (0.85, 0.85)})
    gain = gains_more("separate", "shared", "same", ("separate", "exploding", "same"))
    assert verdict(results, gain).tests[0].found == pytest.approx(0.25, abs=0.02)
    assert verdict(results, gain).verdict == "holds"


def test_times_say_something_where_runs_had_the_machine_alone(results, table):
    toys.write_results(results, table, {"separate": (0.9, 0.9)})
    toys.write_results(results, table, {"shared": (0.9, 0.9)}, seconds=33.0)
    costs = Between("shared", "seconds", 1.07, 1.16, "separate")
    found = verdict(results, costs)
    assert found.verdict == "holds"
    assert found.tests[0].seeds == pytest.approx([1.1, 1.1])  # 33 s against three times 10
    toys.write_results(results, table, {"exploding": (0.9, 0.9)}, seconds=33.0, workers=2)
    assert "--workers 1" in verdict(results, Between("exploding", "seconds", 1, 2, "separate")).reason


def test_counts_are_decided_without_runs(results):
    found = {each.claim: each for each in verdicts(results.folder, CLAIMS.values())}
    assert not results.folder.exists()
    assert {name for name, each in found.items() if each.verdict != "undecided"} == {
        "attention-adds-three-times-input",
        "projected-adds-width-squared",
        "parameters-of-table-2",
        "adds-next-to-nothing",
    }
    assert [round(each.found, 3) for each in found["adds-next-to-nothing"].tests] == [0.002, 0.076, 19.397]
    assert found["attention-adds-three-times-input"].tests[0].found == 36
    assert [round(each.found) for each in found["parameters-of-table-2"].tests] == [14_179_589, 2_952_960, 20_081_664]
    assert "pretrained with more layers" in found["not-replaceable"].reason


def test_the_tasks_that_lose_are_named(results, table):
    toys.write_results(results, table, {"separate": (0.9, 0.9), "shared": (0.6, 0.6)})
    records = results.read()
    mine, theirs = ([each for each in records if each["row"] == row] for row in ("shared", "separate"))
    lost = losers(mine, theirs, results)
    assert set(lost) == set(toys.TASKS)
    assert lost["same"]["difference"] == pytest.approx(-0.3, abs=0.02)
    assert losers(theirs, mine, results) == {}


def test_a_task_that_loses_in_one_seed_only_is_not_named(results, table):
    toys.write_results(results, table, {"separate": (0.9, 0.5), "shared": (0.3, 0.55)})
    records = results.read()
    mine, theirs = ([each for each in records if each["row"] == row] for row in ("shared", "separate"))
    assert "same" not in losers(mine, theirs, results)
    first = [[each for each in side if each["seed"] == 0] for side in (mine, theirs)]
    assert "same" in losers(*first, results)


def test_the_command_prints_a_table_and_json(results, table):
    toys.write_results(results, table, RIGHT)
    shown = CliRunner().invoke(cli.app, ["verdicts", str(results.folder), "--quiet"])
    assert shown.exit_code == 0, shown.output
    assert "does not hold" in shown.stdout
    found = json.loads(CliRunner().invoke(cli.app, ["verdicts", str(results.folder), "--json", "--quiet"]).stdout)
    assert [each["claim"] for each in found] == list(CLAIMS)
