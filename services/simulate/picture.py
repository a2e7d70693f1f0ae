"""A picture of a simulation as SVG: utilisation and queue over time, waits by size. The same simulation, the same bytes."""

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from math import ceil, floor, log10
from typing import Final, NamedTuple

from services.simulate.engine import Sample
from services.simulate.measure import by_size, percentile
from services.simulate.work import US, Life

WIDTH: Final = 960
LEFT: Final = 96
RIGHT: Final = 28
INNER: Final = WIDTH - LEFT - RIGHT
COLUMNS: Final = INNER // 2  # of a course over time: a column is the mean of what happened in it
TOP: Final = 104
PANEL: Final = 150
GAP: Final = 66
ROW: Final = 26
TICKS: Final = 5

INK: Final = "#1f2937"
GREY: Final = "#6b7280"
FAINT: Final = "#e5e7eb"
PAPER: Final = "#ffffff"
BLUE: Final = "#2563eb"
AMBER: Final = "#d97706"
TEAL: Final = "#0f766e"
FONT: Final = "system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',Arial,sans-serif"
SPANS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"), (0.001, "ms"))


class Course(NamedTuple):
    """Values over time."""

    title: str
    values: list[float]
    high: float  # what the axis has at the least
    colour: str
    unit: str = ""


class Scale(NamedTuple):
    """Values on a line of pixels, in proportion."""

    low: float
    high: float
    start: float  # the pixel of `low`
    end: float

    def at(self, value: float) -> float:
        """The pixel of a value."""
        return self.start + (value - self.low) / ((self.high - self.low) or 1) * (self.end - self.start)


def picture(title: str, subtitle: str, lives: Sequence[Life], samples: Sequence[Sample], capacity: int) -> str:
    """The SVG document. `capacity`: GPUs of the cluster."""
    sizes = by_size(lives)
    waits_top = TOP + 2 * (PANEL + GAP)
    height = waits_top + max(1, len(sizes)) * ROW + 64
    first_us = samples[0].at_us if samples else 0
    span_us = max(samples[-1].at_us - first_us, 1) if samples else 1
    columns = _columns(samples, first_us, span_us)
    used = [min(100.0, 100 * used / max(capacity, 1)) for used, _ in columns]  # GPUs may have been lost under runs
    waiting = [gpus for _, gpus in columns]
    time = Scale(0, span_us / US, LEFT, LEFT + INNER)
    body = [
        _heading(34, title, size=20),
        _text(LEFT, 56, subtitle, fill=GREY),
        *_course(time, TOP, Course("GPUs in use", used, 100.0, BLUE, " %")),
        *_course(time, TOP + PANEL + GAP, Course("GPUs waited for", waiting, max([*waiting, 1.0]), AMBER)),
        *_waits(waits_top, sizes),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="{FONT}" font-size="12" fill="{INK}" role="img">'
    )
    ground = f'<rect width="{WIDTH}" height="{height}" fill="{PAPER}"/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", ground, *body, "</svg>", ""])


def _columns(samples: Sequence[Sample], first_us: int, span_us: int) -> list[tuple[float, float]]:
    """GPUs used and waited for, the means over each of `COLUMNS` equal parts of the time."""
    sums = [[0.0, 0.0] for _ in range(COLUMNS)]
    for one, after in pairwise(samples):
        begin = (one.at_us - first_us) * COLUMNS / span_us
        end = (after.at_us - first_us) * COLUMNS / span_us
        for column in range(floor(begin), min(ceil(end), COLUMNS)):
            part = min(end, column + 1) - max(begin, column)
            sums[column][0] += one.used * part
            sums[column][1] += one.gpus * part
    return [(used, gpus) for used, gpus in sums]


def _course(time: Scale, top: float, course: Course) -> list[str]:
    """A panel: an area over time under its title, with both axes."""
    ticks = nice(course.high)
    value = Scale(0, max(ticks[-1], course.high), top + PANEL, top)
    parts = [_heading(top - 12, course.title)]
    for tick in ticks:
        y = value.at(tick)
        parts.append(_line(LEFT, y, LEFT + INNER, y))
        parts.append(_text(LEFT - 10, y + 4, f"{tick:,.10g}{course.unit}", anchor="end", fill=GREY))
    parts += _area(course.values, value, course.colour)
    seconds, name = next((s, n) for s, n in SPANS if time.high >= 2 * s or n == "ms")
    for tick in nice(time.high / seconds, inside=True):
        x = time.at(tick * seconds)
        parts.append(_text(x, top + PANEL + 18, f"{tick:,.10g} {name}", anchor="middle", fill=GREY))
    return parts


def _area(values: Sequence[float], value: Scale, colour: str) -> list[str]:
    step = INNER / max(len(values), 1)
    points = [(LEFT + i * step, value.at(v)) for i, v in enumerate(values)]
    line = " ".join(f"{'M' if i == 0 else 'L'}{x:.1f} {y:.1f}H{x + step:.1f}" for i, (x, y) in enumerate(points))
    closed = f"{line} V{value.start:.1f} H{LEFT} Z"
    return [
        f'<path d="{closed}" fill="{colour}" fill-opacity="0.14"/>',
        f'<path d="{line}" fill="none" stroke="{colour}" stroke-width="1.2" stroke-linejoin="round"/>',
    ]


def _waits(top: float, sizes: dict[str, list[float]]) -> list[str]:
    """A panel: for each class of sizes how long its jobs waited, on a logarithmic axis."""
    parts = [_heading(top - 12, "Wait by GPUs of the job"), *_legend(top - 16)]
    low, high = 1.0, max([10.0, *(waits[-1] for waits in sizes.values())])
    scale = Scale(log10(low), log10(high) * 1.02, LEFT + 8, LEFT + INNER - 84)
    bottom = top + max(1, len(sizes)) * ROW
    for seconds, name in ((1, "≤ 1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min"), (3_600, "1 h"), (36_000, "10 h"),
                          (86_400, "1 d"), (864_000, "10 d"), (8_640_000, "100 d")):  # fmt: skip
        if seconds <= high * 1.05:
            x = scale.at(log10(seconds))
            parts += [_line(x, top, x, bottom), _text(x, bottom + 18, name, anchor="middle", fill=GREY)]
    for number, (name, waits) in enumerate(sizes.items()):
        y = top + number * ROW + ROW / 2
        p50, p90, p99 = (scale.at(log10(max(low, percentile(waits, p)))) for p in (50, 90, 99))
        parts += [
            _text(LEFT - 10, y + 4, name, anchor="end"),
            _stroke(p50, y, p99, y),
            _stroke(p90, y - 6, p90, y + 6),
            f'<circle cx="{p50:.1f}" cy="{y:.1f}" r="4.5" fill="{TEAL}"/>',
            f'<circle cx="{p99:.1f}" cy="{y:.1f}" r="4" fill="{PAPER}" stroke="{TEAL}" stroke-width="2"/>',
            _text(LEFT + INNER, y + 4, f"{len(waits):,} job{'s' if len(waits) != 1 else ''}", anchor="end", fill=GREY),
        ]
    return parts


def _legend(y: float) -> list[str]:
    x = LEFT + INNER - 200
    return [
        f'<circle cx="{x}" cy="{y}" r="4.5" fill="{TEAL}"/>', _text(x + 10, y + 4, "median", fill=GREY),
        _stroke(x + 74, y - 6, x + 74, y + 6), _text(x + 82, y + 4, "90 %", fill=GREY),
        f'<circle cx="{x + 134}" cy="{y}" r="4" fill="{PAPER}" stroke="{TEAL}" stroke-width="2"/>',
        _text(x + 144, y + 4, "99 %", fill=GREY),
    ]  # fmt: skip


def nice(high: float, *, inside: bool = False) -> list[float]:
    """Round numbers from 0 on, about `TICKS` of them: up to the first not below `high`, or the last not above it."""
    rough = max(high, 1e-9) / TICKS
    power = 10.0 ** floor(log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    count = floor(high / step + 1e-9) if inside else ceil(high / step - 1e-9)
    return [round(step * i, 9) for i in range(count + 1)]


def _heading(y: float, text: str, *, size: int = 12) -> str:
    return f'<text x="{LEFT}" y="{y:.1f}" font-size="{size}" font-weight="600">{escape(text)}</text>'


def _text(x: float, y: float, text: str, *, fill: str = INK, anchor: str = "start") -> str:
    colour = f' fill="{fill}"' if fill != INK else ""
    placed = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{colour}{placed}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    """Of the ground."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{FAINT}"/>'


def _stroke(x1: float, y1: float, x2: float, y2: float) -> str:
    """Of a wait."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{TEAL}" stroke-width="2"/>'
