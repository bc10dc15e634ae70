"""Drivers: how to talk to one kind of engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from enginehouse.domain.capabilities import UNKNOWN, Capabilities


class EngineResponse(msgspec.Struct, frozen=True):
    """An engine's whole answer."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes


class EngineClient(Protocol):
    """HTTP to one engine, with its address, its key and a time limit already in place."""

    async def request(self, method: str, path: str, body: bytes = b"") -> EngineResponse:
        """Send a request and read the whole answer.

        Raises ``UpstreamError`` when the engine cannot be reached and ``UpstreamTimeout`` when it takes too long.
        """


class ServedModel(msgspec.Struct, frozen=True):
    """A model that an engine says it serves, with what the engine says of it."""

    name: str
    capabilities: Capabilities = UNKNOWN


class LaunchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver may build a launch line from: serve ``path`` under the name ``model`` on 127.0.0.1:``port``.

    ``sleep``: the engine is to be put to sleep when it is idle.
    """

    model: str
    path: str
    port: int
    context_length: int | None = None
    sleep: bool = False


class Driver(ABC):
    """One kind of engine. Stateless: the same object serves every backend of its kind."""

    def command(self, spec: LaunchSpec) -> Sequence[str] | None:
        """The launch line for a managed engine, or ``None`` if this kind cannot be launched without ``command``.

        The ``args`` of the model's configuration are added behind it.
        """
        return None

    def environment(self, spec: LaunchSpec) -> Mapping[str, str]:
        """Environment variables a managed engine needs besides those of its configuration."""
        return {}

    @abstractmethod
    async def healthy(self, engine: EngineClient) -> bool:
        """Whether the engine can take requests now."""

    @abstractmethod
    async def models(self, engine: EngineClient) -> Sequence[ServedModel]:
        """The models that the engine serves now."""

    async def sleep(self, engine: EngineClient) -> bool:
        """Let a ready engine give back what memory it can without ending; ``False`` if it cannot."""
        return False

    async def wake(self, engine: EngineClient) -> bool:
        """Wake an engine that sleeps; ``False`` if it cannot. It is ready once it is healthy again."""
        return False
