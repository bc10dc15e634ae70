"""The interceptor ``small_tasks``."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec

from enginehouse_interceptors.asked import asked_of, compiled
from enginehouse_kit.interceptors import Change, InterceptedRequest, Interceptor

_KNOWN = re.compile(
    "|".join(
        (
            # Open WebUI: backend/open_webui/config.py, DEFAULT_*_PROMPT_TEMPLATE
            r"### Task:\s+Generate a concise, 3-5 word title",
            r"### Task:\s+Generate 1-3 broad tags",
            r"### Task:\s+Suggest 3-5 relevant follow-up questions",
            r"### Task:\s+You are an autocompletion system",
            # LibreChat: api/app/clients/prompts/titlePrompts.js, and its agents
            r"(Provide|generate) a concise, 5-word-or-less title",
            # Claude Code: titles of sessions, and of the topics of their messages
            r"Analyze if this message indicates a new conversation topic",
            r"Summarize this coding conversation in under 50 characters",
            r"Generate a concise, sentence-case title \(3-7 words\)",
            # Codex: titles of threads
            r"your job is to provide a short title for a task",
        )
    )
)
"""What clients ask for titles, tags and suggestions, and where that stands."""
_LOOKED = 4000
"""Characters at the beginning of each message that are looked at."""


class SmallTasks(Interceptor):
    """Has titles, tags and suggestions served by another model, so that they load none."""

    class Config(msgspec.Struct, frozen=True):
        """``model``: empty, so that nothing changes, or an alias of several models that prefers a loaded one."""

        model: Annotated[str, msgspec.Meta(description="the model, or an alias, that serves small tasks")] = ""
        patterns: Annotated[list[str], msgspec.Meta(description="regular expressions of further small tasks")] = []
        header: Annotated[str, msgspec.Meta(description="a header that marks small tasks")] = "x-small-task"

    def __init__(self, config: Config) -> None:
        self._config = config
        self._header = config.header.lower()
        self._patterns = [_KNOWN, *compiled(config.patterns, "plugins.small_tasks.patterns")]

    async def before(self, request: InterceptedRequest) -> Change | None:
        model = self._config.model
        if not model or request.model == model:
            return None
        asked = asked_of(request)
        return Change({**asked, "model": model}) if asked and self._is_small(request, asked) else None

    def _is_small(self, request: InterceptedRequest, asked: dict[str, Any]) -> bool:
        if self._header in request.headers:
            return True
        if asked.get("tools") or not request.path.endswith("/completions"):
            return False
        texts = [text[:_LOOKED] for text in request.text]
        return any(each.search(text) for each in self._patterns for text in texts)
