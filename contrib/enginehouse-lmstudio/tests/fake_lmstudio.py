"""An LM Studio server, played by a thread. Its answers are those of its public documentation:

- https://lmstudio.ai/docs/developer/rest/list: ``GET /api/v1/models``;
- https://lmstudio.ai/docs/developer/rest/load: ``POST /api/v1/models/load`` answers when the model is loaded;
- https://lmstudio.ai/docs/developer/rest/unload: ``POST /api/v1/models/unload`` takes an ``instance_id``;
- https://lmstudio.ai/docs/developer/rest/streaming-events, "error": the form of errors. The documentation has no
  text for too little memory; this one is what users report: https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues.

The older ``/api/v0/models`` can neither load nor unload, so nothing asks it.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

from enginehouse_kit.testing import PlayedServer


class FakeLMStudio(PlayedServer):
    """``models``: key -> type. ``open``: loads end once it is set. ``room``: the most models.

    ``loads``: the models loaded so far.
    """

    def __init__(self, **models: str) -> None:
        super().__init__()
        self.models = models
        self.instances: dict[str, list[str]] = {key: [] for key in models}
        self.open = threading.Event()
        self.open.set()
        self.room = 100
        self.loads: list[str] = []

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.open.set()
        super().__exit__(kind, error, trace)

    def running(self) -> list[str]:
        return [key for key, instances in self.instances.items() if instances]

    def get(self, path: str) -> tuple[int, Any]:
        if path == "/api/v1/models":
            return 200, {"models": [self._entry(key, kind) for key, kind in self.models.items()]}
        if path == "/v1/models":
            return 200, {"object": "list", "data": [{"id": key, "object": "model"} for key in self.models]}
        return 404, {"error": f"Unexpected endpoint or method. (GET {path})"}

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/api/v1/models/load":
            return self._load(body["model"])
        if path == "/api/v1/models/unload":
            for instances in self.instances.values():
                if body["instance_id"] in instances:
                    instances.remove(body["instance_id"])
                    return 200, {"instance_id": body["instance_id"]}
            return 404, _error("model_not_found", f"No instance '{body['instance_id']}' is loaded")
        if path == "/v1/chat/completions":
            message = {"role": "assistant", "content": "Hi"}
            return 200, {"id": "1", "model": body["model"], "choices": [{"index": 0, "message": message}]}
        return 404, {"error": f"Unexpected endpoint or method. (POST {path})"}

    def _load(self, key: str) -> tuple[int, Any]:
        if key not in self.models:
            return 404, _error("model_not_found", f"Model '{key}' not found")
        self.loads.append(key)
        self.open.wait(30)
        if len(self.running()) >= self.room:
            why = "Model loading was stopped due to insufficient system resources."
            return 500, _error("internal_error", f'Failed to load model "{key}". Error: {why}')
        name = key if not self.instances[key] else f"{key}:{len(self.instances[key]) + 1}"
        self.instances[key].append(name)
        return 200, {"type": self.models[key], "instance_id": name, "load_time_seconds": 9.099, "status": "loaded"}

    def _entry(self, key: str, kind: str) -> dict[str, Any]:
        llm = kind == "llm"
        config = {"context_length": 8192} | (_LLM_CONFIG if llm else {})
        entry = {
            "type": kind,
            "publisher": "lmstudio-community",
            "key": key,
            "display_name": key,
            "quantization": {"name": "Q4_K_M", "bits_per_weight": 4},
            "size_bytes": 5_000_000_000,
            "params_string": "8B" if llm else None,
            "loaded_instances": [{"id": name, "config": config} for name in self.instances[key]],
            "max_context_length": 131072,
            "format": "gguf",
        }
        return entry | (_OF_LLMS if llm else {})


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"type": kind, "message": message}}


_LLM_CONFIG = {
    "eval_batch_size": 512,
    "parallel": 4,
    "flash_attention": True,
    "num_experts": 0,
    "offload_kv_cache_to_gpu": True,
}
_OF_LLMS = {
    "architecture": "llama",
    "capabilities": {"vision": False, "trained_for_tool_use": True},
    "description": None,
}
