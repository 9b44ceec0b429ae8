"""A table's folder -> its page: our numbers beside the paper's, how far seeds differ, what it cost, the figures."""

import base64
import json
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from teabert.errors import UserError
from teabert.experiments.columns import decimals, title
from teabert.metrics import METRICS
from teabert.reports.markup import MISSING, Html, details, note, number, page, table, tag
from teabert.settings import explain

FILE = "table.json"


class Written(BaseModel):
    """Base of what table.json holds; newer versions may write more into it."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Cell(Written):
    """One number over all seeds."""

    mean: float
    deviation: float | None = None
    values: list[float] = []


class Encoder(Written):
    """What a run started from."""

    name: str
    weights: str = ""
    """the precision that they came in"""


class Trace(Written):
    """Where a run's numbers come from."""

    seed: int
    part: str | None = None
    """the task, where each is trained on its own"""
    commit: str | None = None
    encoder: Encoder | None = None
    hardware: str | None = None
    precision: str | None = None
    seconds: float | None = None


class Row(Written):
    """One row: a recipe over all seeds."""

    name: str
    seeds: list[int] = []
    scores: dict[str, Cell] = {}
    measures: dict[str, Cell] = {}
    paper: dict[str, float] = {}
    runs: list[Trace] = []
    collapsed: list[str] = []
    error: str | None = None
    missing: int = 0

    def cell(self, column: str) -> Cell | None:
        """A column's number"""
        return self.scores.get(column) or self.measures.get(column)


class Table(Written):
    """What `teabert table` writes."""

    name: str
    title: str
    columns: list[str]
    measures: list[str] = []
    metrics: dict[str, str] = {}
    counted: bool = False
    rows: list[Row]
    notes: list[str] = []

    def titled(self, column: str) -> str:
        """A column's heading"""
        metric = self.metrics.get(column)
        return title(column, metric if metric in METRICS else None)

    def shown(self, value: float | None, column: str) -> str:
        """A column's number in words"""
        return number(value, decimals(column, self.counted))


def read_table(folder: Path) -> Table:
    """The table of a folder; anything else is refused in words."""
    file = folder / FILE
    try:
        return Table.model_validate(json.loads(file.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise UserError(f"{explain(error, Table, str(file))} Write it anew with: teabert table") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} is damaged: {error}. Write it anew with: teabert table") from None


def table_page(found: Table, folder: Path) -> str:
    """The whole page."""
    done = sum(bool(row.scores) for row in found.rows)
    seeds = len({seed for row in found.rows for seed in row.seeds})
    trained = f", {seeds} {'seed' if seeds == 1 else 'seeds'}" if not found.counted else ", counted on the models"
    sections = {
        ("table", "The table"): scores(found),
        ("figures", "Figures"): figures(found, folder),
        ("costs", "What it cost"): costs(found),
        ("seeds", "Seed by seed"): by_seed(found),
        ("runs", "Where the numbers come from"): origins(found),
    }
    return page(
        found.title, tag("p", f"{done} of {len(found.rows)} rows{trained}", class_="lead"), warnings(found), sections
    )


def warnings(found: Table) -> list[object]:
    """Rows that cannot be taken as they stand, and why"""
    failed = [f"{row.name} failed: {row.error}" for row in found.rows if row.error]
    alike = [f"{row.name}: every row of {', '.join(row.collapsed)} got one answer." for row in found.rows if row.collapsed]
    counts = sorted({row.missing for row in found.rows if row.missing})
    named = {count: ", ".join(row.name for row in found.rows if row.missing == count) for count in counts}
    missing = [f"{'1 run is' if count == 1 else f'{count} runs are'} missing of {names}." for count, names in named.items()]
    return [*failed, *alike, *missing]


def scores(found: Table) -> list[object]:
    """Means and deviations, the paper's number beside each column that it has"""
    known = [column for column in found.columns if any(column in row.paper for row in found.rows)]
    titles: list[str] = ["row"]
    for column in found.columns:
        titles += [found.titled(column), "±", *(["paper"] if column in known else [])]
    best = {column: _best(found, column) for column in found.columns}
    rows = []
    for row in found.rows:
        cells: list[object] = [row.name]
        for column in found.columns:
            cells += _cells(found, row, column, best[column])
            cells += [tag("td", found.shown(row.paper.get(column), column), class_="quiet")] if column in known else []
        rows.append(cells)
    told = "±: the standard deviation over seeds; a dash where there is one seed. Bold: the highest of its column."
    notes = tag("ul", *(tag("li", each) for each in found.notes), class_="notes") if found.notes else ""
    return [tag("div", table(found.title, titles, rows), class_="card"), note("" if found.counted else told), notes]


def _best(found: Table, column: str) -> float | None:
    known = [row.scores[column].mean for row in found.rows if column in row.scores]
    return max(known) if len(known) > 1 and not found.counted else None


def _cells(found: Table, row: Row, column: str, best: float | None = None) -> list[object]:
    """Mean and deviation"""
    cell = row.cell(column)
    if cell is None:
        return [MISSING, MISSING]
    mean = found.shown(cell.mean, column)
    spread = tag("td", found.shown(cell.deviation, column), class_="quiet")
    return [tag("td", tag("strong", mean)) if cell.mean == best else mean, spread]


def costs(found: Table) -> list[object]:
    """Columns that are no scores"""
    if not found.measures:
        return []
    titles = ["row", *(heading for column in found.measures for heading in (found.titled(column), "±"))]
    rows = [[row.name, *(each for column in found.measures for each in _cells(found, row, column))] for row in found.rows]
    return [tag("div", table("Mean over seeds and standard deviation", titles, rows), class_="card")]


def by_seed(found: Table) -> list[object]:
    """Every value behind the means"""
    columns = [*found.columns, *found.measures]
    rows: list[Sequence[object]] = []
    for row in found.rows:
        values = [cell.values if (cell := row.cell(column)) else [] for column in columns]
        for seed, *each in zip_longest(row.seeds, *values) if row.seeds else ():
            shown = (found.shown(value, column) for value, column in zip(each, columns, strict=True))
            rows.append((row.name, MISSING if seed is None else str(seed), *shown))
    titles = ("row", "seed", *map(found.titled, columns))
    return [tag("div", details(f"{len(rows)} lines", table("Every seed", titles, rows)), class_="card")] if rows else []


def origins(found: Table) -> list[object]:
    """Each run's encoder, commit and hardware"""
    rows = [
        (row.name, run.part or "all", str(run.seed), *_encoder(run), run.precision, run.commit, run.hardware, _seconds(run))
        for row in found.rows
        for run in row.runs
    ]
    titles = ("row", "task", "seed", "encoder", "weights", "computed in", "commit", "hardware", "seconds")
    cells = [[MISSING if each is None else each for each in row] for row in rows]
    whole = table("Every run", titles, cells, words=len(titles) - 1)
    return [tag("div", details(f"{len(rows)} runs", whole), class_="card")] if rows else []


def _encoder(run: Trace) -> tuple[str | None, str | None]:
    return (run.encoder.name, run.encoder.weights) if run.encoder else (None, None)


def _seconds(run: Trace) -> str:
    return number(run.seconds, 0)


def figures(found: Table, folder: Path) -> list[object]:
    """The folder's figures, as images inside the page: in an image nothing of a file can run or reach outside"""
    return [_figure(found, file) for file in sorted(folder.glob("*.svg"))]


def _figure(found: Table, file: Path) -> Html:
    try:
        content = base64.b64encode(file.read_bytes()).decode()
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}.") from None
    said = f"{found.title}, drawn; the numbers stand in the table above"
    image = tag("img", src=Html(f"data:image/svg+xml;base64,{content}"), alt=said)
    return tag("div", tag("div", image, class_="sheet"), class_="scroll", role="region", tabindex=0, aria_label=said)
