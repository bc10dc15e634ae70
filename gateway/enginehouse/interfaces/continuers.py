"""Continuers: keep streams alive whose engine breaks, or which must leave it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from enginehouse.domain.errors import CannotContinue
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.drivers import SupportsContinuation
from enginehouse.interfaces.kept_streams import Gathering, KeptStream, NewShare, Rest
from enginehouse.interfaces.moving_streams import StreamMove
from enginehouse.interfaces.protocols import Protocol


class Continuer(ABC):
    """Keeps the streams that pass, so that another engine can go on with them. A gateway has one at most.

    ``rule``, as configured: ``continue`` or ``restart``.
    """

    @abstractmethod
    def keep(
        self, path: str, body: bytes, driver: SupportsContinuation, share: NewShare
    ) -> tuple[KeptStream | None, bytes]:
        """What keeps the stream of a chat or a completion, and the request for its engine: ``body``, or more of it.

        ``None`` for a stream that is not kept.
        """

    def keep_typed(
        self,
        path: str,
        body: bytes,
        driver: SupportsContinuation,
        share: NewShare,
        protocol: Protocol,
        knows: Callable[[str], bool],
    ) -> KeptStream | None:
        """As ``keep``, for a stream whose events have types, as the client's ``protocol`` writes them.

        ``knows``: whether the gateway knows a model of that name.
        """
        return None

    @abstractmethod
    def rest(self, kept: KeptStream, rule: str) -> Rest:
        """What asks for the rest of a stream that ``keep``, ``keep_typed`` or ``restore`` has returned."""

    async def move(self, move: StreamMove) -> None:
        """Have another engine go on with a stream. It is moved once ``StreamMove.cut`` has returned.

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
