"""Attributes of a request's parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

_MOST_STOPS: Final = 8
_LONGEST_STOP: Final = 64
_LARGEST: Final = 1 << 63


def parameter_attributes(parameters: bytes) -> dict[str, Any]:
    """The well-formed ones of ``parameters``, under their names in OpenTelemetry's conventions."""
    if not parameters:
        return {}
    get = msgspec.json.decode(parameters, type=dict[str, Any]).get
    most = get("max_completion_tokens") or get("max_output_tokens") or get("max_tokens")
    found = {
        "gen_ai.request.max_tokens": _int(most),
        **{f"gen_ai.request.{name}": read(get(name)) for name, read in _ALIKE.items()},
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


_ALIKE: Final[Mapping[str, Callable[[Any], float | None]]] = {
    **dict.fromkeys(("temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty"), _float),
    "seed": _int,
}
"""Those whose attributes have their names."""
