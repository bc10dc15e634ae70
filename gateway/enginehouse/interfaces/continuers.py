"""Continuers: keep streams alive whose engine breaks, or which must leave it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from enginehouse.domain.errors import CannotContinue
from enginehouse.domain.replica import Candidate
from enginehouse.domain.request_record import StreamTokens
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.drivers import EngineClient, SupportsContinuation

ContinuationWay = Literal["tokens", "text", "restart"]
"""How an engine continues a stream: after its tokens, after its text, or from the beginning."""
T = TypeVar("T")


class AnswerDiffers(Exception):
    """A continuation does not begin with what the client has already."""


class MemoryShare(Protocol):
    """The share of one stream or answer in the memory for engines' answers (``server.max_engine_memory``)."""

    size: int
    """The bytes that are counted."""

    def take(self, size: int) -> str:
        """Count ``size`` more bytes. If they are too many, count nothing any more, and return the reason."""

    def give_back(self) -> None:
        """Count all bytes out, because they are no longer held."""


NewShare = Callable[[int], MemoryShare]
"""Makes a share that may take so many bytes."""


class PieceMeter(Protocol):
    """Counts the pieces of a stream that have passed."""

    pieces: list[bytes]

    def read(self) -> None:
        """Count ``pieces``, and drop them."""


class Translator(ABC):
    """Turns the answer to a continuation into the client's events, so that the client notices only a gap.

    - ``path``: the endpoint that is asked. ``tokens``: how many of the answer's tokens the question repeats.
    - ``has_begun``: something that is new to the client has come.
    """

    path: str
    tokens: int
    has_begun: bool = False

    @abstractmethod
    def translate(self, piece: bytes) -> Iterator[bytes]:
        """The client's events for whole events of the new engine.

        Raises ``AnswerDiffers`` if they do not continue where the client's stream ends, and ``ValueError`` for an event
        that cannot be understood.
        """


class Question(NamedTuple):
    """A request for the rest of a stream.

    ``translator``: of its answer; ``None`` if the client has nothing of the stream, so that any answer may pass.
    """

    path: str
    body: bytes
    way: ContinuationWay
    translator: Translator | None = None


class Rest(ABC):
    """The rest of a stream that an engine broke off. At one other engine, several ways to ask for it are tried."""

    @abstractmethod
    async def ask(self, candidate: Candidate, driver: SupportsContinuation, engine: EngineClient) -> Question:
        """The next way at ``candidate``. Raises ``CannotContinue`` if none is left, or what the engine raises."""


class KeptStream(ABC):
    """What is kept of a stream that another engine could go on with.

    - ``pieces``: whole events that have passed and are not read yet. The gateway adds to this list, which stays the
      same object, and calls ``read`` once they have more than ``most`` bytes.
    - ``cut``: makes the client's events of the engine's, if they differ; it returns nothing for events that are not for
      the client.
    - ``meter``: counts what has passed; set by the gateway.
    - ``ended``: the last event has passed.
    """

    pieces: list[bytes]
    most: int = 64 * 1024
    cut: Callable[[bytes], bytes] | None = None
    meter: PieceMeter | None = None
    ended: bool = False

    @abstractmethod
    def take(self, piece: bytes) -> bytes:
        """Keep whole events, or a part of an event that is too large for one piece; returns what the client gets."""

    @abstractmethod
    def read(self) -> None:
        """Read and drop ``pieces``, which ``meter`` has counted then."""

    @abstractmethod
    def count(self) -> None:
        """Let ``meter`` count all that has passed."""

    @abstractmethod
    def release(self) -> None:
        """Drop everything: the request has ended."""

    @abstractmethod
    def tokens(self) -> StreamTokens:
        """The tokens of the stream, as far as they are known."""

    # --- if its engine breaks

    @abstractmethod
    def ending(self) -> bytes | None:
        """The events that end the stream if nothing is left to ask for; ``None`` if there is a rest."""

    @abstractmethod
    def may_go_on(self) -> bool:
        """Whether another engine may go on with the stream, continued or asked again."""

    # --- if it moves

    @abstractmethod
    def why_not_movable(self) -> str:
        """Why the stream must stay where it is; empty if it may move."""

    @abstractmethod
    def saved(self, candidate: Candidate) -> bytes | None:
        """What ``Continuer.restore`` needs in another process to continue the stream of ``candidate``.

        ``None`` if it cannot be continued there.
        """


class Gathering(ABC):
    """Makes one answer of the events of a stream, for a client that asked for no stream.

    ``error``: the data of an error event, once ``body`` was asked for.
    """

    error: dict[str, Any] | None = None

    @abstractmethod
    def as_stream(self, body: bytes) -> bytes:
        """The client's request ``body``, as one for a stream."""

    @abstractmethod
    def add(self, piece: bytes) -> None:
        """Take whole events.

        Raises ``ValueError`` for one that is not a JSON object, and ``UpstreamError`` if the answer is too large.
        """

    @abstractmethod
    def body(self) -> bytes:
        """The answer as the engine would have sent it without a stream. Raises as ``add`` does."""

    @abstractmethod
    def release(self) -> None:
        """Drop everything."""


class StreamMove(Protocol):
    """The move of one live stream to ``candidate``. Until ``cut``, its source serves it.

    - ``driver`` and ``engine``: of the candidate.
    - ``engine_request``: the request's id there, if engines have moved it there themselves; else empty.
    - ``estimated_tokens``: of the client's prompt.
    - ``timeout``: the time limit of each half of the move (``rescheduling.migrate_timeout``), in seconds.
    """

    candidate: Candidate
    driver: SupportsContinuation
    engine: EngineClient
    engine_request: str
    estimated_tokens: int
    timeout: float

    def now(self) -> float:
        """The seconds of the gateway's clock."""

    def check(self) -> None:
        """Raise ``CannotContinue`` with the reason if the stream stays where it is."""

    async def reserve(self) -> None:
        """Take a place in the queue of the candidate. Raises ``CannotContinue`` if it is full."""

    async def unless_ended(self, step: Coroutine[Any, Any, T]) -> T | None:
        """The result of ``step``. Raises ``CannotContinue`` at once if the stream ends meanwhile."""

    async def cut(self, ask: Callable[[], Awaitable[Question]]) -> float:
        """Read no more of the source, and have the candidate answer what ``ask`` returns.

        Returns for how many seconds the client had to wait. Raises ``CannotContinue`` if the candidate fails; the
        source then serves the stream again.
        """


class Continuer(ABC):
    """Keeps the streams that pass, so that another engine can go on with them. A gateway has one at most.

    ``rule``, as configured: ``continue`` or ``restart``.
    """

    @abstractmethod
    def keep(
        self,
        path: str,
        body: bytes,
        driver: SupportsContinuation,
        share: NewShare,
        protocol: Any = None,
        knows: Callable[[str], bool] | None = None,
    ) -> tuple[KeptStream | None, bytes]:
        """What keeps a stream, and the request for its engine: ``body``, or more of it.

        ``None`` for a stream that is not kept. ``protocol``: the client's, a ``Protocol`` of the kit, if the stream is
        no chat and no completion, but has events with types. ``knows``, given with it: whether the gateway knows a
        model of that name.
        """

    @abstractmethod
    def rest(self, kept: KeptStream, rule: str) -> Rest:
        """What asks another engine for the rest of a stream that ``keep`` or ``restore`` has returned."""

    async def move(self, kept: KeptStream, move: StreamMove) -> None:
        """Have another engine go on with a stream that is kept. It is moved once ``StreamMove.cut`` has returned.

        Raises a ``RequestError`` if it stays where it is.
        """
        raise CannotContinue("No plugin moves live streams")

    def restore(
        self, path: str, saved: bytes, drivers: Mapping[str, DriverSupport], share: NewShare
    ) -> tuple[KeptStream, str]:
        """The stream that another process has ``saved``, and its model. ``drivers``: by backend.

        Raises ``CannotContinue``.
        """
        raise CannotContinue("The gateway that had begun it kept it in another way")

    def gathered(self, path: str, body: bytes, share: NewShare) -> Gathering | None:
        """What makes one answer of a stream; ``None`` if the stream of such a request could not be continued."""
        return None
