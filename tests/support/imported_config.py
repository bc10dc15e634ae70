"""A llama-swap configuration, converted and loaded."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from enginehouse.config.schema import Config


class ImportedConfig(NamedTuple):
    """The result of an import: the configuration as the loader reads it, and the notes by key."""

    config: Config
    notes: dict[str, str]
    warnings: tuple[str, ...]


class Import(Protocol):
    def __call__(self, text: str, **environ: str) -> ImportedConfig:
        """Convert ``text``, write the result as TOML, and load that with ``environ``."""
