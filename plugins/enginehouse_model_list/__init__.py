"""Pages that list models: ``GET /v1/models``, and those of clients' protocols."""

from __future__ import annotations

from typing import Any

from enginehouse import Register, hookimpl


@hookimpl
def register_routes(register: Register[Any]) -> None:
    """Offer the lists of models, and the other pages of protocols."""
    register("models", _pages)


def _pages() -> Any:
    """`/v1/models`, and the pages that clients' protocols have of their own, such as Ollama's `/api/tags`."""
    from enginehouse_model_list.model_list import ROUTES
    from enginehouse_model_list.protocol_pages import ProtocolPages

    return [*ROUTES, ProtocolPages()]
