"""What an answer says of its engine: decided here alone, for heads, whole answers and streams alike."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

REFUSALS: Final = frozenset({401, 403, 404})
"""An engine that answers with one of these is alive, but perhaps unable to serve what others can."""
_NOT_IMPLEMENTED: Final = 501
"""The engine cannot do what is asked, such as embeddings with the model of a chat."""
_STATUS_OF_TYPE: Final = {
    "invalid_request_error": 400,
    "exceed_context_size_error": 400,
    "BadRequestError": 400,
    "not_supported_error": _NOT_IMPLEMENTED,
    "validation": 422,
    "overloaded": 429,
}
"""The statuses of errors that name none, by the ``type`` that engines give them."""


class EngineVerdict(Enum):
    """What an answer's status says of the engine."""

    GOOD = "it serves the request, or the request is at fault"
    BUSY = "nothing"
    REFUSED = "it may be unable to serve what others can"
    UNSURE = "the request or the engine is at fault"
    FAILED = "the engine is at fault"


def verdict(status: int) -> EngineVerdict:
    """The verdict on an engine that answered with this ``status``."""
    if status < 400 or status == _NOT_IMPLEMENTED:
        return EngineVerdict.GOOD
    if status == 429:
        return EngineVerdict.BUSY
    if status < 500:
        return EngineVerdict.REFUSED if status in REFUSALS else EngineVerdict.GOOD
    return EngineVerdict.UNSURE if status == 500 else EngineVerdict.FAILED


def error_in(answer: Mapping[str, object]) -> object:
    """The error in an answer, or in an event of one, if it has one. TGI tells the type beside a text."""
    error, kind = answer.get("error"), answer.get("error_type")
    return {"message": error, "type": kind} if isinstance(error, str) and isinstance(kind, str) else error


def blamed_request(error: object) -> int:
    """The status with which an engine's ``error``, of a stream or of a whole answer, blames the request.

    0 if it blames the engine, or nobody.
    """
    if not isinstance(error, dict):
        return 0
    code = error.get("code")
    if code is None:
        code = error.get("http_status_code")  # TGI's
    if isinstance(code, str) and code.isdecimal() and len(code) == 3:
        code = int(code)
    if not isinstance(code, int):
        kind = error.get("type")
        code = _STATUS_OF_TYPE.get(kind, 0) if isinstance(kind, str) else 0
    return code if 400 <= code < 500 or code == _NOT_IMPLEMENTED else 0
