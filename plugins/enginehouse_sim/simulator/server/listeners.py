"""The interfaces between the engine and the listeners to its requests, and several listeners to one request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from enginehouse import RequestError
from enginehouse_sim.simulator.domain.outputs import EngineCoreOutput
from enginehouse_sim.simulator.domain.request import RequestStatus


class EngineFailed(RequestError):
    """The engine failed, and serves nothing until it is restarted."""


class RequestListener(Protocol):
    """Follows one request; times are seconds on the engine's clock."""

    def on_scheduled(self, now: float) -> None:
        """The first step of the request began."""

    def on_output(self, output: EngineCoreOutput, now: float) -> None:
        """A step made this output. It is the last one if it has a ``finish_reason``."""

    def on_error(self, error: RequestError) -> None:
        """The request failed; no output follows."""


class RequestLocation(Protocol):
    """Where a request runs: the engine here, or a migration that took it to another one."""

    def finish_requests(
        self, request_ids: Sequence[str], status: RequestStatus = RequestStatus.FINISHED_ABORTED
    ) -> None:
        """Finish requests at once, and free their resources. No listener is called; unknown ids are ignored."""


class Followers:
    """Passes the events of a request on to its followers. ``location``: where the request runs.

    The request finishes when its last follower leaves.
    """

    def __init__(self, request_id: str, location: RequestLocation) -> None:
        self.location = location
        self._request_id = request_id
        self._followers: list[Follower] = []

    def join(self, follower: Follower) -> None:
        """Pass all further events to ``follower`` as well."""
        self._followers.append(follower)

    def leave(self, follower: Follower, status: RequestStatus) -> None:
        """Pass no more events to ``follower``. If it was the last one, the request finishes with ``status``."""
        if follower not in self._followers:
            return
        self._followers.remove(follower)
        if not self._followers:
            self.location.finish_requests((self._request_id,), status)

    def on_scheduled(self, now: float) -> None:
        for follower in tuple(self._followers):
            follower.listener.on_scheduled(now)

    def on_output(self, output: EngineCoreOutput, now: float) -> None:
        for follower in tuple(self._followers):
            follower.listener.on_output(output, now)

    def on_error(self, error: RequestError) -> None:
        for follower in tuple(self._followers):
            follower.listener.on_error(error)


class Follower:
    """The place of one listener among ``followers``. For the listener it is the request's location."""

    listener: RequestListener

    def __init__(self, followers: Followers) -> None:
        self.followers = followers

    def begin(self, listener: RequestListener) -> None:
        """Pass all further events to ``listener``."""
        self.listener = listener
        self.followers.join(self)

    def finish_requests(
        self, request_ids: Sequence[str], status: RequestStatus = RequestStatus.FINISHED_ABORTED
    ) -> None:
        """Leave. Other followers keep the request running."""
        self.followers.leave(self, status)
