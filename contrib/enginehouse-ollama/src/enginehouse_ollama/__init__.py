"""The ``ollama`` driver and the command ``ollama pull``."""

from __future__ import annotations

import click

from enginehouse import Driver, Register, hookimpl
from enginehouse_ollama.driver import OllamaDriver
from enginehouse_ollama.pull import ollama

__all__ = ["OllamaDriver"]


@hookimpl
def register_drivers(register: Register[Driver]) -> None:
    """Register the ``ollama`` driver."""
    register("ollama", OllamaDriver)


@hookimpl
def register_commands(register: Register[click.Command]) -> None:
    """Register ``enginehouse ollama``."""
    register("ollama", lambda: ollama)
