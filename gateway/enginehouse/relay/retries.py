"""What becomes of a request that an attempt did not serve."""

from __future__ import annotations

from typing import Protocol

from enginehouse.domain.errors import ReplicaGone, RequestError, UpstreamTimeout
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.route import Route
from enginehouse.relay.attempt import Attempt
from enginehouse.relay.owner import Owner
from enginehouse.relay.tries import Tries


class Request(Protocol):
    """An exchange whose client has nothing of an engine's answer yet."""

    requirements: Requirements | None

    @property
    def repeatable(self) -> bool:
        """Whether it may reach an engine twice."""

    def decide(self, needs: Requirements, failed: tuple[str, ...]) -> Route:
        """Its route, to none of the replicas that ``failed``. Raises ``RequestError`` if there is none."""

    def body_for(self, route: Route) -> bytes:
        """Its body as the engine there gets it. Raises ``InvalidRequest`` if that cannot be made."""

    def send(self, route: Route, body: bytes, waiting_since: float | None = None) -> None:
        """Attempt to have it served there; ``waiting_since`` is when it began to wait, now if left out."""

    def fail(self, error: RequestError) -> None:
        """Answer it with an error."""


class Retries:
    """Finds another replica for one request, or the same one once more where that is launched again for it."""

    __slots__ = ("_owner", "_request", "_tries")

    def __init__(self, owner: Owner, request: Request) -> None:
        self._owner = owner
        self._request = request
        self._tries = Tries()

    def elsewhere(self, attempt: Attempt) -> bool:
        """Try a replica that has not failed the request; ``False`` if there is none."""
        if attempt.sent_at and not self._request.repeatable:
            return False
        tries = self._tries.elsewhere(attempt.route.chosen.replica, self._owner.max_retries)
        if not self._route_again(attempt, tries):
            return False
        self._owner.retried(attempt.upstream.name)
        return True

    def lost(self, attempt: Attempt, error: RequestError) -> None:
        """The engine failed the request. One that is launched may have ended, and be had again."""
        if self.elsewhere(attempt):
            self._owner.fleet.failed(attempt.upstream.name, error.message)
        elif isinstance(error, UpstreamTimeout) or self._after_end(attempt) is None:
            self.give_up(attempt, error)
        else:
            attempt.find_out(error)

    def found_out(self, attempt: Attempt, error: RequestError, *, ended: bool) -> None:
        """It did end, or did not."""
        if not (ended and self._route_again(attempt, self._after_end(attempt))):
            self.give_up(attempt, error)
        elif attempt.sent_at:
            self._owner.retried(attempt.upstream.name)

    def turned_away(self, attempt: Attempt, error: RequestError) -> None:
        """The host did not let the request through to the engine."""
        is_gone = isinstance(error, ReplicaGone)
        if not (is_gone and self._route_again(attempt, self._tries.send_back())) and not self.elsewhere(attempt):
            self._request.fail(error)

    def give_up(self, attempt: Attempt, error: RequestError) -> None:
        """The request fails, and its engine has failed it."""
        self._owner.fleet.failed(attempt.upstream.name, error.message)
        self._request.fail(error)

    def _after_end(self, attempt: Attempt) -> Tries | None:
        if attempt.place is None or (attempt.sent_at and not self._request.repeatable):
            return None
        if attempt.sent_at:
            return self._tries.resend(attempt.route.chosen.replica, self._owner.max_retries)
        return self._tries.send_back()

    def _route_again(self, attempt: Attempt, tries: Tries | None) -> bool:
        """Leave the attempt for another one, if there is a route. Who was not sent yet has waited all the time."""
        request, place = self._request, attempt.place
        assert request.requirements is not None
        if tries is None:
            return False
        try:
            route = request.decide(request.requirements, tries.failed)
            body = request.body_for(route)
        except RequestError:
            return False
        attempt.give_up()
        attempt.leave()
        self._tries = tries
        request.send(route, body, None if place is None or attempt.sent_at else place.ticket.arrived)
        return True
