"""What is shown of a live request, here or in another process."""

from __future__ import annotations

from typing import Any

import msgspec

from enginehouse.domain.replica import Reason
from enginehouse.domain.request_record import AttemptRecord, StreamTokens
from enginehouse.domain.ticket import Phase


class LiveState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A live request as it is at one moment.

    - ``id``: the value of ``x-request-id``. ``number``: by which its worker knows it.
    - ``caller``: the name of its key. ``user``: the end user that the body names.
    - ``began``: when it was whole, in seconds of the gateway's clock.
    - ``requirements``: as ``Requirements.told``; ``None`` until it is whole.
    - ``replica``: where it is. ``model``: of that, or which it waits for; ``None`` until that is decided.
    - ``waits_for``: the replicas of which one may serve it, while it waits for its model.
    - ``position``: its place among those that wait for its model, where another process keeps these.
    - ``pieces``: how many pieces of its answer have come; ``None`` while no engine has it, or its client is slow.
    - ``stays``: why it cannot be moved to another backend; ``None`` if it can.
    - ``ticket``: the number of its ticket at the owner, if it has one.
    - ``attempts``: all, also the current one.
    """

    number: int = 0
    id: bytes
    path: str
    address: str = ""
    caller: str | None = None
    user: str | None = None
    began: float = 0.0
    requirements: dict[str, Any] | None = None
    replica: str | None = None
    model: str | None = None
    reason: Reason = Reason.MATCH
    attempted: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    phase: Phase = Phase.ROUTING
    position: int | None = None
    moves: int = 0
    pieces: int | None = None
    tokens: StreamTokens = StreamTokens()
    stays: str | None = None
    ticket: int | None = None
    attempts: tuple[AttemptRecord, ...] = ()

    @property
    def asked(self) -> str | None:
        """The model that the client asked for."""
        return self.requirements["model"] if self.requirements is not None else None
