"""Middleware: what stands between clients and their requests to engines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from enginehouse.domain.errors import RequestError
from enginehouse.domain.request import Headers
from enginehouse.domain.requirements import InferenceRequest
from enginehouse.interfaces.authenticators import AdmittedCaller
from enginehouse.interfaces.drivers import EngineClient
from enginehouse.interfaces.protocols import TranslatedRequest
from enginehouse.interfaces.services import Configured
from enginehouse.relay.engine_memory import EngineMemory
from enginehouse.relay.response_writer import OpenExchange, ResponseWriter
from enginehouse.telemetry.answer_meter import NO_ANSWER, AnswerSize


class MiddlewareFacts(NamedTuple):
    """What middleware knows of its gateway.

    - ``configured``: the configuration, with interceptors and other plugins that it names.
    - ``memory``: counts what is held of engines' answers.
    - ``now``: the gateway's clock in seconds.
    - ``intercepted``: counts what became of a request, by the interceptor's type: it was ``answered``, ``changed`` or
      ``joined``.
    - ``native``: the backends that may serve a model, if every replica of it speaks the protocol of a path itself, and
      no interceptor wants to read the request; else none.
    - ``knows``: whether requests may name a model. ``engine``: as in ``PageRequest``.
    """

    configured: Configured
    memory: EngineMemory
    now: Callable[[], float]
    intercepted: Callable[[str, str], None]
    native: Callable[[str, str], Sequence[str]]
    knows: Callable[[str], bool]
    engine: Callable[[str], EngineClient]


class Opening(NamedTuple):
    """A request that begins to arrive.

    - ``protocol``: the client's, a ``Protocol`` of the kit; ``None`` for OpenAI's. ``translation``: from it, once it is
      translated.
    - ``backend``: the only one that may serve it; empty for any.
    - ``decoded``: the request, if its body has been read already, and will not be changed.
    """

    path: str
    headers: Headers
    protocol: Any = None
    translation: TranslatedRequest | None = None
    backend: str = ""
    decoded: InferenceRequest | None = None


class OpenRequest(OpenExchange, Protocol):
    """A request to an engine, as middleware sees it. It is live from the moment at which it is opened until it ends."""

    @property
    def request_id(self) -> bytes:
        """The value of ``x-request-id``. Clients choose it, so two live requests may have the same."""

    @property
    def has_ended(self) -> bool:
        """Whether its record is made."""

    def admit(self, body: bytes, caller: AdmittedCaller | None) -> bytes:
        """Take a request that no engine gets, within the limits of ``caller``. Returns header lines that say these.

        Raises ``RequestError``.
        """

    def give_back(self) -> None:
        """Undo ``admit``."""

    def refuse(self, error: RequestError, caller: AdmittedCaller | None) -> None:
        """End a request of ``caller`` with ``error``, before an engine has got it."""

    def fail_alone(self, error: Exception) -> None:
        """End the request because of ``error``, which is handled now."""

    def end(self, status: int, outcome: str, error: RequestError | None = None, answer: AnswerSize = NO_ANSWER) -> None:
        """End a request that no engine got: its client has an answer with this ``status``, of the size ``answer``.

        ``outcome``: for its record. ``error``: the one that the client got.
        """


class Middleware(ABC):
    """Stands between clients and their requests, and carries out what plugins of another kind decide.

    By ``serves``, these are ``interceptors``, guards among them, if the configuration names any; or ``protocols``, for
    requests at their paths. A gateway has one for each at most; the protocol comes first.
    """

    serves: ClassVar[Literal["interceptors", "protocols"]] = "interceptors"

    @abstractmethod
    def use(self, gateway: MiddlewareFacts) -> None:
        """Take what it works with, once, before any request."""

    @abstractmethod
    def open(
        self, opening: Opening, writer: ResponseWriter, inner: Callable[[ResponseWriter, Opening], OpenExchange]
    ) -> OpenExchange:
        """Return the exchange of a request, which gets what comes from the client.

        ``inner``, called once, opens the request, whose answer comes to the writer that it gets. What it returns is an
        ``OpenRequest`` for middleware of interceptors.
        """

    def check_time(self, now: float) -> None:
        """Act on what is due at ``now``, in seconds of the gateway's clock. Called every 100 ms with a live request."""
