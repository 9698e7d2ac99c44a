"""Curves as small SVGs, without a library: a logarithmic x axis, y from zero.

y is logarithmic too when it spans more than a factor of 100. Colours read on light and on dark.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from report import number

WIDTH, HEIGHT = 460, 260
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 34, 62
COLOURS = ("#3b82f6", "#f97316", "#10b981", "#a855f7", "#ef4444", "#808080")
GREY = "#808080"

Points = Sequence[tuple[float, float]]


def svg(title: str, x_label: str, y_label: str, series: Mapping[str, Points]) -> str:
    xs = sorted({x for points in series.values() for x, _ in points})
    ys = [y for points in series.values() for _, y in points]
    steep = min(ys) > 0 and max(ys) / min(ys) > 100
    low, high = (min(ys), max(ys)) if steep else (0.0, max(ys) * 1.1 or 1.0)

    def at(x: float, y: float) -> tuple[float, float]:
        across = _share(math.log(x), math.log(xs[0]), math.log(xs[-1]))
        up = _share(*map(math.log, (y, low, high))) if steep else _share(y, low, high)
        return (
            LEFT + across * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM),
        )

    base = HEIGHT - BOTTOM
    parts = [_text(WIDTH / 2, 18, title, "middle", 13), _text(8, TOP - 4, y_label, "start")]
    for x in xs:
        parts.append(_text(at(x, high)[0], base + 15, _short(x), "middle"))
    for step in range(5):
        y = low * (high / low) ** (step / 4) if steep else low + (high - low) * step / 4
        level = at(xs[0], y)[1]
        parts.append(_line([(LEFT, level), (WIDTH - RIGHT, level)], GREY, 0.3))
        parts.append(_text(LEFT - 6, level + 4, number(float(f"{y:.3g}")), "end"))
    parts.append(_text(WIDTH / 2, base + 31, x_label, "middle"))
    for index, (label, points) in enumerate(series.items()):
        colour, places = COLOURS[index % len(COLOURS)], [at(x, y) for x, y in points]
        parts.append(_line(places, colour, 2))
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        parts.append(
            _text(LEFT + index * 396 / len(series), HEIGHT - 8, label, "start", 11, colour)
        )
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n' + "\n".join(parts) + "\n</svg>\n"


def _share(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 0.5


def _short(x: float) -> str:
    return f"{x / 1000:g}k" if x >= 1000 else f"{x:g}"


def _line(points: Points, colour: str, width: float) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def _text(x: float, y: float, text: str, anchor: str, size: int = 11, fill: str = GREY) -> str:
    style = f'font-family="sans-serif" font-size="{size}" fill="{fill}" text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'
