"""Commands that ask a running gateway over HTTP, such as ``enginehouse drain``, and the pages that answer them."""

from __future__ import annotations

from typing import Any

from enginehouse import Register, hookimpl


@hookimpl
def register_routes(register: Register[Any]) -> None:
    """Offer the pages, for operators only but for ``/v1/usage`` and ``/v1/limits``."""
    register("operations", _pages)


def _pages() -> Any:
    """All of ``/api`` but what other plugins add: status, live requests, events, logs, figures over time, usage."""
    from enginehouse.pages import guarded
    from enginehouse_operations.pages.events import EventPages
    from enginehouse_operations.pages.history import HISTORY_ROUTES
    from enginehouse_operations.pages.lifecycle import LIFECYCLE_ROUTES
    from enginehouse_operations.pages.logs import LOG_ROUTES
    from enginehouse_operations.pages.operations import OPERATIONS_ROUTES
    from enginehouse_operations.pages.series import SeriesPage, SeriesStore
    from enginehouse_operations.pages.usage import OWN_ROUTES, USAGE_ROUTES

    store, events = SeriesStore(), EventPages()
    of_store = guarded(SeriesPage(store).routes, every_second=store.sample)
    of_events = guarded(events.routes, every_second=events.tick)
    others = [*OPERATIONS_ROUTES, *LIFECYCLE_ROUTES, *LOG_ROUTES, *HISTORY_ROUTES, *USAGE_ROUTES]
    return [*of_events, *guarded(others), *of_store, *OWN_ROUTES]
