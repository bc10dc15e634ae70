"""Drivers: query one kind of engine, and what a driver may support besides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from enginehouse.config.schema import KvEventSettings
from enginehouse.domain.capabilities import UNKNOWN, Capabilities
from enginehouse.domain.continuation import Continuation, PartialAnswer, StreamTraits
from enginehouse.domain.errors import CannotContinue, LoadFailed
from enginehouse.domain.instance import InstanceMetadata, InstanceStatus
from enginehouse.interfaces.engine_caches import CacheFollower, PromptTokens
from enginehouse.interfaces.launch_spec import EngineOptions, FoundModel, LaunchSpec, ModelFacts


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


class EventClient(EngineClient, Protocol):
    """An ``EngineClient`` that also follows the events of its engine."""

    async def follow(self, path: str, on_event: Callable[[bytes], None]) -> None:
        """Call ``on_event`` with the data of each server-sent event of ``GET path``, as long as they come.

        Raises ``UpstreamError`` when they end, or if the engine has none.
        """


class ServedModel(msgspec.Struct, frozen=True):
    """A model that an engine lists, with the capabilities that it reports."""

    name: str
    capabilities: Capabilities = UNKNOWN
    memory: int | None = None
    """The server's estimate of its bytes when loaded, if the server loads models itself."""
    proxied: bool = False
    """Whether a server that loads models itself only passes requests for this one on: it is ready without a load."""


class LoadedModel(msgspec.Struct, frozen=True):
    """A model that a server has loaded."""

    name: str
    memory: int | None = None
    """The bytes that it takes now; ``None`` if the server does not report them."""


class LoadNews(msgspec.Struct, frozen=True):
    """What a server says of one model by itself."""

    model: str
    text: str
    """For the log, such as ``loading: 40 %``."""
    settled: bool = True
    """Whether the model is now loaded or unloaded, or has failed. ``False`` while it makes progress."""


class ThinkingFields(msgspec.Struct, frozen=True):
    """How an engine takes what a chat says of thinking, beside ``reasoning_effort``.

    ``budget``: the field with the most tokens of reasoning; empty if there is none. ``level_in_template``: the level
    also stands in ``chat_template_kwargs``.
    """

    budget: str = ""
    level_in_template: bool = False


class Driver(ABC):
    """Knows how to query one kind of engine.

    One object serves all backends of its kind, so it keeps no state about any of them. A driver of a plain server needs
    these two methods. For further abilities of its engines, a driver also inherits from ``SupportsLaunch``,
    ``SupportsLoading``, ``SupportsSleep``, ``SupportsFigures``, ``SupportsContinuation``, ``SupportsCacheEvents``,
    ``SupportsHandOver``, ``SupportsBootstrap`` or ``KeepsCache``.
    """

    endpoints: Collection[str] = ()
    """The paths that its engines serve besides OpenAI's chats, completions and embeddings, such as ``/v1/messages``.

    The gateway translates requests for others, if there is a protocol for them.
    """

    idle_connections: int | None = None
    """The most idle connections that an engine may have for longer than a moment; ``None``, the default, for no limit.

    Set it if each of them occupies a thread of the engine.
    """

    @abstractmethod
    async def healthy(self, engine: EngineClient) -> bool:
        """Return whether the engine can serve requests now. Any exception counts as ``False``."""

    @abstractmethod
    async def models(self, engine: EngineClient) -> Sequence[ServedModel]:
        """Return the models that the engine serves now. Raise ``UpstreamError`` if it does not list them."""

    def thinking(self, spec: LaunchSpec | None) -> ThinkingFields:
        """Return how its engines take what a translated chat says of thinking. ``spec``: of a launched one."""
        return ThinkingFields()

    async def serves(self, engine: EngineClient, model: str) -> bool | None:
        """Return whether the engine serves a small request for ``model``; ``None`` if that is unknown.

        Called for an engine that failed requests although it passed its health check, before it gets requests again.
        Any exception counts as ``False``, and no answer within ``checks.timeout`` as ``None``.
        """
        return None


class SupportsLaunch(ABC):
    """A driver that knows how its engines are launched.

    A reload asks for launch lines in a thread.
    """

    Options: type[EngineOptions] = EngineOptions
    """The options of a launched model. The gateway decodes them strictly when it reads its configuration."""
    how_to_install: str = ""
    """How to install the engine's program, for an error message: ``brew install llama.cpp``."""

    @abstractmethod
    def command(self, spec: LaunchSpec) -> Sequence[str] | None:
        """Return the launch line of a managed engine; ``None`` if the model needs a ``command`` in its configuration.

        The gateway appends the model's ``args``.
        """

    def environment(self, spec: LaunchSpec) -> Mapping[str, str]:
        """Return environment variables for a managed engine. The model's ``env`` takes precedence."""
        return {}

    def why_not(self, spec: LaunchSpec) -> str:
        """Return why the engine cannot start, for example a missing file; empty if it may start.

        Called when the gateway reads its configuration, for engines on this machine. May look for files, but must not
        read them.
        """
        return ""

    def files(self, spec: LaunchSpec) -> Sequence[str]:
        """Return the files and folders that the engine will read where it is launched, as far as they are known.

        A launcher elsewhere looks for them before it starts the engine.
        """
        return (spec.path,) if spec.path.startswith("/") else ()

    def find_models(self, path: Path) -> Sequence[FoundModel]:
        """Return the models that this engine can serve from the file or folder ``path``, for ``enginehouse run``."""
        return ()

    def inspect(self, spec: LaunchSpec) -> ModelFacts:
        """Read the headers of the model's files. Called in a thread. The gateway logs and ignores an exception."""
        return ModelFacts()


class SupportsLoading(ABC):
    """A driver of servers that load and unload models on demand."""

    answers_when_loaded: bool = False
    """Whether ``load`` returns only when the model is loaded, so that ``loaded`` must list it soon after."""

    @abstractmethod
    async def load(self, engine: EngineClient, model: str) -> None:
        """Make the server load ``model``. May return before it is loaded: the gateway then calls ``loaded``.

        Raise ``NotEnoughMemory`` if the server lacks memory, else ``LoadFailed`` or ``UpstreamError``.
        """

    @abstractmethod
    async def unload(self, engine: EngineClient, model: str) -> None:
        """Make the server unload ``model``, if it is loaded. May return before it is unloaded."""

    @abstractmethod
    async def loaded(self, engine: EngineClient) -> Sequence[LoadedModel]:
        """Return the models that the server has loaded and that can take requests now."""

    async def load_problem(self, engine: EngineClient, model: str) -> LoadFailed | None:
        """Return why the server has given up the load that ``load`` has begun; ``None`` if it has not.

        The gateway asks as often as it calls ``loaded``, while it waits for the load.
        """
        return None

    async def follow_loads(self, engine: EventClient, on_news: Callable[[LoadNews], None]) -> None:
        """Call ``on_news`` whenever the server reports by itself that it loads or unloads a model.

        Runs until the gateway cancels it. Raise ``UpstreamError`` when the reports end: the gateway follows them again.
        Return if there are none: then the gateway knows of changes only because it asks regularly.
        """

    def is_not_loaded(self, status: int, body: bytes) -> bool:
        """Return whether this answer refuses a request because its model is not loaded.

        Then somebody else has unloaded it: the gateway loads it again, and sends the request once more.
        """
        return False

    def full_name(self, model: str) -> str:
        """Return the name under which a server lists ``model``, if it knows several names of one model."""
        return model


class SupportsSleep(ABC):
    """A driver of engines that can release their memory and keep running."""

    @abstractmethod
    async def sleep(self, engine: EngineClient) -> bool:
        """Make a ready engine release memory and keep running. Return ``False`` if it cannot."""

    @abstractmethod
    async def wake(self, engine: EngineClient) -> bool:
        """Wake a sleeping engine. Return ``False`` if it cannot. The engine is ready when ``healthy`` is true again."""

    async def sleep_as_launched(self, engine: EngineClient, spec: LaunchSpec) -> bool:
        """Do as ``sleep``, for an engine that was launched with ``spec``, whose options may decide how."""
        return await self.sleep(engine)

    async def wake_as_launched(self, engine: EngineClient, spec: LaunchSpec) -> bool:
        """Do as ``wake``, for an engine that ``sleep_as_launched`` has put to sleep."""
        return await self.wake(engine)


class KeepsCache(ABC):
    """A driver of engines that write their prefix cache into files, and read it again after another launch.

    The launch line must name ``LaunchSpec.cache_folder``, in which the files lie, if that is not empty.
    """

    @abstractmethod
    async def save_cache(self, engine: EngineClient) -> Mapping[str, int]:
        """Have a ready engine write its cache. Return the files in its folder, each with the number of its tokens.

        The first ones are the most useful: later ones are removed if together they are too large. The gateway waits
        only for a short time, and then stops the engine.
        """

    @abstractmethod
    async def restore_cache(self, engine: EngineClient, files: Sequence[str]) -> int:
        """Have an engine that has just become ready read these ``files``. Return the number of tokens.

        Raise ``UpstreamError`` if it refuses one.
        """

    def aside(self, body: bytes, slots: int) -> bytes:
        """Change the ``body`` of a request without a waiting client, so that the engine keeps its cache for others.

        ``slots``: how many requests the engine works on at once; 0 if that is unknown. By default, ``body`` stays.
        """
        return body


class SupportsFigures:
    """A driver of engines that report about themselves. It implements the methods for what they report."""

    metrics_path: str = "/metrics"
    """The path of the engine's own metrics. With ``{model}`` in it, each loaded model has a page of its own."""

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


class SupportsContinuation(ABC):
    """A driver of engines that can continue a stream which another engine has begun."""

    streams: StreamTraits = StreamTraits()
    """The properties of the engine's streams."""

    def continuable(self, path: str, body: bytes) -> bytes:
        """Return ``body`` with fields that add the tokens to the stream, so that another engine can continue it.

        ``added`` of its ``streams`` names the fields that this adds to the events. By default, the body is unchanged.
        """
        return body

    async def fill_in(self, engine: EngineClient, answer: PartialAnswer) -> PartialAnswer:
        """Return ``answer`` with the facts that its stream lacked, from ``engine``, which will continue it.

        Raise ``UpstreamError`` if the engine does not have them either.
        """
        return answer

    @abstractmethod
    def continuation(self, answer: PartialAnswer) -> Continuation:
        """Return the request that makes the engine continue where ``answer`` ends.

        If the engine refuses an exact one, the gateway calls this once more with ``ids`` as ``None``. Raise
        ``CannotContinue`` with the reason if there is none.
        """

    def following(self, continuation: Continuation, request: str) -> Continuation:
        """Return ``continuation`` for an engine to which another engine has moved the running request.

        The engine begins no new request, and answers with the rest. ``request`` is the request's id at the engines.
        Raise ``CannotContinue`` with the reason if the engine cannot; the stream then still depends on the other
        engine.
        """
        raise CannotContinue("The engine cannot be asked for the rest of a request that came from another one")


class SupportsCacheEvents(ABC):
    """A driver of engines that publish what their prefix caches store and evict."""

    def check_cache_events(self, settings: KvEventSettings) -> None:
        """Raise ``ConfigError``, without a key, if the events cannot be followed."""

    @abstractmethod
    def follow_cache(
        self, backend: str, settings: KvEventSettings, on_events: Callable[[Sequence[Any]], None]
    ) -> CacheFollower:
        """Begin to call ``on_events`` with the events of the engine of ``backend``, in their order.

        Each is a ``CacheEvent`` of the kit. Called on the running event loop.
        """

    async def tokenize(self, engine: EngineClient, model: str, body: bytes) -> PromptTokens | None:
        """Return the tokens of the prompt of a request with this ``body``; ``None`` if the engine does not tell them.

        ``model``: the engine's name for the model. Any ``RequestError`` counts as ``None``.
        """
        return None


class SupportsHandOver:
    """A driver of engines that can read a prompt and hand its KV cache over to another one.

    The bundled hand-over passes vLLM's ``kv_transfer_params`` from the first engine to the second one, so there is no
    method.
    """


class SupportsBootstrap(SupportsHandOver, ABC):
    """A driver of engines of which two get a request at the same time, each with the fields of ``bootstrap``.

    The prefill engine then hands the KV cache over to the decode engine by itself. Neither serves a request alone.
    """

    @abstractmethod
    async def bootstrap_port(self, engine: EngineClient) -> int | None:
        """Return the port at which other engines fetch prompts that ``engine`` has read; ``None`` for their default.

        Called before the first request that is handed over, and again after one has failed. Raise ``UpstreamError`` if
        the engine reads no prompts for others.
        """

    @abstractmethod
    def bootstrap(self, body: bytes, host: str, port: int | None) -> bytes:
        """Return ``body`` for both engines of a hand-over; ``host`` and ``port`` are those of the prefill engine."""
