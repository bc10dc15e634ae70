"""The memory that the request bodies of all connections take."""

from __future__ import annotations

from enginehouse.domain.errors import Overloaded


class BodyMemory:
    """Counts the bytes of request bodies from their arrival until the end of their request.

    ``most``: the most bytes that may be held; 0 means no limit. Copies that the gateway makes are not counted: a body
    that is changed for its engine takes up to twice as much.
    """

    __slots__ = ("held", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0

    def take(self, size: int) -> None:
        """Count ``size`` bytes that have arrived. Raises ``Overloaded`` if there is no room for them."""
        self.check(size)
        self.held += size

    def check(self, size: int) -> None:
        """Raise ``Overloaded`` if there is no room for ``size`` bytes."""
        if self.most and self.held + size > self.most:
            raise Overloaded(
                f"The gateway holds {self.held} bytes of request bodies, and its limit is {self.most} "
                "(server.max_body_memory): send the request again later"
            )

    @property
    def is_scarce(self) -> bool:
        """Whether more than half is taken. A body that need not be held yet then stays with its client."""
        return bool(self.most) and self.held > self.most // 2


class BodyShare:
    """The share of one body in the memory: ``size`` bytes so far."""

    __slots__ = ("_memory", "size")

    def __init__(self, memory: BodyMemory) -> None:
        self._memory = memory
        self.size = 0

    def take(self, size: int) -> None:
        """Count ``size`` bytes that have arrived. Raises ``Overloaded`` if there is no room for them."""
        self._memory.take(size)
        self.size += size

    def give_back(self) -> None:
        """Count all bytes out, because they are no longer held."""
        self._memory.held -= self.size
        self.size = 0
