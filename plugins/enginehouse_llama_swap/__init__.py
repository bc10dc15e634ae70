"""For those who come from llama-swap: ``enginehouse import llama-swap``, and the paths that its tools use."""

from __future__ import annotations

from typing import Any

from enginehouse import Register, hookimpl


@hookimpl
def register_commands(register: Register[Any]) -> None:
    """Offer ``enginehouse import llama-swap``."""
    register("import llama-swap", _command)


@hookimpl
def register_routes(register: Register[Any]) -> None:
    """Offer llama-swap's paths, for ``[compat] llama_swap = true``."""
    register("compat.llama_swap", _routes)


def _routes() -> Any:
    """Answers the paths of llama-swap's tools."""
    from enginehouse_llama_swap.paths import llama_swap_routes

    return llama_swap_routes()


def _command() -> Any:
    """Converts llama-swap's configuration."""
    from enginehouse_llama_swap.import_command import llama_swap  # imports the converter: only when the command runs

    return llama_swap
