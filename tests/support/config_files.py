"""The types of fixtures that load configuration files."""

from __future__ import annotations

from typing import Protocol

from enginehouse import ConfigError
from enginehouse.config.load_config import LoadedConfig


class Load(Protocol):
    def __call__(self, text: str = "", **environ: str) -> LoadedConfig:
        """Load a configuration file with ``text``, with overrides from ``environ``."""


class Refuse(Protocol):
    def __call__(self, text: str = "", **environ: str) -> ConfigError:
        """The error that loading a configuration file with ``text`` raises."""
