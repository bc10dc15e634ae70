"""A progress bar for commands that take long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn


@contextmanager
def progress(name: str) -> Iterator[Callable[[float], None]]:
    """Show a bar on standard error. Yields a function that takes the share of the work that is done, 0 to 1."""
    columns = (TextColumn(name), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("", total=1.0)
        yield lambda share: shown.update(task, completed=share)
