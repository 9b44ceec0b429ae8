"""Markup that cannot be broken by what it holds, and charts that stand for their numbers."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reported import Page
from teabert.reports.charts import Ranged, axis, intervals, lines
from teabert.reports.insights import COMMONEST, LARGEST, _matrix
from teabert.reports.judging import Confusion
from teabert.reports.markup import Html, number, safe, table, tag


@given(st.text())
def test_text_stays_text_wherever_it_stands(content):
    found = Page(tag("p", content, title=content))
    ((name, attributes),) = found.elements
    assert (name, list(attributes)) == ("p", ["title"])
    readable = "".join(sign if sign.isprintable() or sign.isspace() else "\ufffd" for sign in content)
    assert "".join(found.words) == attributes["title"] == readable


def test_markup_of_our_own_is_not_escaped_twice():
    assert safe(tag("b", "<")) == "<b>&lt;</b>"
    assert table("t", ("a", "b"), [("x", Html("<td>1</td>"))]).count("<td>") == 1


@pytest.mark.parametrize(
    ("value", "digits", "written"),
    [
        (0.5, 3, "0.500"),
        (-0.25, 2, "−0.25"),
        (-0.0001, 2, "0.00"),
        (12345.6, 0, "12,346"),
        (math.nan, 3, "–"),
        (None, 3, "–"),
    ],
)
def test_numbers_are_written_for_columns(value, digits, written):
    assert number(value, digits) == written


@given(st.lists(st.floats(-1e9, 1e9, allow_subnormal=False), min_size=1, max_size=30), st.booleans())
def test_axis_holds_all_its_numbers(values, whole):
    found = axis(values, 0, 100, whole=whole)
    assert all(-0.01 <= found.at(value) <= 100.01 for value in values)
    assert 1 <= len(found.ticks) <= 8
    assert all(-0.01 <= found.at(tick) <= 100.01 for tick in found.ticks)


@pytest.mark.parametrize(
    "points",
    [[(1, 0.5)], [(1, 0.5), (2, 0.5)], [(1, -1e-9), (2, 1e9)], [(1, math.nan), (2, 0.25), (3, math.inf)]],
)
def test_odd_points_are_drawn_inside_the_drawing(points):
    found = lines("Odd", {"one": points}, "step")
    Page(found)
    places = [
        float(place) for path in re.findall(r'd="([^"]*)" class="line', found) for place in re.findall(r"-?[\d.]+", path)
    ]
    places += [float(place) for place in re.findall(r'c[xy]="([^"]*)"', found)]
    assert places
    assert all(0 <= place <= 320 for place in places)
    assert "nan" not in found
    assert "inf" not in found


def test_nothing_to_draw_draws_nothing():
    assert lines("None", {"one": [], "two": [(1, math.nan)]}, "step") == ""
    assert intervals("None", [Ranged("one", math.nan)]) == ""


def test_line_runs_where_its_numbers_say():
    found = lines("Two", {"up": [(0, 0.0), (10, 1.0)]}, "step")
    (path,) = re.findall(r'd="M([^"]*)" class="line s0"', found)
    (left, bottom), (right, top) = (map(float, place.split()) for place in path.split("L"))
    assert left < right
    assert bottom > top
    assert "up: from 0.000 to 1.000" in found


def test_table_beneath_a_long_line_is_thinned_and_says_so():
    found = Page(lines("Long", {"one": [(step, 1.0) for step in range(1, 1001)]}, "step"))
    (rows,) = found.tables.values()
    assert "Long, 30 of 1000 points" in found.tables
    assert len(rows) == 31
    assert (rows[1][0], rows[-1][0]) == ("1", "1,000")


def test_interval_and_others_are_drawn_around_the_score():
    found = intervals("Scores", [Ranged("one", 0.5, 0.4, 0.7, (0.2,))], "Hollow: others.")
    (low, high) = map(float, re.search(r'd="M([\d.]+) 38H([\d.]+)', found).groups())
    (dot,) = map(float, re.findall(r'cx="([\d.]+)"', found))
    (other,) = (float(place) + 5 for place in re.findall(r'd="M([\d.]+) 38l', found))
    assert other < low < dot < high
    assert (dot - low) / (high - low) == pytest.approx(1 / 3, abs=0.01)
    assert "one 0.500, interval 0.400 to 0.700" in found
    assert "Hollow: others." in Page(found).text


def test_matrix_too_large_to_read_lists_the_commonest_confusions():
    size = LARGEST + 8
    counts = np.diag(np.full(size, 50))
    counts[3, 4], counts[5, 0] = 9, 7
    found = Page(_matrix("many", Confusion(tuple(f"l{n}" for n in range(size)), counts)))
    (rows,) = found.tables.values()
    assert rows == [["true", "predicted", "rows", "of"], ["l3", "l4", "9", "59"], ["l5", "l0", "7", "57"]]
    counts[:] = 1
    (rows,) = Page(_matrix("many", Confusion(tuple(f"l{n}" for n in range(size)), counts))).tables.values()
    assert len(rows) == 1 + COMMONEST


def test_matrix_says_what_was_found_and_what_was_right():
    counts = np.array([[3, 1], [0, 0]])
    (rows,) = Page(_matrix("two", Confusion(("no", "yes"), counts))).tables.values()
    assert rows[1:] == [["no", "3", "1", "0.75"], ["yes", "0", "0", "–"], ["right", "1.00", "0.00", "0.75"]]
