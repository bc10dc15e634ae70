"""The settings of an engine that the gateway launches, and what the files of its model tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from enginehouse.domain.capabilities import UNKNOWN, Capabilities
from enginehouse.domain.replica import Role
from enginehouse.interfaces.places import LOOPBACK


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The base class of a driver's options: the table ``[models.NAME.options]``. Every field has a default."""


OptionsT = TypeVar("OptionsT", bound=EngineOptions)


class LaunchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that a driver turns into a launch line."""

    model: str
    """The name under which the engine must serve the model."""
    path: str
    """The model's file or folder; empty if none is configured."""
    port: int
    """The port to listen on."""
    bind: str = LOOPBACK
    """The address to listen on: of this machine, or of the one where the launcher places the engine."""
    nodes: int = 1
    """The machines that one engine spans, each with a process of its own."""
    node_rank: int = 0
    """The machine that the launch line is for: 0 for the first one, which serves requests."""
    meet_at: str = ""
    """``ADDRESS:PORT`` of the first machine, at which the processes of an engine on several machines meet."""
    context_length: int | None = None
    """The configured context length in tokens; ``None`` for the engine's default."""
    sleep: bool = False
    """Whether the gateway may put the engine to sleep."""
    options: EngineOptions = EngineOptions()
    """The configured options, of the driver's type ``Options``."""
    args: Sequence[str] = ()
    """The configured arguments, which the gateway appends. They may override any option."""
    migrators: Sequence[str] = ()
    """The types of the migrators that may move the engine's requests, in the order of the configuration."""
    hands_over: bool = False
    """Whether the engine may read prompts for another one, or answer prompts that another one has read."""
    role: Role = Role.NEUTRAL
    """The configured role."""
    kv_events: str = ""
    """The JSON that vLLM and SGLang take as ``--kv-events-config``; empty if the engine need not publish its events."""

    cache_folder: str = ""
    """The folder in which the engine may keep its prefix cache; empty if it need not. Only for ``KeepsCache``."""

    def options_as(self, type: type[OptionsT]) -> OptionsT:
        """The options, which are of ``type``; its defaults if none are given."""
        return self.options if isinstance(self.options, type) else type()


class FoundModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that ``enginehouse run`` can serve, as ``[models.NAME]`` describes it."""

    name: str
    path: str
    options: Mapping[str, Any] = {}


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a model, from its files, before its engine runs."""

    capabilities: Capabilities = UNKNOWN
    memory: int | None = None
    """An estimate of the bytes that its engine will take."""
    size: int | None = None
    """The bytes of its files; ``None`` if they are not known."""
    quantization: str = ""
    """The quantisation of its weights, in the engine's words, such as ``Q4_K_M``; empty if the files do not name it."""
