"""The headers of a head like one that came before."""

from __future__ import annotations


class AlikeHeads:
    """What was found out of heads that are alike.

    ``passing``: the lines that pass to an engine, by what is withheld from it. Those before the value of
    ``traceparent`` come first, then those behind it; the latter are empty where it does not pass.
    ``wants_cache_line``: as the function of that name says.
    """

    __slots__ = ("passing", "wants_cache_line")

    def __init__(self, wants_cache_line: bool) -> None:
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
