"""``enginehouse import llama-swap``: llama-swap's ``config.yaml``, turned into ``enginehouse.toml``."""

from __future__ import annotations

from typing import Any

from enginehouse import Register, hookimpl


@hookimpl
def register_commands(register: Register[Any]) -> None:
    """Offer ``enginehouse import llama-swap``."""
    register("import llama-swap", _command)


def _command() -> Any:
    """Converts llama-swap's configuration."""
    from enginehouse_llama_swap.import_command import llama_swap  # imports the converter: only when the command runs

    return llama_swap
