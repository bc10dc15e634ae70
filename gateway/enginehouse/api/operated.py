"""The gateway as the pages of operators know it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from enginehouse.engines.managed_engines import ManagedEngines
from enginehouse.relay.relay import Relay


class OperatedGateway(NamedTuple):
    """Its parts, and what it does for operators.

    - ``about``: further facts for the status.
    - ``reload``: reads the configuration again. Its argument is whether this is a dry run.
    - ``replacement``: returns what starts another gateway that takes over, if that is possible here.
    """

    relay: Relay
    engines: ManagedEngines
    about: Callable[[], Mapping[str, Any]]
    reload: Callable[[bool], Awaitable[Any]]
    replacement: Callable[[], Callable[[], Awaitable[int]] | None]
