"""Middleware: requests that are open, what answers are written to, and what is held of them."""

from __future__ import annotations

from enginehouse.aio.write_batch import BatchedTransport
from enginehouse.domain.errors import ClientLeft, GuardFailed, GuardRefused, status_of
from enginehouse.domain.foreign import shown
from enginehouse.fleet.health import blamed_request
from enginehouse.relay.engine_memory import EngineMemory, EngineShare, HeldAnswer
from enginehouse.relay.events.sse import data_of, end_behind
from enginehouse.relay.events.stream_check import message_of
from enginehouse.relay.events.stream_form import PING
from enginehouse.relay.heads import NOT_TO_ENGINE, lines_without, read_lines
from enginehouse.relay.middleware import ChosenInterceptor, MiddlewareFacts, Opening, OpenRequest
from enginehouse.relay.response_writer import OpenExchange, PassingWriter, ResponseWriter
from enginehouse.routing.body.read import model_named, plain_json

__all__ = [
    "NOT_TO_ENGINE",
    "PING",
    "BatchedTransport",
    "ChosenInterceptor",
    "ClientLeft",
    "EngineMemory",
    "EngineShare",
    "GuardFailed",
    "GuardRefused",
    "HeldAnswer",
    "MiddlewareFacts",
    "OpenExchange",
    "OpenRequest",
    "Opening",
    "PassingWriter",
    "ResponseWriter",
    "blamed_request",
    "data_of",
    "end_behind",
    "lines_without",
    "message_of",
    "model_named",
    "plain_json",
    "read_lines",
    "shown",
    "status_of",
]
