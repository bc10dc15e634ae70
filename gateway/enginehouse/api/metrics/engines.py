"""Where engines have their metrics."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from enginehouse.relay.context import RelayContext

_OF_MODEL = "{model}"


def engine_metrics(context: RelayContext) -> Iterator[tuple[str, str, str]]:
    """The backend and the path of each page, and the model that it is of: empty if it is about all of them."""
    for backend, upstream in context.upstreams.items():
        path = context.drivers[backend].figures.metrics_path
        if _OF_MODEL in path:
            for model in context.fleet.snapshot.ready_on(backend):
                yield backend, path.replace(_OF_MODEL, quote(model, safe="")), model
        elif upstream.pool.origin.host:
            yield backend, path, ""
