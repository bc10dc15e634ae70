"""The interceptor ``answer_cache``."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from typing import Any

import msgspec

from enginehouse_kit.interceptors import Answer, AnswerFilter, Event, InterceptedRequest, Interceptor

_READ = msgspec.json.Decoder(dict[str, Any]).decode
_KEPT = frozenset({"text", "finish", "usage", "other"})


class AnswerCache(Interceptor):
    """Answers a request as the same one of the same caller was answered; a stream too, if that was only text."""

    class Config(msgspec.Struct, frozen=True):
        """``most``: the most answers. ``largest``: the most characters of one."""

        most: int = 1000
        largest: int = 100_000

    def __init__(self, config: Config) -> None:
        self._config = config
        self._answers: OrderedDict[bytes, dict[str, Any]] = OrderedDict()

    async def before(self, request: InterceptedRequest) -> Answer | None:
        found = self._answers.get(key := _key(request))
        if found is not None:
            self._answers.move_to_end(key)
        return None if found is None else Answer(200, found)

    def answer(self, request: InterceptedRequest) -> AnswerFilter:
        return Kept(request.path.endswith("/chat/completions"), partial(self._keep, _key(request)))

    def _keep(self, key: bytes, answer: dict[str, Any], size: int) -> None:
        if size <= self._config.largest:
            self._answers[key] = answer
        if len(self._answers) > self._config.most:
            self._answers.popitem(last=False)


class Kept(AnswerFilter):
    def __init__(self, chat: bool, keep: Callable[[dict[str, Any], int], None]) -> None:
        self._chat, self._keep, self._text, self._reason, self._whole = chat, keep, "", "", True
        self._data: Mapping[str, Any] = {}

    def event(self, event: Event) -> Event:
        self._whole = self._whole and event.kind in _KEPT and event.choice == 0
        self._text += event.text if self._whole else ""
        if event.kind == "finish":
            self._data, self._reason = event.data, event.data["choices"][0]["finish_reason"]
        return event

    def end(self) -> None:
        if self._whole and self._reason:
            said = {"message": {"role": "assistant", "content": self._text}} if self._chat else {"text": self._text}
            kind = "chat.completion" if self._chat else "text_completion"
            choices = [{"index": 0, **said, "finish_reason": self._reason}]
            self._keep({**self._data, "object": kind, "choices": choices}, len(self._text))

    def whole(self, body: bytes) -> None:
        self._keep(_READ(body), len(body)) if body.startswith(b"{") else None


def _key(request: InterceptedRequest) -> bytes:
    try:
        asked: Any = {name: value for name, value in _READ(request.body).items() if not name.startswith("stream")}
    except (ValueError, RecursionError):
        asked = request.body
    return sha256(msgspec.json.encode([request.path, request.caller, asked], order="deterministic")).digest()
