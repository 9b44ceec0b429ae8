"""A table's summary -> table.json, table.csv and table.md in its folder, each number with the runs that it comes from;

and short.md, the scores alone with what must be said beside them, for a page that has room for no more.
"""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from teabert.experiments.columns import decimals, title
from teabert.experiments.summary import Summary
from teabert.files import write_json, write_text

MISSING = "-"


def write(summary: Summary, folder: Path) -> None:
    """All four files."""
    write_json(folder / "table.json", summary)
    write_text(folder / "table.csv", as_csv(summary))
    write_text(folder / "table.md", as_markdown(summary))
    write_text(folder / "short.md", as_short(summary))


def columns(summary: Summary) -> list[str]:
    """Scores first, then what they cost"""
    return [*summary["columns"], *summary["measures"]]


def titles(summary: Summary) -> list[str]:
    """Their headings"""
    return [title(column, summary["metrics"].get(column)) for column in columns(summary)]


def as_csv(summary: Summary) -> str:
    """One line a row; for each column its mean, deviation and paper's number, and the runs behind the row."""
    target = io.StringIO()
    names = columns(summary)
    writer = csv.writer(target, lineterminator="\n")
    parts = [f"{column} {what}" for column in names for what in ("mean", "deviation", "paper")]
    writer.writerow(["table", "reduced", "row", "seeds", *parts, "runs", "error"])
    for row in summary["rows"]:
        numbers = [number for column in names for number in _numbers(row, column)]
        reduced = "; ".join(f"{key} {value}" for key, value in row["reduced"].items())
        keys = " ".join(run["key"] for run in row["runs"])
        writer.writerow([summary["name"], reduced, row["name"], len(row["seeds"]), *numbers, keys, row["error"] or ""])
    return target.getvalue()


def as_markdown(summary: Summary) -> str:
    """For reading: mean ± deviation (the paper's)."""
    lines = [f"# {summary['title']}", "", *(f"- {note}" for note in summary["notes"]), ""]
    lines += ["Each cell: mean ± standard deviation over seeds (the paper's number).", ""]
    lines += table(["row", "seeds", *titles(summary)], [line(row, summary) for row in summary["rows"]])
    failed = [row for row in summary["rows"] if row["error"]]
    if failed:
        lines += ["", "## Failed", "", *(f"- {row['name']}: {row['error']}" for row in failed)]
    collapsed = [row for row in summary["rows"] if row["collapsed"]]
    if collapsed:
        lines += ["", "## The same answer for every row", ""]
        lines += [f"- {row['name']}: {', '.join(row['collapsed'])}" for row in collapsed]
    runs = [origin(row, run) for row in summary["rows"] for run in row["runs"]]
    if runs:
        heads = [
            "row",
            "task",
            "seed",
            "run",
            "commit",
            "encoder",
            "weights",
            "computed in",
            "hardware",
            "epoch",
            "seconds",
        ]
        lines += ["", "## Where the numbers come from", "", *table(heads, runs)]
    return "\n".join(lines) + "\n"


def as_short(summary: Summary) -> str:
    """Scores alone: a column for each score, or where rows come in series for each of these, with the mean score in it"""
    rows, counted = [row for row in summary["rows"] if row["scores"]], summary["counted"]
    series = list(dict.fromkeys(row["series"] for row in rows))
    if len(series) > 1 and "mean" in summary["columns"]:
        cells = {(row["group"], row["series"]): shown_cell(row, "mean", counted) for row in rows}
        groups = dict.fromkeys(row["group"] for row in rows)
        heads = ["mean score", *series]
        lines = [[group, *(cells.get((group, each), MISSING) for each in series)] for group in groups]
    else:
        heads = ["", *(title(column, summary["metrics"].get(column)) for column in summary["columns"])]
        lines = [[row["name"], *(shown_cell(row, each, counted) for each in summary["columns"])] for row in rows]
    seeds = sorted({len(row["seeds"]) for row in rows if row["seeds"]})
    how = f", ± deviation over {' to '.join(map(str, sorted({seeds[0], seeds[-1]})))} seeds" if seeds else ""
    how = ", one seed" if seeds == [1] else how
    reduced = " A reduced run." if summary["reduced"] else ""
    left = len(summary["rows"]) - len(rows)
    missing = f" {left} of {len(summary['rows'])} rows have no numbers." if left else ""
    paper = "; in brackets the paper's" if any(row["paper"] for row in rows) else ""
    said = [f"{summary['title']}. On dev{how}{paper}.{reduced}{missing}", *summary.get("said", ())]
    return "\n".join([*(table(heads, lines) if lines else []), "", *said]) + "\n"


def line(row: dict[str, Any], summary: Summary) -> list[str]:
    """A row of the table as cells"""
    reduced = " (reduced)" if row["reduced"] else ""
    shown = [shown_cell(row, column, summary["counted"]) for column in columns(summary)]
    return [f"{row['name']}{reduced}", MISSING if summary["counted"] else str(len(row["seeds"])), *shown]


def in_one_cell(row: dict[str, Any], summary: Summary) -> list[str]:
    """The same for a terminal, which is too narrow for a cell for each column"""
    name, seeds, *shown = line(row, summary)
    cells = zip(columns(summary), shown, strict=True)
    known = [f"{column} {cell}" for column, cell in cells if not cell.startswith(MISSING)]
    return [name, seeds, "   ".join(known) or row["error"] or "not run yet"]


def shown_cell(row: dict[str, Any], column: str, counted: bool = False) -> str:
    """One cell in words"""
    mean, deviation, paper = _numbers(row, column)
    digits = decimals(column, counted)
    found = MISSING if mean is None else f"{mean:,.{digits}f}".replace("-", "−")
    spread = "" if deviation is None else f" ± {deviation:,.{digits}f}"
    return f"{found}{spread}" + ("" if paper is None else f" ({paper:,.{digits}f})")


def origin(row: dict[str, Any], run: dict[str, Any]) -> list[str]:
    """Where a run's numbers come from, as cells"""
    encoder, seconds = run["encoder"], f"{run['seconds']:.0f}"
    names = [row["name"], run["part"] or "all", str(run["seed"]), run["key"], str(run["commit"])]
    weights = f"{encoder['name']} {encoder['sha256'][:12]}"
    return [*names, weights, encoder["weights"], run["precision"], run["hardware"], str(run["epoch"]), seconds]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table in Markdown"""
    lines = [heads, ["---"] * len(heads), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", "<br>") for cell in cells) + " |" for cells in lines]


def _numbers(row: dict[str, Any], column: str) -> tuple[float | None, float | None, float | None]:
    cell = row["scores"].get(column) or row["measures"].get(column) or {}
    return cell.get("mean"), cell.get("deviation"), row["paper"].get(column)
