"""Several listeners to one request: the engine that it came from, and clients that joined later."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse import RequestError
from enginehouse_sim.simulator.domain.outputs import EngineCoreOutput
from enginehouse_sim.simulator.domain.request import RequestStatus
from enginehouse_sim.simulator.server.engine.listener import RequestListener, RequestLocation


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
