"""The interceptor ``volatile_lines``."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from enginehouse_interceptors.asked import asked_of, compiled
from enginehouse_kit.interceptors import Change, InterceptedRequest, Interceptor
from enginehouse_kit.prefixes.volatile_lines import VOLATILE_LINES, without_volatile_lines

_INSTRUCTS = ("system", "developer")


class VolatileLines(Interceptor):
    """Takes lines out of system prompts that are new in each request, so that engines find the rest in their caches."""

    class Config(msgspec.Struct, frozen=True):
        """``patterns``: what the whole of a line matches that is taken out besides those of known clients."""

        patterns: Annotated[list[str], msgspec.Meta(description="regular expressions of further lines")] = []

    def __init__(self, config: Config) -> None:
        self._own = compiled(config.patterns, "plugins.volatile_lines.patterns")

    async def before(self, request: InterceptedRequest) -> Change | None:
        if not self._own and not any(each.encode() in request.body for each in VOLATILE_LINES):
            return None
        asked = asked_of(request)
        messages = asked.get("messages") if asked else None
        if asked is None or not isinstance(messages, list):
            return None
        kept = [self._without(each) for each in messages]
        return Change({**asked, "messages": kept}) if kept != messages else None

    def _without(self, message: Any) -> Any:
        if not isinstance(message, dict) or message.get("role") not in _INSTRUCTS:
            return message
        content = message.get("content")
        if isinstance(content, str):
            return {**message, "content": self._cut(content)}
        if isinstance(content, list):
            return {**message, "content": [self._part(each) for each in content]}
        return message

    def _part(self, part: Any) -> Any:
        text = part.get("text") if isinstance(part, dict) else None
        return {**part, "text": self._cut(text)} if isinstance(text, str) else part

    def _cut(self, text: str) -> str:
        text = without_volatile_lines(text)
        if not self._own:
            return text
        lines = text.split("\n")
        return "\n".join([line for line in lines if not any(each.fullmatch(line) for each in self._own)])
