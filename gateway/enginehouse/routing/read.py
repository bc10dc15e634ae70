"""From the bytes of a request to what a decision may read of it."""

from __future__ import annotations

import re

import msgspec

from enginehouse.domain.errors import InvalidRequest
from enginehouse.domain.request import Body, Headers, InferenceRequest

_decode = msgspec.json.Decoder(Body).decode
_WRONG_FIELD = re.compile(r"(?P<what>.*) - at `\$\.(?P<where>(?P<field>[^.\[]+).*)`", re.DOTALL)


def read_request(path: str, headers: Headers, raw: bytes) -> InferenceRequest:
    """Read a request body once, as far as decisions need it.

    Raises ``InvalidRequest`` for bytes that are not a JSON object, a missing or empty model, or a field of the wrong
    type; its ``param`` is the field at the top of the body, where there is one to blame.
    """
    try:
        body = _decode(raw)
    except (ValueError, RecursionError) as error:
        raise unreadable(error) from None
    if not body.model or body.model.isspace():
        raise InvalidRequest("'model' is empty: name the model to use", param="model")
    return InferenceRequest(path, headers, raw, body)


def unreadable(error: Exception) -> InvalidRequest:
    """What to tell a client whose body could not be decoded because of ``error``."""
    if isinstance(error, RecursionError):
        return InvalidRequest("The body is nested too deeply")
    if isinstance(error, UnicodeDecodeError):
        return InvalidRequest(f"The body is not valid UTF-8: {error.reason}")
    if not isinstance(error, msgspec.ValidationError):
        return InvalidRequest(f"The body is not valid JSON: {error}")
    wrong = _WRONG_FIELD.fullmatch(str(error))
    if wrong:
        return InvalidRequest(f"'{wrong['where']}' is of the wrong type: {wrong['what']}", param=wrong["field"])
    if "missing required field" in str(error):
        return InvalidRequest("'model' is missing: name the model to use", param="model")
    return InvalidRequest(f"The body is not a JSON object: {error}")
