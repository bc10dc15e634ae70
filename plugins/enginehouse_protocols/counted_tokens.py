"""The tokens of a prompt, as the engine counts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from enginehouse.errors import UpstreamError
from enginehouse_protocols.chats import ChatTranslation
from enginehouse_protocols.engine_chat import EngineChat
from enginehouse_protocols.said import whole


class CountedTokens(ChatTranslation):
    """Asks for one token of an answer to a chat of these ``fields``. ``said``: what the answer has beside the count."""

    def __init__(self, fields: dict[str, Any], said: Mapping[str, str]) -> None:
        super().__init__(fields | {"max_tokens": 1, "stream": False})
        self._said = said

    def answer(self, answer: dict[str, Any]) -> bytes:
        prompt = whole(EngineChat().read_whole(answer)).usage.prompt
        if not prompt:
            raise UpstreamError("The engine's answer does not say how many tokens the prompt has")
        return msgspec.json.encode({**self._said, "input_tokens": prompt})
