"""Hand-overs: one engine reads the prompt of a request, and another one answers it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol

from enginehouse.domain.replica import Candidate, Route
from enginehouse.domain.requirements import Requirements
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.drivers import EngineClient, EngineResponse


class PairChoice(NamedTuple):
    """How the gateway chooses for one request. Nothing of it changes anything.

    - ``drivers``: of every backend, by its name.
    - ``find``: a route to one engine, but to none of these replicas. Raises a ``RequestError`` if there is none.
    - ``pick_decode``: the replica that the strategy has answer, but none of these, once the chosen one of that route
      has read the prompt. ``None``, or the chosen one itself, if one engine does both.
    """

    requirements: Requirements
    drivers: Mapping[str, DriverSupport]
    find: Callable[[tuple[str, ...]], Route]
    pick_decode: Callable[[Route, tuple[str, ...]], Candidate | None]


class PrefillEngine(Protocol):
    """The engine that reads the prompt of one request to ``path``. It counts the request until the hand-over ends.

    - ``drivers``: of every backend, by its name. A reload may have removed that of either engine.
    - ``host``: of its address. ``process``: another object after the engine was started again. ``client``: for
      questions to the engine, within five seconds. ``take`` sets the three of them.
    """

    path: str
    drivers: Mapping[str, DriverSupport]
    host: str
    process: object
    client: EngineClient

    async def take(self) -> None:
        """Wait for a slot, if the engine has a queue. Call this first, and once.

        Raises a ``RequestError`` if the engine cannot be asked.
        """

    async def ask(self, body: bytes) -> EngineResponse:
        """Send the request with ``body``, which has the other engine's name for the model. Returns the whole answer.

        Counts one of 200 for the engine. Raises ``UpstreamError`` and ``UpstreamTimeout``, which count against it, and
        ``Overloaded`` if the gateway has no room for the answer.
        """

    def failed(self, why: str) -> None:
        """Count another failure against the engine."""


GoOn = Callable[[], Awaitable[None]]
"""What goes on at the engine that reads the prompt, while the other one answers."""


class HandOver(ABC):
    """Has one engine read the prompt of a request, and another one answer it. A gateway has one at most.

    The gateway asks it for requests whose strategy overrides ``pick_decode``.
    """

    @abstractmethod
    def route(self, choice: PairChoice, failed: tuple[str, ...]) -> Route:
        """Return a route that ``choice.find`` has found, to none of the replicas that ``failed`` the request.

        For two engines, ``dataclasses.replace`` it: ``chosen`` answers, after ``prefill`` has read the prompt. Raise a
        ``RequestError`` if no engine can serve the request.
        """

    @abstractmethod
    async def prepare(self, prefill: PrefillEngine, route: Route, body: bytes) -> tuple[bytes, GoOn | None]:
        """Prepare a request with ``body`` along a ``route`` with two engines.

        Return the body for the engine that answers, and what goes on at the other one meanwhile, which is cancelled
        when the request ends. If either raises a ``RequestError``, the gateway sends the request along another route;
        an ``InvalidRequest`` of what goes on is the client's answer. The gateway also takes another route after twice
        ``timeouts.first_byte``, or after an hour if that is 0. The wait in ``take`` does not count.
        """
