"""One request on its way through a virtual gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from enginehouse.domain.errors import RequestError
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.route import Route
from enginehouse.relay.queue_slot import QueueSlot
from enginehouse.relay.retrying.retries import FailedAttempt, Outcome, RetryState, SendAgain, decide

if TYPE_CHECKING:
    from enginehouse.app.virtual.virtual_gateway import VirtualGateway

_UNTRIED = RetryState()


class VirtualRequest:
    """Takes a request through the decisions of the gateway, as the relay would.

    ``route`` is its current route, or ``None``; ``began`` its arrival on the gateway's clock; ``subject`` belongs to
    the caller.
    """

    __slots__ = ("_gateway", "_sent_at", "_slot", "_state", "began", "id", "requirements", "route", "subject")

    def __init__(self, gateway: VirtualGateway, id: str, requirements: Requirements, subject: Any) -> None:
        self._gateway = gateway
        self._slot: QueueSlot | None = None
        self._state = _UNTRIED
        self._sent_at = 0.0
        self.id = id
        self.requirements = requirements
        self.subject = subject
        self.route: Route | None = None
        self.began = gateway.now()

    # --- from the caller, which plays the engine

    def answered(self) -> None:
        """The engine began to answer."""
        gateway, route = self._gateway, self.route
        assert route is not None
        gateway.fleet.succeeded(route.chosen.backend)
        route.chosen.load.answered((gateway.now() - self._sent_at) * 1000)

    def ended(self, status: int = 200) -> None:
        """The answer has ended, with ``status``."""
        self._release()
        del self._gateway.live[self.id]
        self._gateway.finished(self, status)

    def moved(self, route: Route, slot: QueueSlot | None) -> None:
        """The request is now at the replica of ``route``, where it has ``slot``."""
        self._release()
        self.route, self._slot = route, slot
        route.chosen.load.begin()

    # --- from the gateway

    def start(self) -> None:
        """Route the request for the first time."""
        try:
            route = self._find_route(())
        except RequestError as error:
            self._refused(error)
        else:
            self._send(route, None)

    def granted(self) -> None:
        """Its queue lets it go."""
        self._sent_at = self._gateway.now()
        self._gateway.live[self.id] = self
        self._gateway.engines.serve(self)

    def rejected(self, error: RequestError) -> None:
        """Its queue refuses it: another replica may serve it."""
        slot, route = self._slot, self.route
        assert slot is not None
        assert route is not None
        waiting_since = slot.ticket.arrived
        failed = FailedAttempt(
            Outcome.of_queue(error, slot.joined_load),
            route.chosen.replica,
            sent=False,
            repeatable=True,
            launched=slot.launched,
        )
        decision = decide(failed, self._state, self._gateway.max_retries, self._find_other)
        self._release()
        if isinstance(decision, SendAgain):
            self._state = decision.state
            self._send(decision.route, waiting_since)
        else:
            self._refused(error)

    # --- inside

    def _find_route(self, failed: tuple[str, ...]) -> Route:
        gateway = self._gateway
        route = gateway.router.route(self.requirements, gateway.fleet.snapshot, failed)
        if not gateway.router.hands_over:
            return route
        return gateway.router.hand_over(self.requirements, gateway.fleet.snapshot, route, failed)

    def _find_other(self, failed: tuple[str, ...]) -> tuple[Route, bytes] | None:
        try:
            return self._find_route(failed), b""
        except RequestError:
            return None

    def _send(self, route: Route, waiting_since: float | None) -> None:
        gateway, chosen = self._gateway, route.chosen
        self.route = route
        chosen.load.begin()
        gateway.routed(self, route)
        queue = gateway.queues.get(chosen.backend)
        if queue is None:
            self.granted()
        else:
            self._slot = QueueSlot(self, queue, self.id.encode(), chosen.replica, 0, waiting_since)
            self._slot.take()

    def _release(self) -> None:
        assert self.route is not None
        self.route.chosen.load.end()
        slot, self._slot = self._slot, None
        if slot is not None:
            slot.release()

    def _refused(self, error: RequestError) -> None:
        self._gateway.finished(self, error.status)
        self._gateway.engines.refuse(self, error)
