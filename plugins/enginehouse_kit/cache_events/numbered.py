"""Follows the numbered messages of one engine's cache: notices what is lost, and asks for it again. Does no I/O."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse.engine_caches import CacheCleared, CacheEvent, EventsLost
from enginehouse_kit.cache_events.decode import decode_batch

Message = tuple[int, Sequence[CacheEvent]]
"""A number, which counts up by one, and a batch of events."""


def read_message(number: bytes, payload: bytes) -> Message:
    """The message that an engine published. One that cannot be read counts as lost."""
    try:
        return int.from_bytes(number, "big"), decode_batch(payload)
    except ValueError:
        return int.from_bytes(number, "big"), (EventsLost(),)


class CacheEvents:
    """Turns messages into events in order.

    ``wanted``: the number of the first message that is missing; ``None`` if none is. Ask the engine to send all from
    there again, and give them to ``replayed``. ``exact``: whether all events since the cache was empty are known.
    ``lost`` counts the gaps that could not be filled, ``filled`` those that could.
    """

    def __init__(self) -> None:
        self._next = 0
        self.wanted: int | None = 0
        self.exact = False
        self.lost = self.filled = 0
        self._held: list[Message] = []

    def received(self, message: Message) -> Sequence[CacheEvent]:
        """The events that are in order with this message. It is kept back while earlier ones are missing."""
        number, _ = message
        if self.wanted is not None:
            self._held.append(message)
            return ()
        if number == self._next:
            return self._take([message])
        if number < self._next:  # another process publishes now, whose cache was empty at first
            self._next = 0
            if number == 0:
                self.exact = True
                return [CacheCleared(), *self._take([message])]
        self.wanted = self._next
        self._held.append(message)
        return ()

    def replayed(self, messages: Sequence[Message] | None) -> Sequence[CacheEvent]:
        """The events of what the engine sent again, and of what was kept back meanwhile.

        ``None``: it did not answer, so nobody knows what it has.
        """
        begin, self.wanted = self.wanted, None
        held, self._held = self._held, []
        found = dict(held) | dict(messages or ())
        all_of_them = sorted(found)
        if begin is None or not all_of_them:
            return self._begin_anew(begin) if begin is not None and messages is not None else ()
        first = all_of_them[0]
        whole = first <= begin and all_of_them == list(range(first, all_of_them[-1] + 1))
        events: list[CacheEvent] = []
        if begin == 0:
            self.exact = whole
            events.append(CacheCleared())
        if whole:
            self.filled += 1
        else:
            self.lost += 1
            self.exact = False
            events.append(EventsLost())
        numbers = [number for number in all_of_them if number >= begin]
        self._next = numbers[0] if numbers else self._next
        return [*events, *self._take([(number, found[number]) for number in numbers])]

    def broke(self) -> Sequence[CacheEvent]:
        """Note that the connection was lost: what comes next may have gaps, or come from another process."""
        self.exact = False
        return [EventsLost()]

    def restart(self) -> None:
        """Want all messages again that the engine still has."""
        self._next, self.wanted, self._held = 0, 0, []
        self.exact = False

    def _begin_anew(self, begin: int) -> Sequence[CacheEvent]:
        """The engine has sent nothing so far."""
        self._next = begin
        self.exact = begin == 0
        return [CacheCleared()] if self.exact else []

    def _take(self, messages: Sequence[Message]) -> list[CacheEvent]:
        events: list[CacheEvent] = []
        for number, found in messages:
            self._next = number + 1
            if any(isinstance(each, EventsLost) for each in found):
                self.exact = False
                self.lost += 1
            if any(isinstance(each, CacheCleared) for each in found):
                self.exact = True
            events += found
        return events
