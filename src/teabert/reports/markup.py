"""HTML written by code: every text that is not markup of our own is escaped, every element that is opened is closed."""

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources

from teabert.requests import readable

MARK = '<meta name="generator" content="teabert report">'
"""Stands at the top of every page, so that a page can be told from other files."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
MISSING = "–"
VOID = ("img", "meta")


class Html(str):
    """Markup that is safe as it stands."""


def safe(content: object) -> Html:
    """Markup as it is; anything else as text"""
    if isinstance(content, Html):
        return content
    plain = readable(content)
    return Html(html.escape("".join(sign if sign.isprintable() or sign.isspace() else "\ufffd" for sign in plain)))


def join(*parts: object) -> Html:
    """Parts one after the other"""
    return Html("".join(safe(part) for part in parts))


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """An element; class_ is class, aria_label is aria-label, and an attribute that is None is left out"""
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    opening = f"<{name}" + "".join(f' {key}="{safe(value)}"' for key, value in given.items()) + ">"
    return Html(opening if name in VOID else f"{opening}{join(*children)}</{name}>")


def number(value: float | None, digits: int = 3) -> str:
    """A number for a column of numbers, with a true minus sign; a dash where there is none"""
    if value is None or not math.isfinite(value):
        return MISSING
    written = f"{value:,.{digits}f}"
    return written.removeprefix("-") if float(written.replace(",", "")) == 0 else written.replace("-", "−")


def heat(content: object, strength: float) -> Html:
    """A cell shaded by -1 to 1"""
    kind = "heat" if strength >= 0 else "heat against"
    return tag("td", content, class_=kind, style=f"--heat:{min(abs(strength), 1.0) if math.isfinite(strength) else 0:.3f}")


def cell(content: object) -> Html:
    """A cell; markup that already is one stays as it is"""
    known = isinstance(content, Html) and content.startswith(("<td", "<th"))
    return safe(content) if known else tag("td", content)


def table(caption: str, titles: Sequence[object], rows: Iterable[Sequence[object]], words: int = 1) -> Html:
    """A table that scrolls by itself where it is too wide; the first cell of a row names it, `words` columns are words"""
    kinds = ["word" if place < words else None for place in range(len(titles))]
    head = [tag("th", title, scope="col", class_=kind) for title, kind in zip(titles, kinds, strict=True)]
    body = []
    for first, *rest in rows:
        cells = [cell(tag("td", each, class_="word") if place < words else each) for place, each in enumerate(rest, 1)]
        body.append(tag("tr", tag("th", first, scope="row", class_="word"), *cells))
    whole = tag("table", tag("caption", caption), tag("thead", tag("tr", *head)), tag("tbody", *body))
    return tag("div", whole, class_="scroll", role="region", tabindex=0, aria_label=caption)


def details(title: str, *content: object) -> Html:
    """What is shown when asked for"""
    return tag("details", tag("summary", title), *content)


def figure(drawing: Html, *below: object) -> Html:
    """A drawing with what stands below it"""
    return tag("figure", drawing, *below)


def section(name: str, title: str, *content: object) -> Html:
    """A part of the page, to be reached from its top"""
    heading = tag("h2", title, id=f"{name}-title")
    return tag("section", heading, *content, id=name, aria_labelledby=f"{name}-title")


def note(*content: object) -> Html:
    """A sentence in small print; nothing where there is none"""
    return tag("p", *content, class_="quiet") if any(content) else Html("")


def cards(*content: object, wide: bool = False) -> Html:
    """Boxes side by side, as many as there is room for"""
    return tag("div", *(tag("div", each, class_="card") for each in content), class_="cards wide" if wide else "cards")


def facts(known: Mapping[str, object]) -> Html:
    """Names and values; what is not known is left out"""
    pairs = [tag("div", tag("dt", name), tag("dd", value)) for name, value in known.items() if value not in (None, "")]
    return tag("dl", *pairs)


def page(title: str, lead: object, notes: Sequence[object], sections: Mapping[tuple[str, str], Sequence[object]]) -> str:
    """The whole document; sections by (name, title)"""
    shown = {key: content for key, content in sections.items() if content}
    style = Html(resources.files("teabert.reports").joinpath("style.css").read_text(encoding="utf-8"))
    head = join(
        tag("meta", charset="utf-8"),
        Html(MARK),
        tag("meta", http_equiv="Content-Security-Policy", content=Html(POLICY)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", style),
    )
    links = [tag("li", tag("a", heading, href=f"#{name}")) for name, heading in shown]
    body = join(
        tag("a", "Skip to the results", class_="skip", href="#results"),
        tag("header", tag("p", "Teabert report", class_="kicker"), tag("h1", title), lead),
        tag("nav", tag("ul", *links), aria_label="On this page"),
        tag(
            "main",
            tag("aside", *(tag("p", each) for each in notes), aria_label="Read this first") if notes else "",
            *(section(name, heading, *content) for (name, heading), content in shown.items()),
            id="results",
        ),
    )
    return f"<!doctype html>\n{tag('html', tag('head', head), tag('body', body), lang='en')}\n"
