"""Reads request bodies."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from enginehouse.domain.errors import EncodedBody, InvalidRequest, shortened
from enginehouse.domain.inference_request import InferenceRequest
from enginehouse.domain.request import Body, Headers
from enginehouse.routing.body.surrogates import mended

_decode: Final = msgspec.json.Decoder(Body).decode
_LONGEST_MODEL: Final = 1024
_GZIP: Final = b"\x1f\x8b"
_WRONG_FIELD: Final = re.compile(r"(?P<what>.*) - at `\$\.(?P<where>(?P<field>[^.\[]+).*)`", re.DOTALL)


def read_request(path: str, headers: Headers, raw: bytes) -> InferenceRequest:
    """Decode the fields of a request body that decisions need. Half surrogate pairs in it are mended first.

    Raises ``EncodedBody`` for a compressed body, ``InvalidRequest`` for bytes that are not a JSON object, for a missing
    or empty model and for a field of the wrong type. Its ``param`` is the top-level field at fault, if there is one.
    """
    try:
        body = _decode(raw)
    except (ValueError, RecursionError) as error:
        if (whole := plain_json(headers, raw)) is not None:
            return read_request(path, headers, whole)
        raise unreadable(error) from None
    check_model_name(body.model)
    return InferenceRequest(path, headers, raw, body)


def check_model_name(model: str) -> None:
    """Raise ``InvalidRequest`` for an empty name, or one that is so long that no model can have it."""
    if not model or model.isspace():
        raise InvalidRequest("'model' is empty: name the model to use", param="model")
    if len(model) > _LONGEST_MODEL:
        raise InvalidRequest(
            f"'model' is longer than {_LONGEST_MODEL} characters: {shortened(model)}: name the model to use",
            param="model",
        )


def plain_json(headers: Headers, raw: bytes) -> bytes | None:
    """A body that the decoder misjudges, without its half surrogate pairs: the history of an agent may have them.

    ``None`` if it has none. Raises ``EncodedBody`` for an encoded one.
    """
    check_plain(headers, raw)
    return mended(raw)


def check_plain(headers: Headers, beginning: bytes) -> None:
    """Raise ``EncodedBody`` for a body with this ``beginning`` that is encoded."""
    coding = next((value for name, value in headers if name == b"content-encoding"), b"").decode("latin-1").strip()
    if beginning.startswith(_GZIP) or coding.lower() not in ("", "identity"):
        raise EncodedBody(f"The body is encoded ({coding or 'gzip'}): send it without Content-Encoding")


def unreadable(error: Exception) -> InvalidRequest:
    """The error to send for a body whose decoding raised ``error``."""
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
