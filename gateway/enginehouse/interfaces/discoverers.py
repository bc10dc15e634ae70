"""Discoverers: find backends that appear and disappear at run time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec

from enginehouse.domain.replica import Role


class FoundBackend(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A backend, as a discoverer reports it. Fields that ``[backends.NAME]`` has too mean the same here.

    - ``models``: their names, or a table for each name with what this backend's copy can do; by default, what the
      engine lists.
    - ``host``: a host of the configuration, or a new one. By default ``node``, if there is one.
    - ``node`` and ``unit``: the failure domains of a new host.
    - ``api_key``: the engine's key itself. ``"env:NAME"`` is no reference here, since a list may come from elsewhere.
    - ``draining``: it will go soon: it gets no new requests, and its streams move away.
    - ``labels``: facts for people; ``/api/status`` shows them.
    """

    url: str
    driver: str = "openai"
    role: Role = Role.NEUTRAL
    models: Sequence[str] | Mapping[str, Mapping[str, Any]] | None = None
    priority: int = 0
    concurrency: int = 0
    host: str = ""
    node: str = ""
    unit: str = ""
    api_key: str = ""
    verify_tls: bool = True
    draining: bool = False
    labels: Mapping[str, str] = {}


class Discoverer(ABC):
    """Watches a source of backends, such as a registry or an orchestrator."""

    def serves_at(self, host: str, port: int) -> None:
        """Take the address at which this gateway listens, for a source that lists it. Called before ``watch``."""

    @abstractmethod
    def watch(self) -> AsyncIterator[Mapping[str, FoundBackend]]:
        """Yield all backends by name, once at first and again after every change. An equal list confirms the last one.

        An exception is the source's failure: the gateway keeps the last backends, says why and calls ``watch`` again.
        """
