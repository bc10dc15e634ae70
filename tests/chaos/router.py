"""A scripted server that loads models itself, as ``llama-server`` does in router mode."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

from tests.chaos.answers import Answer, whole
from tests.chaos.engines import Bench, Engine, Serving
from tests.chaos.requests import Head

_LOADS = ("loads", "loads", "loads", "loads slowly", "is killed", "refuses", "hangs")


class Router(Engine):
    """Loads ``models`` on demand. Somebody else may load and unload them, too."""

    def __init__(self, bench: Bench, name: str, models: list[str], rng: random.Random, fault_rate: float) -> None:
        super().__init__(bench, name, models, rng, fault_rate)
        self._states: dict[str, dict[str, Any]] = {model: {"value": "unloaded"} for model in models}

    def crash(self) -> None:
        super().crash()
        self._states = {model: {"value": "unloaded"} for model in self._states}

    def meddle(self, model: str, how: str) -> None:
        """Do what somebody else asks of the server: ``load`` or ``unload`` a model."""
        self._states[model] = {"value": "loaded" if how == "load" else "unloaded"}

    def _respond(self, head: Head, body: bytes) -> tuple[Answer, Serving | None]:
        path = head.target.decode().partition("?")[0]
        if path in ("/models/load", "/models/unload"):
            model = json.loads(body)["model"]
            return (self._load(model) if path == "/models/load" else self._unload(model)), None
        model = self._model_of(body)
        if model and self._state(model) != "loaded" and not head.target.startswith(b"/models"):
            self._bench.note(self.name, f"has not loaded {model}")
            return whole(400, b'{"error": {"code": 400, "message": "model is not loaded"}}'), None
        return super()._respond(head, body)

    def _list(self) -> Answer:
        every = [{"id": model, "object": "model", "status": self._states[model]} for model in self._states]
        return whole(200, json.dumps({"object": "list", "data": every}).encode())

    def _model_of(self, body: bytes) -> str:
        return next((model for model in self._states if f'"model": "{model}"'.encode() in body), "")

    def _state(self, model: str) -> str:
        state = self._states[model]
        if state["value"] == "loading" and self._bench.calm:
            self._states[model] = state = {"value": "loaded"}
        return str(state["value"])

    def _load(self, model: str) -> Answer:
        if self._state(model) != "unloaded":
            return whole(400, b'{"error": {"code": 400, "message": "model is already running"}}')
        how = "loads" if self._bench.calm else self._rng.choice(_LOADS)
        self._bench.note(self.name, f"is asked to load {model} and {how}")
        if how == "refuses":
            return whole(500, b'{"error": {"code": 500, "message": "no"}}')
        self._states[model] = loading = {"value": "loading"}
        seconds = self._rng.uniform(0.0, 0.3) + 1.5 * (how == "loads slowly")
        if how != "hangs":
            self._bench.spawn(self._finish(model, loading, seconds, killed=how == "is killed"))
        return whole(200, b'{"success": true}')

    async def _finish(self, model: str, loading: dict[str, Any], seconds: float, *, killed: bool) -> None:
        await asyncio.sleep(seconds)
        if self._states[model] is loading:
            failed = {"value": "unloaded", "failed": True, "exit_code": 137}
            self._states[model] = failed if killed else {"value": "loaded"}

    def _unload(self, model: str) -> Answer:
        if self._state(model) == "unloaded":
            return whole(400, b'{"error": {"code": 400, "message": "model is not running"}}')
        self._states[model] = {"value": "unloaded"}
        return whole(200, b'{"success": true}')
