"""The head that a client repeats on its connection, and that is parsed only once."""

from __future__ import annotations

from typing import Final

from enginehouse.domain.repeated_headers import AlikeHeads, RepeatedHeaders
from enginehouse.domain.request import Headers
from enginehouse.relay.heads.headers import find_request_id, wants_cache_line

_LENGTH: Final = b"content-length"
_TRACE: Final = b"traceparent"
_VARYING: Final = frozenset({_LENGTH, _TRACE, b"x-request-id"})
"""The headers whose values may differ. They decide nothing about a head but where its body ends."""
_LONGEST_VALUE: Final = 128
_LONGEST_HEAD: Final = 4096
_MOST_MISSES: Final = 8
"""After so many heads in a row that did not come again, the next ``_PAUSE`` ones are not learned."""
_PAUSE: Final = 62


class RepeatedHead:
    """Knows the head of a request for an engine that came in one piece, and the later ones that are like it.

    Two heads are alike if only the values of ``_VARYING`` differ, and consist of letters, digits and dashes. These end
    no line, so the parser would find the same lines, and checks of their form would have the same results. None has
    ``Origin``, so that no page of a browser sends it. What depends on more, such as keys and limits, must be checked
    each time.

    ``target``: of the known request. ``_begin``: the bytes before the first value that may differ; empty if nothing is
    known. ``_varying``: for each such value, the place of its header, the name, the usual size, and the bytes up to the
    next value.
    """

    __slots__ = ("_alike", "_begin", "_headers", "_misses", "_pause", "_request_id", "_used", "_varying", "target")

    def __init__(self) -> None:
        self.target = b""
        self._begin = b""
        self._varying: list[tuple[int, bytes, int, bytes]] = []
        self._headers: Headers = []
        self._request_id = b""
        self._alike = AlikeHeads(False)
        self._used = False
        self._misses = self._pause = 0

    def read(self, data: bytes) -> tuple[RepeatedHeaders, bytes] | None:
        """The headers and the body of the request ``data``; ``None`` unless its head is known and its body whole."""
        begin = self._begin
        if not begin or not data.startswith(begin):
            return None
        headers, at = RepeatedHeaders(self._headers), len(begin)
        length, traceparent, request_id = b"", b"", self._request_id
        for place, name, usual, behind in self._varying:
            end = at + usual
            if data[end : end + len(behind)] != behind:
                end = data.find(b"\r", at, at + _LONGEST_VALUE)
                if end <= at or data[end : end + len(behind)] != behind:
                    return None
            value = data[at:end]
            headers[place] = (name, value)
            at = end + len(behind)
            if name == _LENGTH:
                length = value
            elif not value.replace(b"-", b"").isalnum():
                return None
            elif name == _TRACE:
                traceparent = value
            else:
                request_id = value
        if not length.isdigit() or int(length) != len(data) - at:
            return None
        self._used = True
        headers.alike, headers.traceparent, headers.request_id = self._alike, traceparent, request_id
        return headers, data[at:]

    def learn(self, data: bytes, target: bytes, headers: Headers) -> None:
        """Learn the head of ``data``, in which the parser has read ``headers`` and nothing before.

        The caller ensures that the head does not ask for a 100 Continue, an upgrade or the connection's end.
        """
        if self._pause:
            self._pause -= 1
            return
        end = data.find(b"\r\n\r\n") + 4
        lines = data[:end].split(b"\r\n")
        first = b"POST %s HTTP/1.1" % target
        names = [name for name, _ in headers]
        if end > _LONGEST_HEAD or lines[0] != first or len(lines) != len(names) + 3 or b"origin" in names:
            return
        parts, varying, length = [first + b"\r\n"], [], b""
        for place, (name, value) in enumerate(headers):
            line = lines[place + 1]
            if name in _VARYING and names.count(name) == 1 and _is_plain(value) and line.endswith(b": " + value):
                varying.append((place, name, len(value)))
                parts[-1] += line[: -len(value)]
                parts.append(b"\r\n")
                length = value if name == _LENGTH else length
            else:
                parts[-1] += line + b"\r\n"
        parts[-1] += b"\r\n"
        if not length.isdigit() or int(length) != len(data) - end:
            return
        self._count_miss()
        self.target, self._headers, self._begin = target, headers.copy(), parts[0]
        self._request_id, self._alike = find_request_id(headers), AlikeHeads(wants_cache_line(headers))
        self._varying = [(*each, behind) for each, behind in zip(varying, parts[1:], strict=True)]

    def _count_miss(self) -> None:
        """Another head than the known one came."""
        self._misses = 0 if self._used else self._misses + 1
        self._used = False
        if self._misses == _MOST_MISSES:
            self._misses -= 2  # two heads suffice after the pause
            self._pause = _PAUSE


def _is_plain(value: bytes) -> bool:
    return len(value) < _LONGEST_VALUE and value.replace(b"-", b"").isalnum()
