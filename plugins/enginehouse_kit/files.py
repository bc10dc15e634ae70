"""Reads the files that commands name, such as VIEW.json: the instances and their figures for an explanation."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from enginehouse import ConfigError
from enginehouse_kit.rescheduling import ClusterView


def read_file(file: Path) -> bytes:
    """The content of ``file``; ``-`` is stdin. Raises ``ConfigError`` if it cannot be read."""
    try:
        with click.open_file(str(file), "rb") as opened:
            content: bytes = opened.read()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(file)) from None
    return content


def read_view(file: Path) -> ClusterView:
    """The view in ``file``. Raises ``ConfigError`` for anything else."""
    try:
        view = msgspec.json.decode(read_file(file), type=ClusterView)
    except msgspec.DecodeError as error:
        expected = '{"now_ms": 0, "instances": [{"id": "gpu-1", "role": "decode", "status": {}}]}'
        problem = f"is not the view of a cluster: {error}"
        raise ConfigError(problem, file=str(file), remedy=f"write {expected}") from None
    names = [each.id for each in view.instances]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        remedy = "give each instance its own id"
        raise ConfigError(f"has the instance '{twice[0]}' twice", file=str(file), remedy=remedy)
    return view
