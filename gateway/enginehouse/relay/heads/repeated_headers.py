"""The headers of a head that came before."""

from __future__ import annotations

from typing import NamedTuple


class HeaderFacts(NamedTuple):
    """The results of the first look at the headers of a head.

    ``request_id``: the client's, or empty. ``length_at``: the place of ``Content-Length``. ``trace_at``: the place of
    ``traceparent``; -1 if there is none, or several. ``passing``: the lines that pass to an engine, by what is withheld
    from it: those before the value of ``traceparent``, and those behind it. The latter are empty where it does not
    pass.
    """

    request_id: bytes
    length_at: int
    trace_at: int
    passing: dict[frozenset[bytes], tuple[bytes, bytes]]


class RepeatedHeaders(list[tuple[bytes, bytes]]):
    """The ``Headers`` of a head that came before, with the ``facts`` found in them.

    ``traceparent``: the value of the header at ``trace_at``; empty if there is none.
    """

    __slots__ = ("facts", "traceparent")

    facts: HeaderFacts
    traceparent: bytes
