"""Numbers as SVG: lines over a day, columns side by side, bars of a ranking. Pure.

A drawing is WIDTH by HEIGHT units and stretched to the page; labels are HTML beside it. Where
numbers are missing a line is broken: nothing is drawn that was not seen. Text is escaped here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 600, 160
# A line is broken after this many slots without a number.
GAP = 3
COLOURS = 6  # of the style sheet; a drawing has at most so many series
AIR = 0.2  # of a slot beside its columns


@dataclass(slots=True)
class Series:
    """`points` are places and values, the first place first."""

    name: str
    points: list[tuple[float, float]] = field(default_factory=list)


def lines(series: Sequence[Series], *, to: float, slot: float, label: str) -> str:
    """Draws lines over places from 0 up to `to`; one number covers `slot` of them."""
    top = nice_top(max((value for one in series for _, value in one.points), default=0.0))
    drawn = []
    for colour, one in enumerate(series, start=1):
        for piece in pieces(one.points, slot * GAP):
            if len(piece) == 1:  # a point alone is a short dash, or it could not be seen
                piece = [piece[0], (piece[0][0] + slot, piece[0][1])]
            points = " ".join(f"{x / to * WIDTH:.1f},{_y(value, top)}" for x, value in piece)
            drawn.append(f'<polyline class="stroke c{colour}" points="{points}"/>')
    return _plot(drawn, top, label, [one.name for one in series])


def columns(series: Sequence[Series], *, to: float, slot: float, label: str) -> str:
    """Draws columns; the series of a slot are drawn side by side."""
    top = nice_top(max((value for one in series for _, value in one.points), default=0.0))
    wide = slot / to * WIDTH * (1 - AIR) / max(len(series), 1)
    drawn = []
    for number, one in enumerate(series):
        for moment, value in one.points:
            x = (moment + slot * AIR / 2) / to * WIDTH + number * wide
            y = float(_y(value, top))
            drawn.append(
                f'<rect class="fill c{number + 1}" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" '
                f'height="{HEIGHT - y:.1f}"/>'
            )
    return _plot(drawn, top, label, [one.name for one in series])


def bar(value: float, most: float) -> str:
    """Draws one bar of a ranking; its number is written beside it."""
    wide = 0.0 if most <= 0 else max(0.0, value) / most * 100
    return (
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="fill c1" width="{wide:.2f}" height="10"/></svg>'
    )


def axis(labels: Sequence[str]) -> str:
    """Below a drawing, evenly spread."""
    return f'<div class="axis">{"".join(f"<span>{escape(one)}</span>" for one in labels)}</div>'


def _plot(drawn: list[str], top: float, label: str, names: list[str]) -> str:
    shares = (0.0, 0.5, 1.0)
    scale = "".join(f"<span>{number(top * (1 - share))}</span>" for share in shares)
    grid = "".join(
        f'<line class="grid" x1="0" x2="{WIDTH}" y1="{share * HEIGHT:g}" y2="{share * HEIGHT:g}"/>'
        for share in shares
    )
    return (
        f'{_legend(names)}<div class="chart"><div class="scale" aria-hidden="true">{scale}</div>'
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(label)}; the numbers are in the table below">'
        f"{grid}{''.join(drawn)}</svg>"
    )


def _legend(names: list[str]) -> str:
    if len(names) < 2:
        return ""
    items = "".join(
        f'<li><i class="c{colour}"></i>{escape(name)}</li>'
        for colour, name in enumerate(names, start=1)
    )
    return f'<ul class="legend">{items}</ul>'


def _y(value: float, top: float) -> str:
    return f"{HEIGHT - min(max(value, 0.0) / top, 1.0) * HEIGHT:.1f}"


def pieces(points: Sequence[tuple[float, float]], gap: float) -> list[list[tuple[float, float]]]:
    """Splits the points where the next one is further away than `gap`."""
    found: list[list[tuple[float, float]]] = []
    for point in points:
        if found and point[0] - found[-1][-1][0] <= gap:
            found[-1].append(point)
        else:
            found.append([point])
    return found


def nice_top(highest: float) -> float:
    """1, 2, 4 or 10 times a power of ten: half of it is a number that can be read too."""
    if not math.isfinite(highest) or highest <= 0:
        return 2.0
    power = 10.0 ** math.floor(math.log10(highest))
    steps = (power * step for step in (1, 2, 4, 10, 20))
    return next((top for top in steps if highest <= top < math.inf), highest)


def number(value: float | None) -> str:
    """Formats a number for people, without digits that carry no information."""
    if value is None or not math.isfinite(value):
        return "-"
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:,.2f}".rstrip("0").rstrip(".")
