"""A line over time as SVG: its points, the scale beside it, and its numbers. Pure.

The drawing is WIDTH by HEIGHT units and stretched to the page; labels are HTML beside it. Where
samples are missing the line is broken: nothing is drawn that was not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

WIDTH, HEIGHT = 600, 160
MOST_ROWS = 60  # of the table
LABELS = 5
# So many slots without a sample break the line.
GAP = 3


@dataclass(slots=True)
class Chart:
    lines: list[str]  # points of each unbroken piece, as SVG takes them
    areas: list[str]
    scale: list[tuple[float, int]]  # from the top in percent, and the number there
    moments: list[str]  # below the chart, evenly spread
    rows: list[tuple[int, int]]  # moment in ms and value: at most MOST_ROWS, the newest first
    highest: int
    width: int = WIDTH
    height: int = HEIGHT


def line_chart(
    points: Sequence[tuple[int, int]], *, from_s: int, to_s: int, slot_s: int
) -> Chart | None:
    """`points` are seconds and values, the oldest first; None if there are none."""
    if not points:
        return None
    highest = max(value for _, value in points)
    top = nice_top(highest)

    def point_at(at_s: int, value: int) -> str:
        x = (at_s - from_s) / max(to_s - from_s, 1) * WIDTH
        return f"{x:.1f},{HEIGHT - value / top * HEIGHT:.1f}"

    lines, areas = [], []
    for piece in _pieces(points, slot_s * GAP):
        if len(piece) == 1:  # a point alone is a short dash, or it could not be seen
            piece = [piece[0], (piece[0][0] + slot_s, piece[0][1])]
        drawn = " ".join(point_at(*point) for point in piece)
        lines.append(drawn)
        areas.append(f"{point_at(piece[0][0], 0)} {drawn} {point_at(piece[-1][0], 0)}")
    step = -(-len(points) // MOST_ROWS)
    rows = [(at_s * 1000, value) for at_s, value in list(points)[::-1][::step]]
    scale = [(share * 100, round(top * (1 - share))) for share in (0.0, 0.5, 1.0)]
    return Chart(lines, areas, scale, _moments(from_s, to_s), rows, highest)


def _pieces(points: Sequence[tuple[int, int]], gap_s: int) -> list[list[tuple[int, int]]]:
    pieces: list[list[tuple[int, int]]] = []
    for point in points:
        if pieces and point[0] - pieces[-1][-1][0] <= gap_s:
            pieces[-1].append(point)
        else:
            pieces.append([point])
    return pieces


def nice_top(highest: int) -> int:
    """2, 4, 10, 20, 40, 100 and so on: half of it is a whole number too."""
    top = 2
    while top < highest:
        top = top * 2 if str(top)[0] in "12" else top * 5 // 2
    return top


def _moments(from_s: int, to_s: int) -> list[str]:
    days = to_s - from_s > 86_400
    return [
        datetime.fromtimestamp(from_s + (to_s - from_s) * number / (LABELS - 1))
        .astimezone()
        .strftime("%d %b" if days else "%H:%M")
        for number in range(LABELS)
    ]
