"""Points to SVG path data, as short as a picture allows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

MANY_DOTS: Final = 200


def line_path(strokes: Iterable[Sequence[tuple[int, int]]]) -> str:
    """SVG path data of lines given in tenths of a pixel, as relative moves; what a quarter of a pixel cannot show is
    left out."""
    parts = []
    for stroke in strokes:
        kept = simplified(stroke, tolerance=2.5)
        parts.append(f"M{_tenths(kept[0][0])} {_tenths(kept[0][1])}")
        previous = kept[0]
        moves = []
        for at in kept[1:]:
            moves.append(_pair(at[0] - previous[0], at[1] - previous[1]))
            previous = at
        if moves:
            parts.append("l" + moves[0] + "".join(m if m.startswith("-") else f" {m}" for m in moves[1:]))
        else:
            parts.append("h0")
    return "".join(parts)


def dots_path(dots: Iterable[tuple[int, int]]) -> str:
    """A mark of no length for each whole pixel with a dot; the line's round ends make it visible. Of many dots, where
    one covers the next, every second pixel in each direction; dots that touch above each other are one upright stroke.
    """
    dots = list(dots)
    grid = 2 if len(dots) > MANY_DOTS else 1
    strokes: list[list[int]] = []
    for x, y in sorted({(grid * round(x / 10 / grid), grid * round(y / 10 / grid)) for x, y in dots}):
        if strokes and strokes[-1][0] == x and y - strokes[-1][2] == grid:
            strokes[-1][2] = y
        else:
            strokes.append([x, y, y])
    path = []
    before = (0, 0)
    for x, top, bottom in strokes:
        path.append(f"m{x - before[0]} {top - before[1]}" + (f"v{bottom - top}" if bottom > top else "h0"))
        before = (x, bottom)
    return "".join(path).replace(" -", "-")


def _tenths(value: int) -> str:
    """``37`` as ``3.7``, ``-2`` as ``-.2``."""
    whole, rest = divmod(abs(value), 10)
    digits = f"{whole or ''}.{rest}" if rest else str(whole)
    return f"-{digits}" if value < 0 else digits


def _pair(x: int, y: int) -> str:
    first, second = _tenths(x), _tenths(y)
    return first + second if second.startswith("-") else f"{first} {second}"


def simplified(points: Sequence[tuple[int, int]], *, tolerance: float) -> list[tuple[int, int]]:
    """The points of a line without which it would move by more than ``tolerance`` (Douglas and Peucker's method)."""
    keep = {0, len(points) - 1}
    pending = [(0, len(points) - 1)]
    while pending:
        first, last = pending.pop()
        (x0, y0), (x1, y1) = points[first], points[last]
        length = math.hypot(x1 - x0, y1 - y0)
        furthest, index = tolerance, None
        for i in range(first + 1, last):
            x, y = points[i]
            away = abs((x1 - x0) * (y0 - y) - (x0 - x) * (y1 - y0)) / length if length else math.hypot(x - x0, y - y0)
            if away > furthest:
                furthest, index = away, i
        if index is not None:
            keep.add(index)
            pending += [(first, index), (index, last)]
    return [points[i] for i in sorted(keep)]
