"""llama-swap's paths, for its page and its tools: ``[compat] llama_swap = true``.

The pages translate the gateway's own, which they ask as their clients would: in the same process, with the same key.

::

    own_pages    asks the gateway's own pages
    models       /api/models/unload, /upstream, /models, /api/profiles, /api/version
    activity     /api/metrics/activity and /api/metrics/stats
    events       /api/events: its messages, between the gateway's own events
    renamed      /v/... and other names of paths that the gateway has
"""

from __future__ import annotations

from starlette.routing import BaseRoute

from enginehouse_llama_swap.paths.activity import ACTIVITY_ROUTES
from enginehouse_llama_swap.paths.events import EVENT_ROUTES
from enginehouse_llama_swap.paths.models import MODEL_ROUTES
from enginehouse_llama_swap.paths.renamed import RENAMED_ROUTES


def llama_swap_routes() -> list[BaseRoute]:
    """All routes. The gateway's own pages, which they ask, check the key of a request."""
    return [*MODEL_ROUTES, *ACTIVITY_ROUTES, *EVENT_ROUTES, *RENAMED_ROUTES]
