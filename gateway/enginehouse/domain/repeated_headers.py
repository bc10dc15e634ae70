"""The headers of a head like one that came before."""

from __future__ import annotations

from enginehouse.domain.request import Headers


class AlikeHeads:
    """What was found out of heads that are alike, one of which had these ``headers``.

    ``passing``: the lines that pass to an engine, by what is withheld from it. Those before the value of
    ``traceparent`` come first, then those behind it; the latter are empty where it does not pass.
    ``request_id`` and ``wants_cache_line``: as the functions of these names say.
    """

    __slots__ = ("headers", "passing", "request_id", "target", "wants_cache_line")

    def __init__(self, target: bytes, headers: Headers, request_id: bytes, wants_cache_line: bool) -> None:
        self.target = target
        self.headers = headers
        self.request_id = request_id
        self.passing: dict[frozenset[bytes], tuple[bytes, bytes]] = {}
        self.wants_cache_line = wants_cache_line


class RepeatedHeaders(list[tuple[bytes, bytes]]):
    """The ``Headers`` of a head of at most 4 KiB, in which only the length and the ids differ from an earlier one.

    ``request_id``: the client's, or empty. ``traceparent``: its value; empty if there is none, or several.
    """

    __slots__ = ("alike", "request_id", "traceparent")

    request_id: bytes
    traceparent: bytes
    alike: AlikeHeads
