"""Servers that load models themselves: what loads and unloads them is a service's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import NamedTuple

from enginehouse.interfaces.drivers import EventClient, SupportsLoading
from enginehouse.interfaces.launchers import EngineOutput, EngineProcess


class LoadingBackend(NamedTuple):
    """A backend whose driver ``SupportsLoading``."""

    name: str
    url: str
    loading: SupportsLoading
    """Its driver."""
    connect: Callable[[float], EventClient]
    """Makes a client with a time limit. Raises ``UpstreamError`` if the backend was removed."""
    interval: float
    """The seconds between two questions, ``checks.interval``."""
    on_found: Callable[[str, EngineProcess], None]
    """To be called with a model that is loaded although ``load`` did not load it, and what stands for it."""


class ModelServer(ABC):
    """Has one backend load and unload its models, in the gateway's turn."""

    @abstractmethod
    def discover(self, models: Collection[str]) -> None:
        """Take the models that it may load, whenever these are others."""

    @abstractmethod
    async def load(self, model: str, timeout: float, output: EngineOutput) -> EngineProcess:
        """Load a model and wait until it is loaded. ``output`` gets what the server reports meanwhile.

        What is returned stands for the loaded model: ``stop`` unloads it, and it has ``exited`` when it is unloaded.
        It ``ends_at_will``. Raise ``NotEnoughMemory`` if the server lacks memory, else a ``RequestError``.
        """

    @abstractmethod
    def note_unloaded(self, model: str) -> None:
        """Note that the backend has refused a request because ``model`` is not loaded."""

    @abstractmethod
    def close(self) -> None:
        """Ask no more, and call ``on_found`` no more, although loads and unloads go on. Models stay loaded."""
