"""Continuers: what is kept of a stream, how its rest is asked for, and how its events are read."""

from __future__ import annotations

from enginehouse._moved import find
from enginehouse.domain.request_record import StreamTokens as StreamTokens
from enginehouse.interfaces.continuers import AnswerDiffers as AnswerDiffers
from enginehouse.interfaces.continuers import ContinuationWay as ContinuationWay
from enginehouse.interfaces.continuers import Gathering as Gathering
from enginehouse.interfaces.continuers import KeptStream as KeptStream
from enginehouse.interfaces.continuers import MemoryShare as MemoryShare
from enginehouse.interfaces.continuers import NewShare as NewShare
from enginehouse.interfaces.continuers import PieceMeter as PieceMeter
from enginehouse.interfaces.continuers import Question as Question
from enginehouse.interfaces.continuers import Rest as Rest
from enginehouse.interfaces.continuers import StreamMove as StreamMove
from enginehouse.interfaces.continuers import Translator as Translator
from enginehouse.relay.answers.changes import cut_usage as cut_usage
from enginehouse.relay.events.sse import is_whole as is_whole
from enginehouse.relay.events.sse import read_events as read_events
from enginehouse.routing.body.rewrite import replace_model as replace_model

__getattr__ = find  # for names that are in ``enginehouse_kit`` now
