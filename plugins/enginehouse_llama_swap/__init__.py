"""llama-swap's paths, for its page and its tools: ``[compat] llama_swap = true``.

The pages translate the gateway's own, which they ask as their clients would: in the same process, with the same key.
"""

from __future__ import annotations

from typing import Any

from enginehouse import Register, hookimpl


@hookimpl
def register_routes(register: Register[Any]) -> None:
    """Offer llama-swap's paths."""
    register("compat.llama_swap", _routes)


@hookimpl
def register_protocols(register: Register[Any]) -> None:
    """Offer llama-swap's paths of engines."""
    register("compat.llama_swap", _versionless)


def _versionless() -> Any:
    """The paths below `/v`, for servers whose `url` ends in a version."""
    from enginehouse_llama_swap.renamed import Versionless

    return Versionless()


def _routes() -> Any:
    """All routes. The gateway's own pages, which they ask, check the key of a request."""
    from enginehouse_llama_swap.activity import ACTIVITY_ROUTES
    from enginehouse_llama_swap.events import EVENT_ROUTES
    from enginehouse_llama_swap.models import MODEL_ROUTES
    from enginehouse_llama_swap.renamed import RENAMED_ROUTES

    return [*MODEL_ROUTES, *ACTIVITY_ROUTES, *EVENT_ROUTES, *RENAMED_ROUTES]
