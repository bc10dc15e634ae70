"""Answers that say they are JSON: whether a client can read them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

from enginehouse.domain.errors import EngineRefused, RequestError, UpstreamError, UpstreamInvalid
from enginehouse.fleet.verdicts import blamed_request, error_in
from enginehouse.relay.events.stream_check import message_of
from enginehouse.relay.heads.headers import AnswerHead
from enginehouse.telemetry.counted_answers import Counted, check_answer, decode_answer, skim

_ESCAPED: Final = re.compile(rb"\\.", re.DOTALL)


def why_misfit(head: AnswerHead, backend: str, *, streams: bool) -> UpstreamInvalid | None:
    """The error that clients get instead of an answer with ``head`` to a chat or the like; ``None`` if it may be one.

    A client cannot follow a redirect to an engine, finds nothing in an answer without a body (204), and one that wants
    a stream (``streams``) sees nothing in JSON, one that wants none nothing in a stream.
    """
    if head.status == 204 or 300 <= head.status < 400:
        return UpstreamInvalid(f"Backend '{backend}' answered {head.status}, which is not an answer to this request")
    if head.status < 300 and head.json and streams:
        return UpstreamInvalid(f"Backend '{backend}' sent no stream, which was asked for")
    if head.status == 200 and head.stream and not streams:
        return UpstreamInvalid(f"Backend '{backend}' sent a stream, which was not asked for")
    return None


def read_answer(body: bytes, backend: str, *, may_be_error: bool) -> tuple[RequestError | None, Counted | None]:
    """The error that clients get instead of ``body``, an answer of status 200 that must be JSON; ``None`` if it is fit.

    Beside it, what the engine counted. ``may_be_error``: a field ``error`` says that the engine has failed, or that it
    blames the request.
    """
    if not may_be_error:
        return None if is_json(body) else _no_json(backend), None
    try:
        if not body.isascii():
            body.decode()
        return None, decode_answer(body)
    except (ValueError, RecursionError):
        return _problem(body, backend), None


def _problem(body: bytes, backend: str) -> RequestError | None:
    if _reads(check_answer, body):  # an object without an error, whatever it counts; checking is faster than reading
        return None
    try:
        answer = json.loads(body.decode())
    except (ValueError, RecursionError):
        return _no_json(backend)
    error = error_in(answer) if isinstance(answer, dict) else None
    if error is None and isinstance(answer, dict) and "choices" not in answer:
        told = isinstance(answer.get("message"), str) or answer.get("detail") is not None
        error = answer if told else None
    if error is None:
        return None
    why = f"Backend '{backend}' answered with an error: {message_of(error)}"
    blamed, details = blamed_request(error), {"error": error}
    return EngineRefused(blamed, why, details) if blamed else UpstreamError(why, details=details)


def _no_json(backend: str) -> UpstreamInvalid:
    return UpstreamInvalid(f"Backend '{backend}' sent an answer that is not JSON")


def is_json(body: bytes) -> bool:
    """Whether clients can read ``body`` as JSON. Python takes ``NaN`` and lone surrogates, which its engines send."""
    return _reads(skim, body) or _reads(json.loads, body)


def _reads(reader: Callable[[bytes], object], body: bytes) -> bool:
    try:
        if not body.isascii():
            body.decode()  # a decoder does not look into the texts that it passes over
        reader(body)
    except (ValueError, RecursionError):
        return False
    return True


class JsonInPieces:
    """Follows the brackets of JSON that is too large to be held.

    ``is_whole``: all are closed.
    """

    __slots__ = ("_depth", "_in_text", "_rest")

    def __init__(self) -> None:
        self._depth = 0
        self._in_text = False
        self._rest = b""

    @property
    def is_whole(self) -> bool:
        return not (self._depth or self._in_text)

    def take(self, piece: bytes) -> None:
        """Read the next piece."""
        piece = _ESCAPED.sub(b"", self._rest + piece)
        self._rest = b"\\" if piece.endswith(b"\\") else b""
        parts = piece.split(b'"')
        for part in parts[self._in_text :: 2]:
            self._depth += part.count(b"{") + part.count(b"[") - part.count(b"}") - part.count(b"]")
        self._in_text ^= len(parts) % 2 == 0
