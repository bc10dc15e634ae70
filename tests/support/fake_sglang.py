"""An SGLang server, played by a thread. Its answers are those of its public documentation:

- https://docs.sglang.io/basic_usage/native_api.html: ``/health``, ``/model_info``, ``/get_model_info``, ``/tokenize``;
- https://docs.sglang.io/references/production_metrics.html: ``/metrics``;
- https://docs.sglang.io/basic_usage/openai_api_completions.html: chats, whole and as streams, and the model list;
- https://docs.sglang.io/advanced_features/sglang_for_rl.html: ``/release_memory_occupation`` and its reverse.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

from enginehouse.testing import PlayedServer

MODEL = "qwen/qwen2.5-0.5b-instruct"
WORDS = [" one", " two", " three", " four", " five", " six", " seven", " eight"]
_A_STEP_S = 0.002
_GAUGE = '# HELP sglang:{0} {1}\n# TYPE sglang:{0} gauge\nsglang:{0}{{model_name="' + MODEL + '"}} {2}\n'


class FakeSglang(PlayedServer):
    """``old``: a release before ``/model_info``. ``asleep``: its memory is released. ``asked``: paths of ``POST``."""

    def __init__(self, *, old: bool = False) -> None:
        super().__init__()
        self.old = old
        self.asleep = False
        self.asked: list[str] = []
        self.running = 0
        self._lock = threading.Lock()

    def get(self, path: str) -> tuple[int, object]:
        if path in ("/health", "/health_generate"):
            return (503 if self.asleep else 200), b""
        if path == "/v1/models":
            card = {"id": MODEL, "object": "model", "created": 1, "owned_by": "sglang", "root": MODEL}
            return 200, {"object": "list", "data": [card | {"max_model_len": 4096}]}
        if path == ("/get_model_info" if self.old else "/model_info"):
            return 200, {
                "model_path": MODEL,
                "tokenizer_path": MODEL,
                "is_generation": True,
                "preferred_sampling_params": None,
                "weight_version": "default",
                "has_image_understanding": False,
                "has_audio_understanding": False,
                "model_type": "qwen2",
                "architectures": ["Qwen2ForCausalLM"],
            }
        if path == "/metrics":
            return 200, self._metrics().encode()
        return 404, {"detail": "Not Found"}

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, object]:
        self.asked.append(path)
        if path in ("/release_memory_occupation", "/resume_memory_occupation"):
            self.asleep = path.startswith("/release")
            return 200, b""
        if path == "/tokenize":
            return 200, {"tokens": [7] * len(body["prompt"].split()), "count": len(body["prompt"].split())}
        if path == "/v1/chat/completions":
            return 200, self._stream(body) if body.get("stream") else self._whole(body)
        return 404, {"detail": "Not Found"}

    def _whole(self, body: dict[str, Any]) -> dict[str, Any]:
        made = min(body["max_tokens"], len(WORDS))
        message = {"role": "assistant", "content": "".join(WORDS[:made]), "reasoning_content": None, "tool_calls": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "length", "matched_stop": None}
        usage = {
            "prompt_tokens": 30,
            "total_tokens": 30 + made,
            "completion_tokens": made,
            "prompt_tokens_details": None,
        }
        return self._head("chat.completion") | {"choices": [choice], "usage": usage}

    def _stream(self, body: dict[str, Any]) -> Iterator[bytes]:
        with self._lock:
            self.running += 1
        try:
            for number in range(body["max_tokens"]):
                delta = {"role": None, "content": WORDS[number % len(WORDS)], "reasoning_content": None}
                ids = {"token_ids": [number]} if body.get("return_token_ids") and not self.old else {}
                last = "length" if number + 1 == body["max_tokens"] else None
                choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": last, "matched_stop": None}
                yield self._event({"choices": [choice | ids], "usage": None})
                if number > len(WORDS):
                    self.left.wait(_A_STEP_S)
            yield b"data: [DONE]\n\n"
        finally:
            with self._lock:
                self.running -= 1

    def _event(self, more: dict[str, Any]) -> bytes:
        return b"data: " + json.dumps(self._head("chat.completion.chunk") | more).encode() + b"\n\n"

    @staticmethod
    def _head(kind: str) -> dict[str, Any]:
        return {"id": "b2a5", "object": kind, "created": 1, "model": MODEL}

    def _metrics(self) -> str:
        gauges = (
            ("num_running_reqs", "The number of running requests", self.running),
            ("num_queue_reqs", "The number of requests in the waiting queue", 0),
            ("num_used_tokens", "The number of used tokens", 40 * self.running),
            ("token_usage", "The token usage", 0.01 * self.running),
        )
        return "".join(_GAUGE.format(*each) for each in gauges)
