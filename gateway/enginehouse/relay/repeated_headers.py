"""The headers of a head that came before."""

from __future__ import annotations

from enginehouse.domain.request import Headers
from enginehouse.relay.request_id import request_id_in


class RepeatedHeaders(list[tuple[bytes, bytes]]):
    """The ``Headers`` of a head that came before, with the results of their checks. One of them is ``Content-Length``.

    ``request_id``: the client's, or empty. ``passing``: what ``passing_lines`` made of them, by what was withheld.
    """

    __slots__ = ("_length_at", "passing", "request_id")

    def __init__(self, headers: Headers) -> None:
        super().__init__(headers)
        self.request_id = request_id_in(headers)
        self.passing: dict[frozenset[bytes], bytes] = {}
        self._length_at = [name for name, _ in headers].index(b"content-length")

    def with_length(self, length: int) -> Headers:
        """The same headers for a body of ``length`` bytes."""
        at, digits = self._length_at, b"%d" % length
        if self[at][1] == digits:
            return self
        changed = RepeatedHeaders.__new__(RepeatedHeaders)
        changed += self
        changed[at] = (b"content-length", digits)
        changed.request_id, changed.passing, changed._length_at = self.request_id, self.passing, at
        return changed
