"""What must be said beside a table's numbers: which encoder they are of, and in what its runs differ."""

from collections.abc import Mapping, Sequence

from teabert.catalogue import ENCODERS, KnownEncoder
from teabert.experiments.results import Record

BERT = "bert-base-uncased"
"""The papers' encoder."""


def known_encoder(encoder: Mapping[str, str]) -> KnownEncoder | None:
    """An encoder on teabert's list: by its weights' checksum, also rounded, or by its name where none is pinned."""
    for known in ENCODERS.values():
        if encoder["sha256"] in (known.sha256, known.half_sha256) or (not known.sha256 and known.name == encoder["name"]):
            return known
    return None


def is_bert(encoder: Mapping[str, str]) -> bool:
    """Whether it is the papers' encoder"""
    known = known_encoder(encoder)
    return known is not None and known.name == BERT


def may_know_quora(encoder: Mapping[str, str]) -> bool:
    """Whether it was tuned on Quora's questions, or nobody knows"""
    known = known_encoder(encoder)
    return known is None or "Quora" in known.tuned_on


def notes_on(records: Sequence[Record]) -> list[str]:
    """All of it."""
    if not records:
        return ["Nothing has been run yet."]
    return [*_on_encoder(records[0]["encoder"]), _on_rows(records), *_on_differences(records)]


def _on_encoder(encoder: Mapping[str, str]) -> list[str]:
    known = known_encoder(encoder)
    tuned = known.tuned_on if known else "not known to teabert"
    name = known.hub.split("/")[-1] if known else encoder["name"]
    notes = [f"Encoder: {name} (weights in {encoder['weights']}). Tuned before on: {tuned}."]
    if not is_bert(encoder):
        notes.append(f"The papers' numbers are of {BERT}; these do not say what that one would reach.")
    if known and may_know_quora(encoder):
        notes.append("It has seen Quora's questions, so its Quora scores are higher for that.")
    return notes


def _on_rows(records: Sequence[Record]) -> str:
    counts: dict[str, set[int]] = {}
    for record in records:
        for task, rows in record["rows"]["train"].items():
            counts.setdefault(task, set()).add(rows)
    return f"Training rows: {', '.join(f'{task} {_range(rows)}' for task, rows in counts.items())}."


def _range(rows: set[int]) -> str:
    return f"{min(rows):,}" if len(rows) == 1 else f"{min(rows):,} to {max(rows):,}"


def _on_differences(records: Sequence[Record]) -> list[str]:
    facts = {
        "hardware": {record["machine"]["gpu"] or record["machine"]["processor"] for record in records},
        "precision": {record["precision"] for record in records},
        "commit": {str(record["commit"]) for record in records},
    }
    notes = [f"The runs differ in {what}: {', '.join(sorted(found))}." for what, found in facts.items() if len(found) > 1]
    if any(record["workers"] > 1 for record in records):
        notes.append("Several ran at once on one machine, so times, memory and speed say little.")
    return notes
