"""What callers have used, and what operators have done."""

from __future__ import annotations

import msgspec


class UsageRow(msgspec.Struct, gc=False):
    """The sum of some requests. A field by which a sum does not distinguish is ``None``.

    ``failed``: those that got an error, or were broken off. ``seconds``: of engines' time. ``cost``: by ``[prices]``.
    ``wh``: the energy in watt hours, if it is measured.

    A new figure is the last field, with 0 as its default. "Usage" in CONTRIBUTING.md names what else it touches.
    """

    hour: int | None = None
    """The hour in which they ended: its first second, since the epoch."""
    key: str | None = None
    """The name of the caller's key; empty for requests without one."""
    model: str | None = None
    user: str | None = None
    """The end user that bodies named; empty for none."""
    requests: int = 0
    failed: int = 0
    tokens_in: int = 0
    tokens_cached: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    cost: float = 0.0
    wh: float = 0.0

    def add(self, other: UsageRow) -> None:
        """Add the figures of ``other``."""
        self.requests += other.requests
        self.failed += other.failed
        self.tokens_in += other.tokens_in
        self.tokens_cached += other.tokens_cached
        self.tokens_out += other.tokens_out
        self.seconds += other.seconds
        self.cost += other.cost
        self.wh += other.wh


class AuditEntry(msgspec.Struct, frozen=True):
    """One act of an operator."""

    time: float
    """In seconds since the epoch."""
    who: str
    """The name of the operator's key; empty if no keys are set, and for a reload that no request asked for."""
    address: str
    """Where the request came from; empty without one."""
    act: str
    """What was asked, such as ``POST /api/models/qwen/unload``, or ``reload: SIGHUP``."""
    status: int
    """The status of the answer, or the one that it would have had."""
    outcome: str = "done"
    """``done``, ``refused`` (status 4xx) or ``failed`` (5xx)."""
