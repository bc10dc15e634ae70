"""Protocols: what clients speak where engines speak OpenAI's chats, completions and embeddings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec

from enginehouse import RequestError
from enginehouse.drivers import EngineClient, ThinkingFields
from enginehouse.protocols import PageRequest, no_engine
from enginehouse.requests import Tokens

__all__ = [
    "ChatPiece",
    "Envelope",
    "Forwarded",
    "Native",
    "NativeAnswer",
    "Protocol",
    "ProtocolRequest",
    "Translation",
    "TypedAnswer",
]

Envelope = Mapping[str, Any]
"""An error object as OpenAI has it: ``{"error": {"message", "type", "code", "param", ...}}``."""


class ProtocolRequest(msgspec.Struct, frozen=True):
    """A client's request, as far as a protocol reads it."""

    path: str
    body: bytes
    serves: Callable[[str], bool]
    """Whether the gateway knows a model of that name."""
    caller: str = ""
    """The name of the client's key; empty if no keys are set."""
    backends: Sequence[str] = ()
    """In ``native``: those that may serve it."""
    engine: Callable[[str], EngineClient] = no_engine
    """In ``native``: returns a client of a backend's engine. It raises ``NotFound`` for an unknown backend."""


class NativeAnswer(ABC):
    """Reads an answer with a status below 300 that is forwarded as it comes, and has a form of the protocol's own.

    The gateway itself knows the forms of OpenAI's and Anthropic's answers.
    """

    tokens: Tokens | None = None
    """Those that the engine has counted, once the last piece is read."""
    error: RequestError | None = None
    """The engine's own error, with which the answer has ended."""

    @abstractmethod
    def read(self, piece: bytes, *, last: bool) -> None:
        """Read a piece. Raise ``RequestError`` at the last one if the answer is not whole: it ends as a broken one."""


class Native(NamedTuple):
    """A request that an engine gets as it is, because it speaks the client's protocol itself.

    ``backend``: the only one that may serve it; empty for any. ``watch`` is called with the name of the backend that
    serves it, and with the first pieces of a stream, each of whole events, or with any other answer once it is whole.
    It returns whether it has seen enough, and sees no more than about 1 MiB. ``answer`` reads all of it.
    """

    backend: str = ""
    watch: Callable[[str, bytes], bool] | None = None
    answer: NativeAnswer | None = None


class Forwarded(NamedTuple):
    """A request of OpenAI's that came to another path: the client gets the answer as it is."""

    path: str
    body: bytes


class Translation(ABC):
    """One client's request as a request of OpenAI's, and the way back of its answer.

    The gateway sends ``body`` to the engine's ``path``. It routes, retries, continues and moves this request as any
    other, and passes what comes back through ``answer``, or through ``event`` and ``end``.
    """

    path: str
    body: bytes
    stream_type: ClassVar[bytes] = b"text/event-stream; charset=utf-8"
    """The content type of streams."""
    keep_alive: float | None = None
    """The idle seconds after which the gateway may stop an engine that it launched for the model, in place of its
    ``ttl``; ``None`` if the request does not say so."""
    loads: bool = False
    """Whether the client only wants the model loaded, or with a ``keep_alive`` of 0 unloaded. No interceptor answers
    that. If the model to unload is not loaded, no engine is asked, and ``answer`` gets an empty object."""

    def body_for(self, thinking: ThinkingFields) -> bytes:
        """Return ``body`` for an engine that takes ``thinking`` so. Not called if an interceptor has changed it."""
        return self.body

    @abstractmethod
    def answer(self, answer: dict[str, Any]) -> bytes:
        """Return the client's answer, given the engine's whole one."""

    def event(self, event: dict[str, Any]) -> bytes:
        """Return what the client gets for one event of the engine's stream, which may be nothing."""
        return b""

    def end(self) -> bytes:
        """Return the end of the client's stream, once the engine's has ended normally."""
        return b""

    def error_event(self, status: int, envelope: Envelope) -> bytes:
        """Return the end of a stream that broke."""
        return b""

    def ping(self) -> bytes:
        """Return what a client of a silent stream ignores. Streams of events get a comment if it is empty."""
        return b""


class ChatPiece(NamedTuple):
    """What one event of a stream says, as a piece of a chat.

    ``finish``: ``stop`` or ``length``, once the text has ended. ``usage``: counts by OpenAI's names. ``other``: what it
    has beside text, such as ``reasoning``: a stream with that is not continued.
    """

    text: str = ""
    finish: str | None = None
    usage: Mapping[str, Any] | None = None
    other: str = ""


class TypedAnswer(ABC):
    """The stream of an engine that speaks the protocol itself, which another engine can continue as a chat.

    It has events with types. The gateway forwards them as they come, and reads them only when their engine breaks off
    or the stream is moved. Then this writes such events in place of the chat's.
    """

    is_begun: bool = False
    """Whether the client has the first event."""

    @abstractmethod
    def read(self, event: dict[str, Any]) -> ChatPiece | None:
        """Return what ``event`` says; ``None`` for the last one.

        Raise ``ValueError``, ``LookupError`` or ``TypeError`` for an event whose stream cannot be continued.
        """

    @abstractmethod
    def text(self, text: str) -> bytes:
        """Return the events that add ``text``."""

    @abstractmethod
    def end(self, text: str | None, finish: str, stopped_at: str | None, usage: Mapping[str, Any]) -> bytes | None:
        """Return the events that end the stream; ``None`` if they would have to repeat a text that is not known.

        ``text``: all that the stream says; ``None`` if that was too long to be kept. ``finish``: as in ``ChatPiece``,
        or empty. ``stopped_at``: the stop string that ended it.
        """


class Protocol(ABC):
    """A client's protocol. It serves all requests, so it keeps no state about any of them, except for ``open``."""

    name: ClassVar[str]
    """Named in the header ``x-enginehouse-protocol``."""
    paths: Sequence[str]
    """The paths whose ``POST`` it translates, perhaps with parts such as ``{model:path}``, as Starlette's have. Where
    all engines of a model speak a path themselves, the gateway passes the bytes and does not ask."""
    pages: Sequence[tuple[str, str]] = ()
    """Methods and paths of what it answers itself, such as a list of models."""
    other_paths: Sequence[str] = ()
    """What its clients also ask for. At all paths of a protocol and below them, the gateway's errors have its form."""

    def open(self, folder: Path) -> None:
        """Take the gateway's state folder, once, before any request, to keep what outlives a process.

        A gateway with workers has an object in each of its processes, and so may two gateways while one takes over from
        the other; all of them have the same folder.
        """

    @abstractmethod
    def translate(self, request: ProtocolRequest) -> Translation | Forwarded | Awaitable[Translation]:
        """Return the request as one of OpenAI's. Raise ``InvalidRequest`` for what OpenAI's protocol cannot express.

        Return an awaitable only for what must be waited for, such as a conversation that is kept in a file.
        """

    def native(self, request: ProtocolRequest) -> Native | Awaitable[Native]:
        """Return how a request is forwarded to engines that all speak its path themselves. Raise ``RequestError``."""
        return Native()

    def typed_answer(self, path: str) -> TypedAnswer | None:
        """Return what reads an engine's own stream of ``path``; ``None`` if such a stream cannot be continued."""
        return None

    @abstractmethod
    def error(self, status: int, envelope: Envelope) -> bytes:
        """Return the body of an error, in the client's form."""

    async def answer_page(self, request: PageRequest) -> bytes:
        """Return the JSON of one of ``pages``; by default what ``page`` returns. Raise ``RequestError``."""
        return self.page(request.method, request.path, request.body, request.models)

    def page(self, method: str, path: str, body: bytes, models: Sequence[Mapping[str, Any]]) -> bytes:
        """Return the JSON of one of ``pages``.

        ``models``: the entries of ``GET /v1/models`` that the caller may use. Raise ``RequestError``, such as
        ``ModelNotFound``.
        """
        raise NotImplementedError
