"""Launchers as hosts have them."""

from __future__ import annotations

from pathlib import Path

from enginehouse_local import LocalLauncher


def local_launcher(logs: Path) -> LocalLauncher:
    launcher = LocalLauncher()
    launcher.prepare(logs)
    return launcher
