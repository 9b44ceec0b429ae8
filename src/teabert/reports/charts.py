"""Charts as inline SVG that takes the page's colours: lines over steps or epochs, and scores with their intervals.

A chart has a title and a description for who cannot see it, and its numbers stand in a table beside it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from teabert.reports.markup import Html, details, figure, join, number, table, tag

Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT = 320, 200
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 10, 40
"""Room for the axes. The drawing is about as wide as a phone's screen, so that its letters are read there too."""
LOOKS = 6
"""Kinds of line the style sheet knows: colour and dashes."""
MARKED = 12
"""Up to so many points are marked each."""
LISTED = 30
"""Rows of the table beneath a chart at most."""


@dataclass(frozen=True)
class Axis:
    """Numbers -> places along one side of the drawing."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        """Where a number lies"""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    @property
    def digits(self) -> int:
        """Decimals that tell the ticks apart"""
        step = self.ticks[1] - self.ticks[0] if len(self.ticks) > 1 else 1.0
        return max(0, -math.floor(math.log10(step) + 1e-9))


def axis(values: Sequence[float], start: float, end: float, whole: bool = False, low: float | None = None) -> Axis:
    """An axis over these numbers, its ticks at round ones; `whole`: at whole ones; `low`: it begins there"""
    least, most = min(values) if low is None else min(low, *values), max(values)
    if most - least < 1e-9 * max(1.0, abs(most)):
        least, most = least - 0.5 * (low is None), most + 0.5
    step = _round((most - least) / 4)
    step = max(1.0, math.ceil(step)) if whole else step
    first, last = math.floor(least / step + 1e-9), math.ceil(most / step - 1e-9)
    ticks = tuple(place * step for place in range(first, last + 1))
    if whole:  # epochs and steps end where they end
        return Axis(least, most, start, end, tuple(tick for tick in ticks if least <= tick <= most) or (least,))
    return Axis(ticks[0], ticks[-1], start, end, ticks)


def _round(step: float) -> float:
    """The next of 1, 2, 5, 10 and so on"""
    size = 10.0 ** math.floor(math.log10(step))
    return next(size * each for each in (1, 2, 5, 10) if size * each >= step * (1 - 1e-9))


def finite(points: Points) -> list[tuple[float, float]]:
    """Those that can be drawn"""
    return [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]


def lines(title: str, series: Mapping[str, Points], along: str, low: float | None = None, digits: int = 3) -> Html:
    """A line for each name over what `along` counts, with a legend and the numbers; nothing where there are no points"""
    known = {name: drawn for name, points in series.items() if (drawn := finite(points))}
    if not known:
        return Html("")
    across = axis([x for points in known.values() for x, _ in points], LEFT, WIDTH - RIGHT, whole=True)
    up = axis([y for points in known.values() for _, y in points], HEIGHT - BOTTOM, TOP, low=low)
    drawing = join(
        _frame(across, up, along),
        *(_line(place, points, across, up) for place, points in enumerate(known.values())),
    )
    ends = [f"{name}: from {number(each[0][1], digits)} to {number(each[-1][1], digits)}" for name, each in known.items()]
    svg = tag(
        "svg",
        tag("title", title),
        tag("desc", f"Over {along}. {'; '.join(ends)}."),
        drawing,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"{title}. {'; '.join(ends)}.",
    )
    below = (legend(list(known)) if len(known) > 1 else "", details("Numbers", _numbers(title, known, along, digits)))
    return figure(tag("figcaption", title), svg, *below)


def _frame(across: Axis, up: Axis, along: str) -> Html:
    parts = []
    for tick in up.ticks:
        y = up.at(tick)
        parts.append(_path(f"M{LEFT} {y:.1f}H{WIDTH - RIGHT}", "grid"))
        parts.append(_words(LEFT - 6, y + 4, number(tick, up.digits), "end"))
    for tick in across.ticks:
        parts.append(_words(across.at(tick), HEIGHT - BOTTOM + 16, number(tick, 0), "middle"))
    parts.append(_words((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, along, "middle"))
    return join(*parts)


def _line(place: int, points: Points, across: Axis, up: Axis) -> Html:
    look = f"s{place % LOOKS}"
    at = [(across.at(x), up.at(y)) for x, y in points]
    drawn = [_path("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in at), f"line {look}")] if len(at) > 1 else []
    if len(at) <= MARKED:
        size = 2.2 if place and len(at) > 1 else 3.8  # a later line is seen on top of the first
        drawn += [tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=size, class_=f"dot {look}") for x, y in at]
    return join(*drawn)


def legend(names: Sequence[str]) -> Html:
    """Which line is whose"""
    items = []
    for place, name in enumerate(names):
        sample = tag(
            "svg", _path("M1 6H27", f"line s{place % LOOKS}"), viewBox="0 0 28 12", class_="key", aria_hidden="true"
        )
        items.append(tag("li", sample, tag("span", name)))
    return tag("ul", *items, class_="legend")


def _numbers(title: str, series: Mapping[str, Points], along: str, digits: int) -> Html:
    values = {name: dict(points) for name, points in series.items()}
    places = sorted({x for points in values.values() for x in points})
    kept = places if len(places) <= LISTED else [places[round(n * (len(places) - 1) / (LISTED - 1))] for n in range(LISTED)]
    rows = [(number(x, 0), *(number(points.get(x), digits) for points in values.values())) for x in kept]
    some = f", {LISTED} of {len(places)} points" if len(places) > LISTED else ""
    return table(f"{title}{some}", (along, *values), rows)


@dataclass(frozen=True)
class Ranged:
    """A score, its interval where it is known, and others' numbers beside it."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    others: tuple[float, ...] = ()


def intervals(title: str, scores: Sequence[Ranged], others: str = "") -> Html:
    """One line a score: a dot with its interval, others' numbers as hollow diamonds"""
    known = [score for score in scores if math.isfinite(score.value)]
    if not known:
        return Html("")
    values = [each for score in known for each in (score.value, score.low, score.high, *score.others) if each is not None]
    across = axis([0.0, 1.0, *values], 12, WIDTH - 12)
    bottom = 14 + 38 * len(known)
    parts = [_path(f"M{across.at(tick):.1f} 8V{bottom}", "grid") for tick in across.ticks]
    parts += [_words(across.at(tick), bottom + 16, number(tick, 1), "middle") for tick in across.ticks]
    for place, score in enumerate(known):
        parts.append(_ranged(score, across, 38 * place + 38))
    told = "; ".join(
        f"{score.name} {number(score.value)}"
        + (f", interval {number(score.low)} to {number(score.high)}" if score.low is not None else "")
        for score in known
    )
    size = f"0 0 {WIDTH} {bottom + 26}"
    label = f"{title}. {told}."
    svg = tag("svg", tag("title", title), tag("desc", told), *parts, viewBox=size, role="img", aria_label=label)
    return figure(tag("figcaption", title), svg, tag("figcaption", others) if others else "")


def _ranged(score: Ranged, across: Axis, y: float) -> Html:
    parts = [
        _words(18, y - 12, score.name, "start", "name"),
        _words(WIDTH - 18, y - 12, number(score.value), "end", "name"),
    ]
    if score.low is not None and score.high is not None:
        low, high = across.at(score.low), across.at(score.high)
        parts.append(_path(f"M{low:.1f} {y}H{high:.1f}M{low:.1f} {y - 4}V{y + 4}M{high:.1f} {y - 4}V{y + 4}", "line s0"))
    for other in score.others:
        parts.append(_path(f"M{across.at(other) - 5:.1f} {y}l5 -5l5 5l-5 5z", "hollow"))
    parts.append(tag("circle", cx=f"{across.at(score.value):.1f}", cy=y, r=4.5, class_="dot s0"))
    return join(*parts)


def _path(d: str, look: str) -> Html:
    return tag("path", d=d, class_=look)


def _words(x: float, y: float, words: str, anchor: str, look: str | None = None) -> Html:
    return tag("text", words, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, class_=look)
