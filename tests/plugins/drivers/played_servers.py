"""Servers as their public documentation describes them:

- https://lemonade-server.ai/docs/api/lemonade/ and https://lemonade-server.ai/docs/api/openai/;
- https://theroyallab.github.io/tabbyAPI/;
- https://lite.koboldai.net/koboldcpp_api;
- https://docs.litellm.ai/docs/proxy/health and https://docs.litellm.ai/docs/proxy/model_management.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from enginehouse_kit.testing import PlayedServer

Answer = tuple[int, object]


class Server(PlayedServer):
    """Answers chats with ``Hi``, for any model."""

    def post(self, path: str, body: dict[str, Any]) -> Answer:
        if path == "/v1/chat/completions":
            message = {"role": "assistant", "content": "Hi"}
            return 200, {"id": "1", "model": body["model"], "choices": [{"index": 0, "message": message}]}
        return 404, {"error": {"message": f"no {path}"}}


class PlayedLemonade(Server):
    """``running``: the loaded models, ``room`` at most."""

    def __init__(self) -> None:
        super().__init__()
        self.running: list[str] = []
        self.room = 2

    def get(self, path: str) -> Answer:
        if path == "/v1/health":
            loaded = [{"model_name": name, "type": "llm", "device": "gpu", "pinned": False} for name in self.running]
            return 200, {"status": "ok", "version": "10.4.0", "all_models_loaded": loaded}
        if path == "/v1/models":
            return 200, {"object": "list", "data": MODELS_OF_LEMONADE}
        return 404, {}

    def post(self, path: str, body: dict[str, Any]) -> Answer:
        name = body.get("model_name")
        if path == "/v1/load":
            if name not in {model["id"] for model in MODELS_OF_LEMONADE}:
                return 404, {"error": {"message": f"Model not found: {name}", "type": "not_found"}}
            if len(self.running) >= self.room:
                return 200, {"status": "error", "message": "llama-server failed: out of memory"}
            self.running.append(str(name))
            return 200, {"status": "success", "message": f"Loaded model: {name}"}
        if path == "/v1/unload":
            if name not in self.running:
                return 404, {"status": "error", "message": f"Model not found: {name}"}
            self.running.remove(name)
            return 200, {"status": "success", "message": "Model unloaded successfully"}
        return super().post(path, body)


class PlayedTabby(Server):
    """``current``: the loaded model. ``trouble``: why a load breaks off."""

    def __init__(self) -> None:
        super().__init__()
        self.current = ""
        self.trouble = ""

    def get(self, path: str) -> Answer:
        if path == "/health":
            return 200, {"status": "healthy", "issues": []}
        if path == "/v1/models":
            return 200, {"object": "list", "data": [_card("qwen"), _card("gemma")]}
        if path == "/v1/model":
            if not self.current:
                return 400, {"detail": "No models are currently loaded."}
            return 200, {**_card(self.current), "parameters": {"max_seq_len": 8192, "cache_mode": "FP16"}}
        return 404, {}

    def post(self, path: str, body: dict[str, Any]) -> Answer:
        if path == "/v1/model/load":
            if body["name"] not in ("qwen", "gemma"):
                return 400, {"detail": "Could not find the model path for load. Check model name or config.yml?"}
            return 200, self._load(body["name"])
        if path == "/v1/model/unload":
            if not self.current:
                return 400, {"detail": "No models are currently loaded."}
            self.current = ""
            return 200, b"null"
        return super().post(path, body)

    def _load(self, name: str) -> Iterator[bytes]:
        progress = [
            {"model_type": "model", "module": module, "modules": 2, "status": "processing"} for module in (1, 2)
        ]
        if self.trouble:
            return iter([_event(progress[0]), _event({"error": {"message": self.trouble, "trace": "Traceback"}})])
        self.current = name
        return iter([*map(_event, progress), _event({**progress[1], "status": "finished"})])


class PlayedKobold(Server):
    """``current``: the loaded model. After ``reload_config``, ``away`` requests find a server that restarts."""

    def __init__(self, admin: int = 1) -> None:
        super().__init__()
        self.admin = admin
        self.current = "koboldcpp/qwen"
        self.away = 0

    def get(self, path: str) -> Answer:
        if self.away:
            self.away -= 1
            return 503, {"detail": {"type": "service_unavailable", "msg": "Server is busy"}}
        answers: dict[str, object] = {
            "/api/extra/version": {"result": "KoboldCpp", "version": "1.96", "vision": True, "admin": self.admin},
            "/api/v1/model": {"result": self.current},
            "/api/extra/true_max_context_length": {"value": 16384},
            "/api/extra/perf": {"last_process": 0.1, "last_eval": 1.2, "queue": 2, "idle": 0, "total_gens": 7},
            "/api/admin/list_options": ["big.kcpps", "gemma.gguf", "qwen.gguf", "unload_model"] if self.admin else [],
            "/v1/models": {"object": "list", "data": [{"id": self.current, "object": "model"}]},
        }
        return (200, answers[path]) if path in answers else (404, {})

    def post(self, path: str, body: dict[str, Any]) -> Answer:
        if path == "/api/admin/reload_config":
            if not self.admin:
                return 200, {"success": False}
            file = body["filename"]
            self.current = "inactive" if file == "unload_model" else f"koboldcpp/{file.removesuffix('.gguf')}"
            self.away = 4
            return 200, {"success": True}
        return super().post(path, body)


class PlayedLiteLLM(Server):
    """``may_ask``: whether the key may ask for information about models."""

    may_ask = True

    def get(self, path: str) -> Answer:
        if path == "/health/readiness":
            return 200, {"status": "connected", "db": "Not connected", "litellm_version": "1.81.0"}
        if path == "/v1/models":
            return 200, {"object": "list", "data": [{"id": "gpt"}, {"id": "embed"}]}
        if path == "/v1/model/info":
            return (200, {"data": DEPLOYMENTS_OF_LITELLM}) if self.may_ask else (403, {"error": {"message": "no"}})
        return 404, {}


def _card(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 1, "owned_by": "tabbyAPI", "parameters": None}


def _event(data: object) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


def _deployment(name: str, **info: Any) -> dict[str, Any]:
    return {"model_name": name, "litellm_params": {"model": f"openai/{name}"}, "model_info": {"id": "1", **info}}


MODELS_OF_LEMONADE: list[dict[str, Any]] = [
    {
        "id": "Qwen3-4B-GGUF",
        "object": "model",
        "recipe": "llamacpp",
        "size": 2.5,
        "downloaded": True,
        "max_context_window": 40960,
        "labels": ["reasoning", "tool-calling", "vision"],
    },
    {"id": "nomic-embed", "recipe": "llamacpp", "size": None, "downloaded": True, "labels": ["embeddings"]},
    {"id": "gpt-remote", "recipe": "cloud", "labels": []},
    {"id": "not-here", "recipe": "llamacpp", "size": 9.0, "downloaded": False, "labels": []},
]
_CHAT = {"mode": "chat", "supports_function_calling": True}
DEPLOYMENTS_OF_LITELLM = [
    _deployment("gpt", **_CHAT, max_input_tokens=128000, supports_vision=True, supports_response_schema=True),
    _deployment("gpt", **_CHAT, max_input_tokens=32768, supports_vision=False, supports_response_schema=False),
    _deployment("embed", mode="embedding", max_input_tokens=8192, supports_vision=None),
    _deployment("openai/*", mode=None),
]
