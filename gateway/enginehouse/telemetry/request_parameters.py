"""The parameters of a request, for its trace."""

from __future__ import annotations

from typing import Any, Final

import msgspec

_MOST_READ: Final = 256 * 1024
"""In bytes: the event loop reads the body once more, after the answer."""
_MOST_SENT: Final = 4096
_MOST_STOPS: Final = 8
_LONGEST_STOP: Final = 64
_LARGEST: Final = 1 << 63


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
    """The parameters in the body of a request, as a JSON object that the exporter reads; empty without any."""
    if len(body) > _MOST_READ:
        return b""
    try:
        found = _encode(_decode(body))
    except (ValueError, RecursionError):
        return b""
    return found if 2 < len(found) <= _MOST_SENT else b""


def parameter_attributes(parameters: bytes) -> dict[str, Any]:
    """The well-formed ones of ``parameters``, under their names in OpenTelemetry's conventions."""
    if not parameters:
        return {}
    get = msgspec.json.decode(parameters, type=dict[str, Any]).get
    most = get("max_completion_tokens") or get("max_output_tokens") or get("max_tokens")
    found = {
        "gen_ai.request.max_tokens": _int(most),
        "gen_ai.request.temperature": _float(get("temperature")),
        "gen_ai.request.top_p": _float(get("top_p")),
        "gen_ai.request.top_k": _float(get("top_k")),
        "gen_ai.request.frequency_penalty": _float(get("frequency_penalty")),
        "gen_ai.request.presence_penalty": _float(get("presence_penalty")),
        "gen_ai.request.seed": _int(get("seed")),
        "gen_ai.request.choice.count": _int(get("n")) if get("n") != 1 else None,
        "gen_ai.request.stop_sequences": _texts(get("stop") or get("stop_sequences")),
        "gen_ai.output.type": _output_type((get("response_format") or {}).get("type")),
    }
    return {name: value for name, value in found.items() if value is not None}


def _int(value: Any) -> int | None:
    return value if type(value) is int and -_LARGEST <= value < _LARGEST else None


def _float(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and abs(value) < _LARGEST else None


def _texts(value: Any) -> list[str] | None:
    texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    found = [text[:_LONGEST_STOP] for text in texts[:_MOST_STOPS] if isinstance(text, str)]
    return found or None


def _output_type(wanted: Any) -> str | None:
    return "json" if wanted in ("json_object", "json_schema") else "text" if wanted == "text" else None
