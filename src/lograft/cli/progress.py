"""Progress bars on stderr, if it is a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    def __call__(self, done: float, text: str = "") -> None:
        """Shows how much of the total is done."""


@contextmanager
def progress_bar(description: str, total: float) -> Iterator[Progress]:
    if not sys.stderr.isatty():
        yield lambda done, text="": None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[text]}"),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task(description, total=total or None, text="")

        def advance(done: float, text: str = "") -> None:
            bars.update(bar, completed=done, text=text)

        yield advance
