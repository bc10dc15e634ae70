"""Launchers as hosts have them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from enginehouse_local import LocalLauncher


def local_launcher(logs: Path) -> LocalLauncher:
    launcher = LocalLauncher()
    with suppress(StopIteration):
        launcher.prepare(logs).send(None)  # it waits for nothing
    return launcher
