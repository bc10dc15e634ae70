"""Reads request bodies. Compiled: every request has one."""

from __future__ import annotations

import logging
import re
from hashlib import blake2b
from typing import Final

import msgspec

from enginehouse.domain.errors import EncodedBody, InvalidRequest, shortened
from enginehouse.domain.names import kept_name
from enginehouse.domain.request import Body, Headers, NamedModel
from enginehouse.domain.requirements import InferenceRequest

_log = logging.getLogger(__name__)

_decode: Final = msgspec.json.Decoder(Body).decode
_decode_name: Final = msgspec.json.Decoder(NamedModel).decode
_LONGEST_MODEL: Final = 1024
_MOST_TOKENS: Final = 1 << 53
_GZIP: Final = b"\x1f\x8b"
_WRONG_FIELD: Final = re.compile(r"(?P<what>.*) - at `\$\.(?P<where>(?P<field>[^.\[]+).*)`", re.DOTALL)
_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_HIGH: Final = b"89abAB"
_REPLACEMENT: Final = rb"\ufffd"
_LARGEST_MENDED: Final = 8 << 20
_MOST_ESCAPES: Final = 20_000
"""Bytes of a body, and escapes in it, that are looked at: that takes about 20 ms."""


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


def model_named(raw: bytes) -> str | None:
    """The model that a body names, perhaps an empty one; ``None`` if nobody can read the body."""
    try:
        return _decode_name(raw).model
    except (ValueError, RecursionError):
        return None


def end_user(body: Body, hashed: bool) -> str | None:
    """The end user that a body names: OpenAI's ``safety_identifier`` or ``user``, or Anthropic's ``metadata.user_id``.

    A hash takes the place of a long name. ``hashed``: also of a short one, which is then in no log.
    """
    named = body.safety_identifier or body.user
    if not isinstance(named, str) and isinstance(body.metadata, dict):
        named = body.metadata.get("user_id")
    if not isinstance(named, str) or not named:
        return None
    return blake2b(named.encode(), digest_size=12).hexdigest() if hashed else kept_name(named)


def answer_limit(body: Body) -> int | None:
    """The most tokens of an answer that a body asks for, as far as anybody can count; ``None`` if it says nothing."""
    wanted = body.max_completion_tokens or body.max_tokens or body.max_output_tokens
    return min(wanted, _MOST_TOKENS) if isinstance(wanted, int) and wanted > 0 else None


def mended(body: bytes) -> bytes | None:
    """``body`` with U+FFFD for each half of a surrogate pair (RFC 8259, 8.2); ``None`` if it has none, or too many.

    Clients make such halves of text that was cut in the middle of a character.
    """
    if len(body) > _LARGEST_MENDED or (b"\\ud" not in body and b"\\uD" not in body):
        return None
    pieces: list[bytes] = []
    count = end = 0
    high: bytes | None = None  # the first half of a pair, if it is the last thing that was read
    for number, found in enumerate(_HALF.finditer(body)):
        if number == _MOST_ESCAPES:
            return None
        between = body[end : found.start()]
        is_escape = (len(between) - len(between.rstrip(b"\\"))) % 2 == 0
        escape = found[0]
        if high is not None:
            whole = not between and is_escape and escape[3] not in _HIGH
            pieces.append(high + escape if whole else _REPLACEMENT)
            count += not whole
            high = None
            if whole:
                end = found.end()
                continue
        pieces.append(between)
        if not is_escape:
            pieces.append(escape)
        elif escape[3] in _HIGH:
            high = escape
        else:
            pieces.append(_REPLACEMENT)
            count += 1
        end = found.end()
    if high is not None:
        pieces.append(_REPLACEMENT)
        count += 1
    if not count:
        return None
    _log.warning("A request has half a surrogate pair in %d places: they become U+FFFD", count)
    return b"".join([*pieces, body[end:]])
