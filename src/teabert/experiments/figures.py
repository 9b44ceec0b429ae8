"""A table's summary drawn: a panel for each column, ours filled with its deviation over seeds, the paper's hollow."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from teabert.errors import UserError, missing_extra
from teabert.experiments.base import Figure
from teabert.experiments.columns import title
from teabert.experiments.summary import Summary
from teabert.progress import Progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's: told apart by colour-blind readers too."""
MARKERS = ("o", "s", "^", "D", "v", "P")
INK, QUIET, LINES = "#222222", "#666666", "#DDDDDD"
IN_A_LINE = 4
"""Panels beside one another."""
LOOKS = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": LINES,
    "xtick.color": QUIET,
    "ytick.color": INK,
    "svg.hashsalt": "teabert",
    "svg.fonttype": "none",
}
NUMBERS = dict[str, Any]


def draw(summary: Summary, figure: Figure, folder: Path, progress: Progress) -> list[Path]:
    """figure.svg and figure.png; where matplotlib is missing, a note that says so."""
    try:
        return draw_files(summary, figure, folder)
    except UserError as error:
        progress.note(f"no figure: {error}")
        return []


def draw_files(summary: Summary, figure: Figure, folder: Path) -> list[Path]:
    """The same; where matplotlib is missing, an error."""
    try:
        import matplotlib
        from matplotlib.figure import Figure as Canvas
    except ImportError:
        raise missing_extra("matplotlib", "report", "Drawing a figure") from None
    drawn = [column for column in figure.columns if any(_cell(row, column) for row in summary["rows"])]
    files = [folder / f"figure.{kind}" for kind in ("svg", "png")]
    with matplotlib.rc_context(LOOKS):
        canvas = Canvas(layout="constrained")
        (_dots if figure.kind == "dots" else _lines)(canvas, summary, figure, drawn)
        canvas.suptitle(summary["title"], fontsize=11, x=0.01, ha="left", wrap=True)
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            canvas.savefig(file, dpi=150, metadata={"Date": None} if file.suffix == ".svg" else None)
    return files


def _panels(canvas: Any, count: int, height: float, share_y: bool) -> list["Axes"]:
    """Axes in lines of a few, spare ones left out."""
    across = min(count, IN_A_LINE)
    down = -(-count // across)
    canvas.set_size_inches(2.2 + 2.5 * across, 1.1 + height * down)
    axes = canvas.subplots(down, across, sharey=share_y, squeeze=False).ravel()
    for spare in axes[count:]:
        spare.remove()
    return list(axes[:count])


def _dots(canvas: Any, summary: Summary, figure: Figure, columns: Sequence[str]) -> None:
    groups = list(dict.fromkeys(row["group"] for row in summary["rows"]))
    series = list(dict.fromkeys(row["series"] for row in summary["rows"]))
    step = 0.7 / max(1, len(series) - 1) if len(series) > 1 else 0.0
    height = 0.7 + len(groups) * max(0.26, 0.13 * len(series))
    for panel, column in zip(_panels(canvas, len(columns), height, True), columns, strict=True):
        for row in summary["rows"]:
            place = series.index(row["series"])
            y = groups.index(row["group"]) + (place - (len(series) - 1) / 2) * step
            _mark(panel, row, column, place, along=y)
        panel.set_yticks(range(len(groups)), groups)
        panel.set_ylim(len(groups) - 0.4, -0.6)
        panel.set_title(title(column, summary["metrics"].get(column)), fontsize=9, loc="left")
        panel.grid(axis="x", color=LINES, linewidth=0.6)
        for edge in range(len(groups) - 1):
            panel.axhline(edge + 0.5, color=LINES, linewidth=0.4)
        _plain(panel)
        panel.tick_params(axis="y", length=0)
    _legend(canvas, summary, series)


def _mark(panel: "Axes", row: NUMBERS, column: str, place: int, along: float) -> None:
    """Ours with its deviation, and the paper's"""
    colour, marker = _look(place)
    if cell := _cell(row, column):
        deviation = cell["deviation"] or 0.0
        panel.errorbar(
            cell["mean"], along, xerr=deviation, fmt=marker, color=colour, markersize=5, elinewidth=1.2, zorder=3
        )
    if column in row["paper"]:
        panel.plot(
            row["paper"][column], along, marker, markerfacecolor="none", markeredgecolor=colour, markersize=6, zorder=2
        )


def _lines(canvas: Any, summary: Summary, figure: Figure, columns: Sequence[str]) -> None:
    series = list(dict.fromkeys(row["series"] for row in summary["rows"]))
    for panel, column in zip(_panels(canvas, len(columns), 2.6, False), columns, strict=True):
        for place, name in enumerate(series):
            _line(panel, [row for row in summary["rows"] if row["series"] == name and row["x"]], column, place)
        panel.set_xscale("log" if figure.x_log else "linear")
        panel.set_xlabel(figure.x_title)
        panel.set_title(title(column, summary["metrics"].get(column)), fontsize=9, loc="left")
        panel.grid(color=LINES, linewidth=0.6)
        _plain(panel)
    _legend(canvas, summary, series)


def _line(panel: "Axes", rows: Sequence[NUMBERS], column: str, place: int) -> None:
    colour, marker = _look(place)
    cells = {row["x"]: cell for row in sorted(rows, key=lambda row: row["x"]) if (cell := _cell(row, column))}
    if cells:
        x, errors = list(cells), [cell["deviation"] or 0.0 for cell in cells.values()]
        means = [cell["mean"] for cell in cells.values()]
        panel.errorbar(x, means, yerr=errors, fmt=f"{marker}-", color=colour, markersize=5, elinewidth=1.2, zorder=3)
    told = [(row["paper"].get("rows", row["x"]), row["paper"][column]) for row in rows if column in row["paper"]]
    for x_paper, y_paper in told:
        panel.plot(x_paper, y_paper, marker, markerfacecolor="none", markeredgecolor=colour, markersize=7, zorder=2)


def _legend(canvas: Any, summary: Summary, series: Sequence[str]) -> None:
    """What colours and hollow marks mean, beneath the panels"""
    from matplotlib.lines import Line2D

    named = [(place, name) for place, name in enumerate(series) if name]
    handles = [Line2D([], [], color=_look(place)[0], marker=_look(place)[1], ls="", label=name) for place, name in named]
    if any(_cell(row, column) for row in summary["rows"] for column in summary["columns"]):
        handles.append(Line2D([], [], color=QUIET, marker="o", ls="", label="ours ± deviation over seeds"))
    if any(row["paper"] for row in summary["rows"]):
        handles.append(Line2D([], [], color=QUIET, marker="o", ls="", markerfacecolor="none", label="the paper's"))
    beside = max(2, int(canvas.get_size_inches()[0] / 1.9))
    canvas.legend(handles=handles, loc="outside lower left", ncols=beside, frameon=False, fontsize=8)


def _plain(panel: "Axes") -> None:
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.tick_params(labelsize=8)


def _look(place: int) -> tuple[str, str]:
    return COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]


def _cell(row: Mapping[str, Any], column: str) -> NUMBERS | None:
    found: NUMBERS | None = row["scores"].get(column) or row["measures"].get(column)
    return found
