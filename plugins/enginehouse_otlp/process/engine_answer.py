"""What an engine says of its answer: its model, its id, why it ended."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

_MODEL, _ID = (re.compile(rb'"%s":\s*("(?:[^"\\]|\\.){1,256}")' % key) for key in (b"model", b"id"))
_FINISHED = re.compile(rb'"(?:finish_reason|stop_reason)":\s*"(\w{1,64})"')
_REASONING = re.compile(rb'"reasoning_tokens":\s*(\d{1,15})')


def engine_answer(ends: tuple[bytes, bytes]) -> Iterator[tuple[str, Any]]:
    """The attributes found in the two ends of an answer. Quotes are escaped in its texts, so these are its own keys."""
    first, last = ends
    for name, pattern in (("gen_ai.response.model", _MODEL), ("gen_ai.response.id", _ID)):
        if (text := _first_text(pattern, first) or _last_text(pattern, last)) is not None:
            yield name, text
    if reasons := [found.decode() for found in _FINISHED.findall(last)]:
        yield "gen_ai.response.finish_reasons", reasons
    if counts := _REASONING.findall(last):
        yield "gen_ai.usage.reasoning.output_tokens", int(counts[-1])


def _first_text(pattern: re.Pattern[bytes], text: bytes) -> str | None:
    found = pattern.search(text)
    return _decoded(found.group(1)) if found is not None else None


def _last_text(pattern: re.Pattern[bytes], text: bytes) -> str | None:
    found = pattern.findall(text)
    return _decoded(found[-1]) if found else None


def _decoded(text: bytes) -> str | None:
    try:
        return msgspec.json.decode(text, type=str)
    except ValueError:
        return None
