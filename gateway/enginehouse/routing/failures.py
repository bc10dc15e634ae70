"""The error of a plugin that raised while it decided about a request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from enginehouse.domain.errors import PluginFailed, RequestError


def plugin_failed(kind: str, name: str, error: Exception) -> PluginFailed:
    """Names the plugin and the class of what it raised; the rest is in the cause, which clients do not see."""
    return PluginFailed(
        f"The {kind} '{name}' failed with {type(error).__name__}", details={"kind": kind, "plugin": name}
    )


@contextmanager
def failures_of(kind: str, name: str) -> Iterator[None]:
    """Turns what the plugin raises into ``PluginFailed``, but for a ``RequestError``, which is meant for the client.

    Too slow for what happens on every request; there, the same is written out.
    """
    try:
        yield
    except RequestError:
        raise
    except Exception as error:
        raise plugin_failed(kind, name, error) from error
