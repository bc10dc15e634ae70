"""Continuers: what is kept of a stream, how its rest is asked for, and how its events are read."""

from __future__ import annotations

from enginehouse.domain.request_record import StreamTokens
from enginehouse.interfaces.continuers import (
    AnswerDiffers,
    ContinuationWay,
    Gathering,
    KeptStream,
    MemoryShare,
    NewShare,
    PieceMeter,
    Question,
    Rest,
    StreamMove,
    Translator,
)
from enginehouse.relay.events.added_fields import cutter
from enginehouse.relay.events.sse import is_whole, read_events
from enginehouse.routing.body.rewrite import replace_model

__all__ = [
    "AnswerDiffers",
    "ContinuationWay",
    "Gathering",
    "KeptStream",
    "MemoryShare",
    "NewShare",
    "PieceMeter",
    "Question",
    "Rest",
    "StreamMove",
    "StreamTokens",
    "Translator",
    "cutter",
    "is_whole",
    "read_events",
    "replace_model",
]
