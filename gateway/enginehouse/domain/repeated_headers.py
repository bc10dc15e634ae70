"""The headers of a head like one that came before."""

from __future__ import annotations


class RepeatedHeaders(list[tuple[bytes, bytes]]):
    """The ``Headers`` of a head of at most 4 KiB, in which only the length and the ids differ from an earlier one.

    ``request_id``: the client's, or empty. ``traceparent``: its value; empty if there is none, or several.
    ``passing``: what was found out of such heads: the lines that pass to an engine, by what is withheld from it. Those
    before the value of ``traceparent`` come first, then those behind it; the latter are empty where it does not pass.
    """

    __slots__ = ("passing", "request_id", "traceparent")

    request_id: bytes
    traceparent: bytes
    passing: dict[frozenset[bytes], tuple[bytes, bytes]]
