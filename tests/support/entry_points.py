"""The entry points that ``pyproject.toml`` names and the installation does not."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import msgspec

_PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def missing_entry_points() -> list[str]:
    """Their names, which an editable installation learns only when it is installed again."""
    named = msgspec.toml.decode(_PROJECT.read_text("utf-8"))["project"]["entry-points"]
    return sorted(
        name
        for group, points in named.items()
        for name in points.keys() - {each.name for each in entry_points(group=group)}
    )
