"""Every request whose client wants to be told how far it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from enginehouse.config.schema import Model, Scheduling
from enginehouse.domain.route import Route
from enginehouse.domain.ticket import Ticket
from enginehouse.interfaces.schedulers import Waiting
from enginehouse.relay.progress import Form, Progress
from enginehouse.relay.reply import Reply
from enginehouse.scheduling.host import Host

_EVERY_S = 0.5
_FORMS: Mapping[str, tuple[Form, ...]] = {
    "/v1/chat/completions": ("comments", "reasoning"),
    "/v1/completions": ("comments",),
}


class Guest(Protocol):
    """A request that waits. ``began``: in ``perf_counter`` seconds."""

    path: str
    request_id: bytes
    began: float

    @property
    def route(self) -> Route | None:
        """Where it is to go."""

    @property
    def ticket(self) -> Ticket | None:
        """What it waits with, if it still does."""


class WaitingRoom:
    """Has the clients of streams that wait told how far they are, once that took longer than their ``patience``.

    ``models`` and ``scheduling`` say who is told, and how; ``hosts`` knows who waits. One look at all of them twice a
    second costs what one request can wait for.
    """

    def __init__(self, models: Mapping[str, Model], scheduling: Scheduling, hosts: Mapping[str, Host]) -> None:
        self._hosts = hosts
        self._guests: dict[Guest, Progress] = {}
        self._next_look = 0.0
        self.configure(models, scheduling)

    def configure(self, models: Mapping[str, Model], scheduling: Scheduling) -> None:
        """Who is told from now on, how, and after how long."""
        self._forms = {name: model.progress or scheduling.progress for name, model in models.items()}
        self._patience = scheduling.progress_patience

    def enter(self, guest: Guest, reply: Reply) -> bool:
        """A stream waits; ``reply`` is its client's. Whether its client wants to be told, until it leaves."""
        assert guest.route is not None
        form, forms = self._forms.get(guest.route.model, "off"), _FORMS.get(guest.path, ())
        if form == "off" or not forms:
            return False
        self._guests[guest] = Progress(reply, form if form in forms else forms[0], guest.request_id)
        return True

    def leave(self, guest: Guest) -> None:
        """It has an answer, or will never have one."""
        del self._guests[guest]

    def look(self, now: float) -> None:
        """Tell who has waited for long, at ``now`` in ``perf_counter`` seconds."""
        if not self._guests or now < self._next_look:
            return
        self._next_look = now + _EVERY_S
        impatient = [each for each in self._guests.items() if now - each[0].began >= self._patience]
        if not impatient:
            return
        queues = self._queues()
        for guest, progress in impatient:
            ticket, route = guest.ticket, guest.route
            if route is not None:
                progress.tell(queues.get(ticket) if ticket is not None else None, route.model, now - guest.began)

    def _queues(self) -> Mapping[Ticket, Waiting]:
        return {each.ticket: each for host in {*self._hosts.values()} for each in host.waiting()}
