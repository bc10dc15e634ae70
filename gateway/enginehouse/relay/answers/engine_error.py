"""Engines' errors: in the words that clients recognise, and what they say to the gateway."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

import msgspec

from enginehouse.domain.errors import ContextLengthExceeded, RequestError
from enginehouse.domain.replica import Candidate
from enginehouse.domain.requirements import Requirements
from enginehouse.fleet.health import blamed_request
from enginehouse.interfaces.engine_words import read_context_overflow
from enginehouse.relay.events.stream_form import StreamForm
from enginehouse.relay.heads import AnswerHead, lines_without

_BAD_REQUEST: Final = 400
_MOST_QUOTED: Final = 500
"""Characters of an error that is not JSON."""
_TYPE: Final = (b"content-type:",)


def readable_error(
    head: AnswerHead, body: bytes, form: StreamForm, chosen: Candidate, needs: Requirements | None, *, quotes: bool
) -> tuple[AnswerHead, bytes]:
    """The whole answer of an engine that refused a request or failed it, as clients in ``form`` can read it.

    A prompt that is too long is ``context_length_exceeded`` with both numbers. A text that is not JSON becomes the
    message of an error, if the gateway ``quotes`` it. Everything else passes as it is.
    """
    error = _error_in(body)
    if error is None and quotes:
        return _told(head, head.status, form, _quoted(head.status, body, chosen.backend))
    too_long = context_error(error, chosen, needs)
    return (head, body) if too_long is None else _told(head, too_long.status, form, too_long.envelope())


def context_error(error: Any, chosen: Candidate, needs: Requirements | None) -> RequestError | None:
    """The error for a prompt that the engine of ``chosen`` calls too long; ``None`` if ``error`` says something else.

    Numbers that it does not tell are the gateway's own: what the prompt needs as estimated, and the model's context.
    """
    overflow = read_context_overflow(error)
    if overflow is None or needs is None:
        return None
    tokens = overflow.tokens or needs.estimated_tokens
    limit = overflow.limit or chosen.capabilities.context_length
    if limit is None:
        return None
    return ContextLengthExceeded(needs.model, tokens, limit, counted=overflow.tokens is not None)


def _quoted(status: int, body: bytes, backend: str) -> dict[str, Any]:
    text = body.decode(errors="replace").strip()[:_MOST_QUOTED]
    message = f"Backend '{backend}' answered {status}" + (f": {text}" if text else "")
    type = "invalid_request_error" if status < 500 else "server_error"
    details = {"status": status}
    return {"error": {"message": message, "type": type, "param": None, "code": "upstream_error", "details": details}}


def _told(head: AnswerHead, status: int, form: StreamForm, envelope: dict[str, Any]) -> tuple[AnswerHead, bytes]:
    lines = lines_without(head.lines, _TYPE) + b"content-type: application/json\r\n"
    body = form.error_body(status, envelope)
    return AnswerHead(status, lines, len(body), False, False, json=True), body


_CODES: Final = ("context_length_exceeded", "exceed_context_size_error")
_WORDS: Final = re.compile(
    r"(maximum|longer than|exceeds?|too long).{0,80}context.(length|size|window)"
    r"|context.(length|size|window).{0,80}exceed|prompt is too long",
    re.IGNORECASE | re.DOTALL,
)
"""OpenAI and llama.cpp have a code; vLLM, SGLang and Anthropic say it in words.

These are wider than the words of ``read_context_overflow``: asking another engine in vain costs little, but an error
in other words must be right."""


def is_too_long(status: int, body: bytes) -> bool:
    """Whether this answer says that the request is longer than the engine's context."""
    if status not in (400, 413, 422):
        return False
    error = _error_fields(body)
    told = (error.get("code"), error.get("type"))
    return any(code in _CODES for code in told) or _WORDS.search(str(error.get("message"))) is not None


_BLAMES: Final = re.compile(
    r"(image|audio|video) input is not supported|failed to parse (messages|tools)", re.IGNORECASE
)


def blamed_status(body: bytes) -> int:
    """The status with which the ``body`` of an answer of 500 or more blames the request; 0 if it does not.

    llama-server answers 500 to input that its model cannot take, and to messages and tools that it cannot read
    (https://github.com/ggml-org/llama.cpp/issues/13566).
    """
    error = _error_fields(body)
    blames = _BLAMES.search(str(error.get("message"))) is not None or read_context_overflow(error) is not None
    return blamed_request(error) or (_BAD_REQUEST if blames else 0)


def _error_in(body: bytes) -> Any:
    """The error in an answer, an object or a text; ``None`` if the answer is not JSON."""
    try:
        answer = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return None
    return (answer.get("error") if isinstance(answer, dict) else None) or answer or {}


def _error_fields(body: bytes) -> Mapping[str, Any]:
    error = _error_in(body)
    return error if isinstance(error, dict) else {"message": error}


SAID_WITH: Final = frozenset({429, 503})
"""The answers with which an engine asks to be left alone."""
_LONGEST_S: Final = 3600.0
_LINE: Final = re.compile(rb"^retry-after:[ \t]*([^\r\n]*)", re.IGNORECASE | re.MULTILINE)


def retry_after(lines: bytes, epoch: float) -> float:
    """For how many seconds the engine wants to be left alone, one hour at most; 0 if ``lines`` do not say.

    ``epoch``: the time of day, for engines that name a date.
    """
    found = _LINE.search(lines)
    if found is None:
        return 0.0
    text = found[1].decode("latin-1").strip()
    seconds = float(text) if text.isascii() and text.isdigit() else _until(text, epoch)
    return min(max(seconds, 0.0), _LONGEST_S)


def _until(text: str, epoch: float) -> float:
    try:
        return parsedate_to_datetime(text).timestamp() - epoch
    except (ValueError, OverflowError):
        return 0.0
