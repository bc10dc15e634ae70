"""Requests aside for the tests of observers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from enginehouse import RequestRecord
from enginehouse.records import RequestContents


class FakeAsides:
    """A ``SendAside`` that sends nothing. ``sent``: the models, the contents and the ids of what it was to send.

    ``has_room``: whether an engine has room for more.
    """

    def __init__(self) -> None:
        self.has_room = True
        self.sent: list[tuple[str, RequestContents, str]] = []
        self._on_their_way: deque[Callable[[RequestRecord], None]] = deque()

    def __call__(
        self, model: str, contents: RequestContents, request_id: str, on_end: Callable[[RequestRecord], None]
    ) -> bool:
        if self.has_room:
            self.sent.append((model, contents, request_id))
            self._on_their_way.append(on_end)
        return self.has_room

    @property
    def live(self) -> int:
        """How many have not ended."""
        return len(self._on_their_way)

    def end(self, record: RequestRecord) -> None:
        """End the one that was sent first, with this record."""
        self._on_their_way.popleft()(record)
