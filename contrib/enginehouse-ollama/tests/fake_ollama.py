"""An Ollama server, played by a thread. Its answers are those of https://github.com/ollama/ollama/blob/main/docs/api.md.

- "List Local Models", "List Running Models", "Show Model Information", "Pull a Model", "Version";
- "Load a model" and "Unload a model" below "Generate a completion": an empty prompt loads, ``keep_alive: 0`` unloads;
- errors are ``{"error": "..."}``.
"""

from __future__ import annotations

import json
from typing import Any

from enginehouse.testing import PlayedServer

GIB = 1024**3


class FakeOllama(PlayedServer):
    """``models``: name -> capabilities. ``room``: how many fit. ``loads``: those loaded so far."""

    def __init__(self, **models: list[str]) -> None:
        super().__init__()
        self.models = models
        self.running: list[str] = []
        self.room = 100
        self.loads: list[str] = []

    def get(self, path: str) -> tuple[int, Any]:
        if path == "/api/version":
            return 200, {"version": "0.12.6"}
        if path == "/api/tags":
            return 200, {"models": [self._entry(name) for name in self.models]}
        if path == "/api/ps":
            more = {"expires_at": "2318-10-20T12:00:00Z", "size_vram": GIB, "context_length": 4096}
            return 200, {"models": [self._entry(name) | more for name in self.running]}
        return 404, {"error": "not found"}

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        name = body["model"]
        if path == "/api/pull":
            lines = PULL if name != "nosuch" else [{"error": "pull model manifest: file does not exist"}]
            return 200, b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        if name not in self.models:
            return 404, {"error": f"model '{name}' not found"}
        if path == "/api/show":
            info = {"general.architecture": "llama", "llama.context_length": 131072}
            return 200, {"details": {"format": "gguf"}, "model_info": info, "capabilities": self.models[name]}
        if path == "/api/generate" and "embedding" in self.models[name]:
            return 400, {"error": f'"{name}" does not support generate'}
        if path in ("/api/generate", "/api/embed"):
            return self._keep(name, body["keep_alive"])
        if path == "/v1/chat/completions":
            message = {"role": "assistant", "content": "Hi"}
            return 200, {"id": "1", "model": name, "choices": [{"index": 0, "message": message}]}
        return 404, {"error": "not found"}

    def _keep(self, name: str, keep_alive: int) -> tuple[int, Any]:
        done: dict[str, Any] = {"model": name, "created_at": "2026-01-01T00:00:00Z", "response": "", "done": True}
        if keep_alive == 0:
            self.running = [each for each in self.running if each != name]
            return 200, done | {"done_reason": "unload"}
        self.loads.append(name)
        if name not in self.running and len(self.running) >= self.room:
            return 500, {"error": "model requires more system memory (5.6 GiB) than is available (4.2 GiB)"}
        self.running = [each for each in self.running if each != name] + [name]
        return 200, done | {"done_reason": "load"}

    def _entry(self, name: str) -> dict[str, Any]:
        return {"name": name, "model": name, "size": 5 * GIB, "digest": "6a0746a1ec1a", "details": {"family": "llama"}}


PULL = [
    {"status": "pulling manifest"},
    {"status": "pulling 6a0746a1ec1a", "digest": "sha256:6a07", "total": 2142590208, "completed": 241970},
    {"status": "pulling 6a0746a1ec1a", "digest": "sha256:6a07", "total": 2142590208, "completed": 2142590208},
    {"status": "verifying sha256 digest"},
    {"status": "success"},
]
