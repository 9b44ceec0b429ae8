"""`teabert verdicts`: each claim against the runs that are there, encoder by encoder, with the numbers and the test.

A claim holds where every test of it does; it does not where one fails; where rows are missing, seeds disagree or an
interval holds the bound, it is undecided. What may differ between encoders says nothing of bert-base-uncased.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from teabert.experiments import TABLES
from teabert.experiments.claims import CLAIMS, Claim, Difference
from teabert.experiments.deciding import Answer, Outcome, Runs
from teabert.experiments.notes import BERT, is_bert, may_know_quora
from teabert.experiments.results import Results, good
from teabert.experiments.writing import table
from teabert.files import write_json, write_text
from teabert.progress import Progress

TITLES = ("claim", "of", "verdict", "numbers")
HOW_TO_READ = (
    "A difference of scores over all seeds, the middle 95 % of a paired bootstrap over dev rows, the bound it is to lie"
    " above, and in how many seeds it does."
)


@dataclass(frozen=True)
class Verdict:
    """What is to be said of a claim."""

    claim: str
    text: str
    paper: str
    encoder: str
    verdict: Answer
    """of the claim as the paper makes it"""
    here: Answer
    """for this encoder"""
    reason: str
    tests: list[Outcome]

    def as_json(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)

    def in_words(self) -> str:
        """The verdict, and this encoder's own where they differ"""
        return self.verdict if self.verdict == self.here else f"{self.verdict}; {self.here} for {self.encoder}"

    def cells(self) -> list[str]:
        """A line of a table under TITLES"""
        return [self.text, self.paper, self.in_words(), self.numbers()]

    def numbers(self) -> str:
        """The tests in words"""
        found = [_in_words(outcome) for outcome in self.tests if outcome.found is not None]
        return "\n".join([*dict.fromkeys(found), *([self.reason] if self.reason else [])])


def verdicts(folder: Path, claims: Collection[Claim] = CLAIMS.values(), progress: Progress | None = None) -> list[Verdict]:
    """All claims for each encoder of the results in a folder; kept there as verdicts.json and verdicts.md."""
    results = Results(folder)
    records = [record for record in results.by_key().values() if good(record)]
    encoders = dict.fromkeys(record["encoder"]["sha256"] for record in records)
    of = [Runs([record for record in records if record["encoder"]["sha256"] == sha], results) for sha in encoders]
    of = of or [Runs([], results)]
    found: list[Verdict] = []
    with (progress or Progress()).bar("claims", len(claims) * len(of)) as advance:
        for runs in of:
            for claim in claims:
                found.append(verdict(claim, runs))
                advance(1)
    if records:
        write_json(folder / "verdicts.json", [each.as_json() for each in found])
        write_text(folder / "verdicts.md", as_markdown(found))
    return found


def as_markdown(found: Sequence[Verdict]) -> str:
    """For reading."""
    lines = ["# What the papers claim, and what holds", "", HOW_TO_READ]
    for encoder in dict.fromkeys(each.encoder for each in found):
        rows = [each.cells() for each in found if each.encoder == encoder]
        lines += ["", f"## {encoder}", "", *table(TITLES, rows)]
    return "\n".join(lines) + "\n"


def verdict(claim: Claim, runs: Runs) -> Verdict:
    """On one claim, of one encoder."""
    outcomes = [runs.outcome(claim, test) for test in claim.tests]
    here = combined([outcome.answer for outcome in outcomes])
    counted_only = bool(claim.table) and TABLES[claim.table].counted
    reason = "" if counted_only else why_of_encoder(claim, runs.encoder)
    answer: Answer = "undecided" if reason else here
    unknown = [claim.unmeasured, *(outcome.reason for outcome in outcomes)] if here == "undecided" else []
    name = runs.encoder["name"] if runs.encoder else "none yet"
    return Verdict(
        claim.name,
        claim.text,
        claim.paper,
        name,
        answer,
        here,
        "; ".join(dict.fromkeys(filter(None, [*unknown, reason]))),
        outcomes,
    )


def why_of_encoder(claim: Claim, encoder: Mapping[str, str] | None) -> str:
    """Why its answer would say nothing of the papers' encoder; nothing where it would"""
    if encoder is None or is_bert(encoder):
        return ""
    if claim.of_encoder:
        return f"it depends on the encoder, and this is not {BERT}"
    columns = {column for test in claim.tests if isinstance(test, Difference) for _, _, column in test.terms}
    if columns & {"quora", "mean"} and may_know_quora(encoder):
        return f"it rests on Quora, whose questions this encoder, unlike {BERT}, has seen or may have seen"
    return ""


def combined(answers: Sequence[Answer]) -> Answer:
    """Of all tests"""
    if "does not hold" in answers:
        return "does not hold"
    return "holds" if answers and all(answer == "holds" for answer in answers) else "undecided"


def _in_words(outcome: Outcome) -> str:
    assert outcome.found is not None, "only what was found can be shown"
    if outcome.low is None:
        wanted = " to ".join(dict.fromkeys(f"{each:,.0f}" if each >= 100 else f"{each:g}" for each in outcome.bound))
        return f"{outcome.found:,.{0 if outcome.found >= 100 else 3}f}, wanted {wanted}"
    above = sum(each > outcome.bound[0] for each in outcome.seeds)
    ends = f"[{outcome.low:+.3f}, {outcome.high:+.3f}]"
    return f"{outcome.found:+.3f} {ends} > {outcome.bound[0]:g}, {above} of {len(outcome.seeds)} seeds"
