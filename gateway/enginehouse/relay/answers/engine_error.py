"""Engines' errors in the words that clients recognise."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from enginehouse.domain.errors import ContextLengthExceeded, RequestError
from enginehouse.domain.replica import Candidate
from enginehouse.domain.requirements import Requirements
from enginehouse.interfaces.engine_words import read_context_overflow
from enginehouse.relay.events.stream_form import StreamForm
from enginehouse.relay.heads.headers import AnswerHead, lines_without

_MOST_QUOTED: Final = 500
"""Characters of an error that is not JSON."""
_TYPE: Final = (b"content-type:",)


def readable_error(
    head: AnswerHead, body: bytes, form: StreamForm, chosen: Candidate, needs: Requirements | None
) -> tuple[AnswerHead, bytes]:
    """The whole answer of an engine that refused a request or failed it, as clients in ``form`` can read it.

    A prompt that is too long is ``context_length_exceeded`` with both numbers. A text that is not JSON becomes the
    message of an error. Everything else passes as it is.
    """
    try:
        answer = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return _told(head, head.status, form, _quoted(head.status, body, chosen.backend))
    error = answer.get("error") or answer if isinstance(answer, dict) else answer
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
