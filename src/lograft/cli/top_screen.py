"""The live view of `lograft top`, on the alternate screen of the terminal."""

import asyncio
from collections.abc import Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lograft.cli.node_history import HistoryReader
from lograft.cli.top import (
    GROUP_HEAD,
    NODE_HEAD,
    TOPIC_HEAD,
    TREND_POINTS,
    ClusterFigures,
    figures_of,
    group_rows,
    missing_lines,
    node_rows,
    summary,
    topic_rows,
)
from lograft.model.errors import LograftError

#: Nodes have new figures every five seconds.
REFRESH_SECONDS: Final = 2.0


async def show_live(reader: HistoryReader) -> None:
    """Shows the figures until the task is cancelled; then the terminal is as before."""
    console = Console()
    with Live(Text("Reading …"), console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(await _read_view(reader), refresh=True)
            await asyncio.sleep(REFRESH_SECONDS)


async def _read_view(reader: HistoryReader) -> RenderableType:
    try:
        return view_of(figures_of(await reader.read(points=TREND_POINTS)))
    except LograftError as error:
        # The cluster may come back.
        return Text(f"{error}; retrying", style="red")


def view_of(figures: ClusterFigures) -> RenderableType:
    has_problem = bool(figures.under_replicated or figures.leaderless or figures.missing)
    parts: list[RenderableType] = [
        Text(summary(figures), style="bold red" if has_problem else "bold green"),
        Text(),
        _table(NODE_HEAD, node_rows(figures)),
        Text(),
        _table(TOPIC_HEAD, topic_rows(figures)),
        Text(),
        _table(GROUP_HEAD, group_rows(figures)),
        Text(),
        *(Text(line, style="red") for line in missing_lines(figures)),
        Text("* active controller. Ctrl-C quits.", style="dim"),
    ]
    return Group(*parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    found = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for index, name in enumerate(head):
        is_left = index == 0 or name == "TREND"
        found.add_column(
            Text(name),
            justify="left" if is_left else "right",
            no_wrap=True,
            overflow="ellipsis",
            style="cyan" if name == "TREND" else "",
        )
    for row in rows:
        # Text, so that brackets in names are not taken for markup.
        found.add_row(*map(Text, row))
    return found
