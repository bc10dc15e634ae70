"""Reads the files that commands name."""

from __future__ import annotations

from pathlib import Path

import click

from enginehouse import ConfigError


def read_file(file: Path) -> bytes:
    """The content of ``file``; ``-`` is stdin. Raises ``ConfigError`` if it cannot be read."""
    try:
        with click.open_file(str(file), "rb") as opened:
            content: bytes = opened.read()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(file)) from None
    return content
