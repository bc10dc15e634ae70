"""A base class for drivers of servers that load models themselves."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

import msgspec

from enginehouse.drivers import EngineClient, EngineResponse, SupportsLoading, tells_of_too_little_memory
from enginehouse.errors import LoadFailed, NotEnoughMemory
from enginehouse.rescheduling import InstanceStatus
from enginehouse_kit.drivers.openai_driver import OpenAICompatibleDriver

_NOT_LOADED: Final = re.compile(r"\b(not loaded|unloaded|no models? loaded)\b", re.IGNORECASE)


class LoadingDriver(OpenAICompatibleDriver, SupportsLoading):
    """Sends requests that load and unload models. A subclass implements ``load``, ``unload`` and ``loaded``.

    ::

        class SomeDriver(LoadingDriver):
            server = "Some server"

            async def load(self, engine: EngineClient, model: str) -> None:
                if refusal := await self.ask(engine, "/models/load", {"name": model}):
                    raise self.load_failed(model, refusal)
    """

    server: ClassVar[str] = "The server"
    """The name of the server in messages."""

    async def status(self, engine: EngineClient) -> InstanceStatus | None:
        """``None``: such a server reports no load of all its models together."""
        return None

    def is_not_loaded(self, status: int, body: bytes) -> bool:
        """By the words of the error."""
        return 400 <= status < 600 and _NOT_LOADED.search(_reason(body)) is not None

    async def ask(self, engine: EngineClient, path: str, body: Any) -> str:
        """Post ``body`` as JSON. Return the server's reason for a refusal; empty if it answers 200."""
        return _refusal(await engine.request("POST", path, msgspec.json.encode(body)))

    def load_failed(self, model: str, why: str) -> LoadFailed:
        """Return the error of a load: ``NotEnoughMemory`` if ``why`` reports a lack of memory, else ``LoadFailed``."""
        kind = NotEnoughMemory if tells_of_too_little_memory(why) else LoadFailed
        return kind(f"{self.server} did not load '{model}': {why}")

    def unload_failed(self, model: str, why: str) -> LoadFailed:
        """Return the error of an unload."""
        return LoadFailed(f"{self.server} did not unload '{model}': {why}")


class _LoadRefusal(msgspec.Struct):
    error: Any = None


def _refusal(response: EngineResponse) -> str:
    """The ``error`` of an answer, which is a text, or an object with a ``message``; empty for an answer with 200."""
    return "" if response.status == 200 else _reason(response.body) or f"status {response.status}"


def _reason(body: bytes) -> str:
    try:
        error = msgspec.json.decode(body, type=_LoadRefusal).error
    except (ValueError, RecursionError):
        return ""
    text = error.get("message") if isinstance(error, dict) else error
    return str(text) if text else ""
