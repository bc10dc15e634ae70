"""The messages of a stream, put together from its events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

Json = dict[str, Any]


def streamed_messages(body: bytes) -> list[Json]:
    """One message for each choice, as an answer without a stream would have it. ``end``: why it ended.

    Of Anthropic's messages and OpenAI's responses, only texts are put together.
    """
    choices: dict[int, _Choice] = {}
    for event in _events(body):
        for choice in event.get("choices") or ([event] if "delta" in event else ()):
            number = choice.get("index", 0) if "choices" in event else 0
            choices.setdefault(number, _Choice()).add(choice)
    return [choice.message() for _, choice in sorted(choices.items())]


class _Choice:
    """The content of one choice's events so far."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: dict[int, Json] = {}
        self._end: str | None = None

    def add(self, choice: Json) -> None:
        delta = choice.get("delta")
        told = delta if isinstance(delta, dict) else {"content": delta or choice.get("text")}
        _append(self._texts, told.get("content") or told.get("text"))
        _append(self._thoughts, told.get("reasoning_content") or told.get("reasoning"))
        for call in told.get("tool_calls") or ():
            known = self._calls.setdefault(call.get("index", 0), {"name": None, "arguments": ""})
            function = call.get("function") or {}
            known["id"] = known.get("id") or call.get("id")
            known["name"] = known["name"] or function.get("name")
            known["arguments"] += function.get("arguments") or ""
        self._end = choice.get("finish_reason") or told.get("stop_reason") or self._end

    def message(self) -> Json:
        calls = [{"id": call.get("id"), "function": call} for call in self._calls.values()]
        told = {"content": "".join(self._texts), "reasoning_content": "".join(self._thoughts) or None}
        return {**told, "tool_calls": calls, "end": self._end}


def _append(pieces: list[str], piece: Any) -> None:
    if isinstance(piece, str):
        pieces.append(piece)


def _events(body: bytes) -> Iterator[Json]:
    for line in body.splitlines():
        if line.startswith(b"data:"):
            try:
                yield msgspec.json.decode(line[5:], type=Json)
            except (ValueError, RecursionError):
                continue  # [DONE], or the kept part ends here
