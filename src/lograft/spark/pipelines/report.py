"""Renders an HTML page of tables and bar charts: one file, no scripts, no external resources.
Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

_BAR_WIDTH: Final = 360
_ROW_HEIGHT: Final = 20
#: Longer labels are shortened; the full label is format_value as a tooltip.
_LABEL_LETTERS_MAX: Final = 56
_LETTER_WIDTH: Final = 7
_STYLE: Final = """
body{font:15px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em;color:#1d2733}
h1{font-size:1.6em}h2{font-size:1.15em;margin-top:2em;border-bottom:1px solid #d5dde5}
table{border-collapse:collapse;margin:.6em 0}th,td{padding:.2em .8em;text-align:left}
th{border-bottom:2px solid #8fa3b5}td{border-bottom:1px solid #e6ebf0}
td.n{text-align:right;font-variant-numeric:tabular-nums}p.note{color:#5b6b7a;margin:.3em 0}
svg text{font:12px system-ui,sans-serif;fill:#1d2733}svg rect{fill:#3f7cac}
"""


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    #: Explains the table and its limits.
    note: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    #: Label and length of each bar of the chart; empty for no chart.
    bars: Sequence[tuple[str, float]] = ()


def page(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f"<h1>{escape(title)}</h1><p class=note>{escape(subtitle)}</p>",
    ]
    for section in sections:
        parts.append(f"<h2>{escape(section.title)}</h2><p class=note>{escape(section.note)}</p>")
        if section.bars:
            parts.append(chart(section.bars))
        parts.append(table(section.columns, section.rows))
    return "\n".join(parts) + "\n</html>\n"


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    if not rows:
        return "<p class=note>no data</p>"
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "\n".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>\n{body}</table>"


def chart(bars: Sequence[tuple[str, float]]) -> str:
    longest = max((length for _, length in bars), default=0) or 1
    height = _ROW_HEIGHT * len(bars)
    letters = max((len(_shorten(label)) for label, _ in bars), default=0)
    begin = letters * _LETTER_WIDTH + 10
    width = begin + _BAR_WIDTH + 120
    lines = [f'<svg width="{width}" height="{height}" role="img">']
    for row, (label, length) in enumerate(bars):
        top = row * _ROW_HEIGHT
        size = round(_BAR_WIDTH * length / longest, 1)
        lines.append(
            f'<text x="0" y="{top + 14}"><title>{escape(label)}</title>'
            f"{escape(_shorten(label))}</text>"
            f'<rect x="{begin}" y="{top + 3}" width="{size}" height="{_ROW_HEIGHT - 6}"/>'
            f'<text x="{begin + size + 6}" y="{top + 14}">{format_value(length)}</text>'
        )
    return "\n".join(lines) + "</svg>"


def _shorten(label: str) -> str:
    """Shortens a label in the middle, because its end is the partition."""
    if len(label) <= _LABEL_LETTERS_MAX:
        return label
    half = _LABEL_LETTERS_MAX // 2
    return f"{label[: half - 1]}…{label[-half:]}"


def format_value(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.2f}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def _cell(value: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"<td{' class=n' if is_number else ''}>{escape(format_value(value))}</td>"
