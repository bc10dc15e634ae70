"""Keeps the part of a stream that the client has, continues the stream at another engine, and moves it there.

Everything here decides only; the gateway carries it out.

::

    continuer        which streams are kept, how the rest of a broken one is asked for, and how live ones move
    restrictions     which requests' streams can be continued
    progress         reads the events of chats and completions: the text and the tokens that have passed
    stream_history   keeps the events; what another engine is asked for, and what is left for the client
    typed_history    the same for streams whose events have types
    reading_ahead    bounds the text that a backend reads for moves
    gathered_answer  makes one answer of a stream
"""

from __future__ import annotations

from enginehouse import Continuer, Register, hookimpl
from enginehouse_continuation.continuer import StreamContinuer


@hookimpl
def register_continuers(register: Register[Continuer]) -> None:
    """Register the continuer."""
    register("continuation", StreamContinuer)
