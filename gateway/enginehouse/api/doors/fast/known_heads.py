"""The heads that a client repeats on its connection."""

from __future__ import annotations

from enginehouse.api.doors.admission import is_from_browser
from enginehouse.api.doors.fast.inbound import HotHead, Inbound
from enginehouse.relay.known_head import KnownHead


class KnownHeads:
    """Knows the head of a connection's last hot requests, if it came twice."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: KnownHead[HotHead] = KnownHead()

    def read(self, data: bytes) -> tuple[HotHead, bytes] | None:
        """The meaning of the head of ``data``, and the body; ``None`` unless the head is known."""
        return self._known.read(data)

    def learn(self, data: bytes, inbound: Inbound) -> None:
        """Learn from ``data``, of which the parser read ``inbound`` from the first byte to the last."""
        if inbound.may_repeat and self._known.see(data):
            head = inbound.head()
            if not is_from_browser(head.headers):
                self._known.learn(head)
