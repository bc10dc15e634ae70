"""Writes files that commands make."""

from __future__ import annotations

from pathlib import Path

from enginehouse import ConfigError

__all__ = ["write_new_file"]


def write_new_file(file: Path, text: str) -> None:
    """Write ``text`` to ``file``, which must not exist. Raises ``ConfigError``."""
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise ConfigError("is there already", file=str(file), remedy="name a new file") from None
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(file)) from None
