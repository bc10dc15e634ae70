"""Places: where a launcher puts an engine before its launch line is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

LOOPBACK: Final = "127.0.0.1"


class PlacementOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The base class of a launcher's options: ``[hosts.NAME.placement]``, and ``[models.NAME.placement]`` over it.

    Every field has a default.
    """


PlacementT = TypeVar("PlacementT", bound=PlacementOptions)


class EngineNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine needs of its place."""

    gpus: int = 0
    """The number of GPUs in ``models.*.gpus``; 0 if it has none."""
    memory: int | None = None
    """The bytes in ``models.*.memory``; ``None`` if it has none."""
    ports: tuple[int, int] = (20_000, 32_767)
    """The first and the last port of ``hosts.*.ports``."""
    options: PlacementOptions = PlacementOptions()
    """The configured options, of the launcher's type ``Options``."""

    def options_as(self, type: type[PlacementT]) -> PlacementT:
        """The options, which are of ``type``; its defaults if none are given."""
        return self.options if isinstance(self.options, type) else type()


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A place that is kept free for an engine."""

    port: int
    """The port to listen on, free where the engine will run."""
    bind: str = LOOPBACK
    """The address to listen on there, at which the gateway reaches the engine."""
    node: str = ""
    """The label of the machine, for failure domains; empty for that of the host."""
    unit: str = ""
    """The label of the unit, for failure domains; empty for that of the host."""
    others: tuple[str, ...] = ()
    """The addresses of further machines, if the engine spans several. A process runs on each."""
    meet_at: str = ""
    """``ADDRESS:PORT`` of the first machine, at which the processes of an engine on several machines meet."""
    handle: Mapping[str, Any] = {}
    """The facts by which the launcher finds the place again. JSON-compatible and without secrets."""
