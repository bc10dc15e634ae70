"""Drivers: launch and query one kind of engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from enginehouse.domain.capabilities import UNKNOWN, Capabilities
from enginehouse.domain.continuation import Continuation, PartialAnswer, StreamTraits
from enginehouse.domain.errors import CannotContinue, LoadFailed
from enginehouse.domain.instance import InstanceMetadata, InstanceStatus
from enginehouse.domain.replica import Role


class EngineResponse(msgspec.Struct, frozen=True):
    """The complete response of an engine."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes


class EngineClient(Protocol):
    """An HTTP client for one engine. It adds the engine's address, the API key and a timeout."""

    async def request(self, method: str, path: str, body: bytes = b"") -> EngineResponse:
        """Send a request and read the complete response.

        Raises ``UpstreamError`` if the engine is unreachable, ``UpstreamTimeout`` if it takes too long.
        """


class ServedModel(msgspec.Struct, frozen=True):
    """A model that an engine lists, with the capabilities that it reports."""

    name: str
    capabilities: Capabilities = UNKNOWN
    memory: int | None = None
    """The server's estimate of its bytes when loaded, if the server loads models itself."""


class LoadedModel(msgspec.Struct, frozen=True):
    """A model that a server has loaded."""

    name: str
    memory: int | None = None
    """The bytes that it takes now; ``None`` if the server does not report them."""


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
    """The port to listen on, at 127.0.0.1."""
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
    quantization: str = ""
    """The quantisation of its weights, in the engine's words, such as ``Q4_K_M``; empty if the files do not name it."""


class Driver(ABC):
    """Knows how to launch and query one kind of engine.

    One object serves all backends of its kind, so it keeps no state about any of them.
    """

    Options: type[EngineOptions] = EngineOptions
    """The options of a launched model. The gateway decodes them strictly when it reads its configuration."""
    loads_models: bool = False
    """Whether its servers load and unload models on demand. If so, implement ``load``, ``unload`` and ``loaded``."""
    how_to_install: str = ""
    """How to install the engine's program, for an error message: ``brew install llama.cpp``."""
    streams: StreamTraits = StreamTraits()
    """The properties of the engine's streams."""
    metrics_path: str = "/metrics"
    """The path of the engine's own metrics. With ``{model}`` in it, each loaded model has a page of its own."""
    hands_over: bool = False
    """Whether one engine can read a prompt and hand its KV cache over to another one, with vLLM's
    ``kv_transfer_params`` or by ``bootstraps``."""
    bootstraps: bool = False
    """Whether a prefill and a decode engine get a request at the same time, with the fields of ``bootstrap``. Then
    neither serves a request alone."""

    def command(self, spec: LaunchSpec) -> Sequence[str] | None:
        """Return the launch line of a managed engine; ``None`` if the model needs a ``command`` in its configuration.

        The gateway appends the model's ``args``.
        """
        return None

    def environment(self, spec: LaunchSpec) -> Mapping[str, str]:
        """Return environment variables for a managed engine. The model's ``env`` takes precedence."""
        return {}

    def why_not(self, spec: LaunchSpec) -> str:
        """Return why the engine cannot start, for example a missing file; empty if it may start.

        Called when the gateway reads its configuration, for engines on this machine. May look for files, but must not
        read them.
        """
        return ""

    def find_models(self, path: Path) -> Sequence[FoundModel]:
        """Return the models that this engine can serve from the file or folder ``path``, for ``enginehouse run``."""
        return ()

    def inspect(self, spec: LaunchSpec) -> ModelFacts:
        """Read the headers of the model's files. Called in a thread. The gateway logs and ignores an exception."""
        return ModelFacts()

    @abstractmethod
    async def healthy(self, engine: EngineClient) -> bool:
        """Return whether the engine can serve requests now. Any exception counts as ``False``."""

    @abstractmethod
    async def models(self, engine: EngineClient) -> Sequence[ServedModel]:
        """Return the models that the engine serves now. Raise ``UpstreamError`` if it does not list them."""

    async def concurrency(self, engine: EngineClient) -> int | None:
        """Return the most requests that the engine works on at once; ``None`` if it has no limit or reports none.

        Called when a launched engine is ready, and regularly for other engines. Requests above the limit wait in the
        gateway's queue. An exception leaves the limit as it is.
        """
        return None

    async def status(self, engine: EngineClient) -> InstanceStatus | None:
        """Return the load of the engine for rescheduling, in Llumnix's figures; ``None`` if it reports none.

        Leave a figure that the engine does not report at 0; the gateway sets ``instance_id`` and ``timestamp_ms``.
        Raise ``UpstreamError`` for an answer that cannot be read.
        """
        return None

    async def metadata(self, engine: EngineClient) -> InstanceMetadata:
        """Return the constant facts of an engine that reports its load. Called after its first ``status``."""
        return InstanceMetadata()

    async def priority_order(self, engine: EngineClient, spec: LaunchSpec | None = None) -> int:
        """Return how the engine orders waiting requests by their field ``priority``.

        1 means higher ones first, -1 lower ones first, 0 that it ignores or may refuse the field. ``spec`` is that of
        an engine that the gateway has launched.
        """
        return 0

    async def bootstrap_port(self, engine: EngineClient) -> int | None:
        """Return the port at which other engines fetch prompts that ``engine`` has read; ``None`` for their default.

        Called before the first request that is handed over, and again after one has failed. Raise ``UpstreamError`` if
        the engine reads no prompts for others.
        """
        return None

    def bootstrap(self, body: bytes, host: str, port: int | None) -> bytes:
        """Return ``body`` for both engines of a hand-over; ``host`` and ``port`` are those of the prefill engine."""
        return body

    async def load(self, engine: EngineClient, model: str) -> None:
        """Make the server load ``model``. May return before it is loaded: the gateway then calls ``loaded``.

        Raise ``NotEnoughMemory`` if the server lacks memory, else ``LoadFailed`` or ``UpstreamError``.
        """
        raise LoadFailed(f"The driver of '{model}' cannot load models")

    async def unload(self, engine: EngineClient, model: str) -> None:
        """Make the server unload ``model``, if it is loaded. May return before it is unloaded."""
        raise LoadFailed(f"The driver of '{model}' cannot unload models")

    def full_name(self, model: str) -> str:
        """Return the name under which a server lists ``model``, if it knows several names of one model."""
        return model

    async def loaded(self, engine: EngineClient) -> Sequence[LoadedModel]:
        """Return the models that the server has loaded and that can take requests now."""
        return ()

    async def sleep(self, engine: EngineClient) -> bool:
        """Make a ready engine release memory and keep running. Return ``False`` if it cannot."""
        return False

    async def wake(self, engine: EngineClient) -> bool:
        """Wake a sleeping engine. Return ``False`` if it cannot. The engine is ready when ``healthy`` is true again."""
        return False

    async def sleep_as_launched(self, engine: EngineClient, spec: LaunchSpec) -> bool:
        """Do as ``sleep``, for an engine that was launched with ``spec``, whose options may decide how."""
        return await self.sleep(engine)

    async def wake_as_launched(self, engine: EngineClient, spec: LaunchSpec) -> bool:
        """Do as ``wake``, for an engine that ``sleep_as_launched`` has put to sleep."""
        return await self.wake(engine)

    def continuable(self, path: str, body: bytes) -> bytes:
        """Return ``body`` with fields that add the tokens to the stream, so that another engine can continue it.

        ``streams.added`` names the fields that this adds to the events. By default, the body is unchanged.
        """
        return body

    async def fill_in(self, engine: EngineClient, answer: PartialAnswer) -> PartialAnswer:
        """Return ``answer`` with the facts that its stream lacked, from ``engine``, which will continue it.

        Raise ``UpstreamError`` if the engine does not have them either.
        """
        return answer

    def continuation(self, answer: PartialAnswer) -> Continuation:
        """Return the request that makes the engine continue where ``answer`` ends.

        If the engine refuses an exact one, the gateway calls this once more with ``ids`` as ``None``. Raise
        ``CannotContinue`` with the reason if there is none.
        """
        raise CannotContinue("The driver of its engine cannot continue streams")

    def following(self, continuation: Continuation, request: str) -> Continuation:
        """Return ``continuation`` for an engine to which another engine has moved the running request.

        The engine begins no new request, and answers with the rest. ``request`` is the request's id at the engines.
        Raise ``CannotContinue`` with the reason if the engine cannot; the stream then still depends on the other
        engine.
        """
        raise CannotContinue("The engine cannot be asked for the rest of a request that came from another one")
