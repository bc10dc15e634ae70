"""The parameters of a request, for its trace."""

from __future__ import annotations

from typing import Final

import msgspec

_MOST_READ: Final = 256 * 1024
"""In bytes: the event loop reads the body once more, after the answer."""
_MOST_SENT: Final = 4096


class _Format(msgspec.Struct, gc=False, omit_defaults=True):
    type: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Sent(msgspec.Struct, gc=False, omit_defaults=True):
    """The parameters of OpenAI's APIs and of Anthropic's, unread."""

    max_tokens: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    max_completion_tokens: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    max_output_tokens: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    temperature: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    top_p: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    top_k: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    frequency_penalty: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    presence_penalty: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    seed: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    n: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    stop: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    stop_sequences: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    response_format: _Format | None = None


_decode: Final = msgspec.json.Decoder(_Sent).decode
_encode: Final = msgspec.json.Encoder().encode


def request_parameters(body: bytes) -> bytes:
    """The parameters in the body of a request, as a JSON object for ``process.parameters``; empty without any."""
    if len(body) > _MOST_READ:
        return b""
    try:
        found = _encode(_decode(body))
    except (ValueError, RecursionError):
        return b""
    return found if 2 < len(found) <= _MOST_SENT else b""
