"""Middleware: requests that are open, what answers are written to, and what is held of them."""

from __future__ import annotations

from enginehouse._moved import find
from enginehouse.aio.write_batch import BatchedTransport as BatchedTransport
from enginehouse.domain.errors import ClientLeft as ClientLeft
from enginehouse.domain.errors import GuardFailed as GuardFailed
from enginehouse.domain.errors import GuardRefused as GuardRefused
from enginehouse.domain.errors import status_of as status_of
from enginehouse.domain.foreign import shown as shown
from enginehouse.fleet.health import blamed_request as blamed_request
from enginehouse.relay.engine_memory import EngineMemory as EngineMemory
from enginehouse.relay.engine_memory import EngineShare as EngineShare
from enginehouse.relay.engine_memory import HeldAnswer as HeldAnswer
from enginehouse.relay.events.sse import data_of as data_of
from enginehouse.relay.events.sse import end_behind as end_behind
from enginehouse.relay.events.stream_check import message_of as message_of
from enginehouse.relay.events.stream_form import PING as PING
from enginehouse.relay.heads import NOT_TO_ENGINE as NOT_TO_ENGINE
from enginehouse.relay.heads import lines_without as lines_without
from enginehouse.relay.heads import read_lines as read_lines
from enginehouse.relay.middleware import MiddlewareFacts as MiddlewareFacts
from enginehouse.relay.middleware import Opening as Opening
from enginehouse.relay.middleware import OpenRequest as OpenRequest
from enginehouse.relay.response_writer import OpenExchange as OpenExchange
from enginehouse.relay.response_writer import PassingWriter as PassingWriter
from enginehouse.relay.response_writer import ResponseWriter as ResponseWriter
from enginehouse.routing.body.read import model_named as model_named
from enginehouse.routing.body.read import plain_json as plain_json

__getattr__ = find  # for names that are in ``enginehouse_kit`` now
