"""The guard ``moderation``."""

from __future__ import annotations

import asyncio
from urllib.request import Request, urlopen

import msgspec

from enginehouse_kit.guards import Guard, GuardRequest
from enginehouse_kit.interceptors import Refuse

_TIMEOUT_S = 10.0


class _Result(msgspec.Struct):
    flagged: bool


class _Answer(msgspec.Struct):
    results: list[_Result]


class _Message(msgspec.Struct):
    content: object = None


class _Asked(msgspec.Struct):
    messages: list[_Message] = []
    prompt: object = None
    input: object = None


class ModerationGuard(Guard):
    """Refuses requests that a service flags. Without an answer, the gateway does what ``on_error`` says."""

    class Config(msgspec.Struct, frozen=True):
        """``url``: the service's address. ``key``: its API key, if it needs one."""

        url: str
        key: str = ""

    def __init__(self, config: Config) -> None:
        self._config = config

    async def before(self, request: GuardRequest, caller: str | None) -> Refuse | None:
        text = texts(request.body)
        flagged = await asyncio.to_thread(self._is_flagged, text) if text else False
        if flagged:
            return Refuse(400, "content_flagged", "The moderation service does not allow this request")
        return None

    def _is_flagged(self, text: str) -> bool:
        headers = {"content-type": "application/json"}
        if self._config.key:
            headers["authorization"] = f"Bearer {self._config.key}"
        asked = Request(self._config.url, msgspec.json.encode({"input": text}), headers)
        with urlopen(asked, timeout=_TIMEOUT_S) as answer:
            results = msgspec.json.decode(answer.read(), type=_Answer).results
        return any(each.flagged for each in results)


def texts(body: bytes) -> str:
    """All texts of a request."""
    try:
        asked = msgspec.json.decode(body, type=_Asked)
    except msgspec.DecodeError:
        return ""
    found = [*(message.content for message in asked.messages), asked.prompt, asked.input]
    return "\n".join(text for each in found for text in _texts(each))


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for each in value for text in _texts(each)]
    return _texts(value.get("text")) if isinstance(value, dict) else []
