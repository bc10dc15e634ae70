"""An SGLang server, played by a thread. Its answers are those of SGLang 0.5.23, as its documentation and source say.

| path | source, below https://docs.sglang.io/ or https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/ |
|---|---|
| ``/health``, ``/model_info``, ``/server_info``, ``/flush_cache``, ``/tokenize`` | ``basic_usage/native_api.html`` |
| their older names ``/get_model_info``, ``/get_server_info``; ``/abort_request`` | ``entrypoints/http_server.py`` |
| ``/v1/models``, errors, answers and streams | ``entrypoints/openai/protocol.py``, ``sse_utils.py``, \
``serving_chat.py``, ``serving_completions.py`` |
| ``/metrics`` | ``references/production_metrics.html``, ``observability/metrics_collector.py`` |
| ``/release_memory_occupation`` and its reverse | ``advanced_features/sglang_for_rl.html``, \
``managers/scheduler_components/weight_updater.py``: it crashes if it is busy, or resumed while it is awake |
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from enginehouse_kit.testing import PlayedServer

MODEL = "qwen/qwen2.5-0.5b-instruct"
WORDS = [" one", " two", " three", " four", " five", " six", " seven", " eight"]
_PROMPT = [7, 8]
_A_STEP_S = 0.002
_GAUGE = '# HELP sglang:{0} {1}\n# TYPE sglang:{0} gauge\nsglang:{0}{{model_name="' + MODEL + '"}} {2}\n'
_NO_IDS_IN_STREAMS = (
    "return_token_ids is not supported with streaming on /v1/chat/completions. "
    "Please set stream=false when using return_token_ids=true."
)


class FakeSglang(PlayedServer):
    """``old``: a release before ``/model_info`` and ``/server_info``, which knows no ``return_token_ids``.

    ``asleep``: its memory is released. ``crashed``: it did what ends a real one. ``asked``: the paths of ``POST``.
    """

    def __init__(self, *, old: bool = False) -> None:
        super().__init__()
        self.old = old
        self.asleep = False
        self.crashed = False
        self.asked: list[str] = []
        self.running = 0
        self._lock = threading.Lock()
        self._aborted = threading.Event()

    def get(self, path: str) -> tuple[int, object]:
        if path in ("/health", "/health_generate"):  # it generates a token
            self.crashed |= self.asleep
            return (503 if self.crashed else 200), b""
        if path == "/v1/models":
            card = {"id": MODEL, "object": "model", "created": 1, "owned_by": "sglang", "root": MODEL, "parent": None}
            return 200, {"object": "list", "data": [card | {"max_model_len": 4096}]}
        if path == ("/get_model_info" if self.old else "/model_info"):
            return 200, _MODEL_INFORMATION
        if path == ("/get_server_info" if self.old else "/server_info"):
            return 200, _SERVER_INFORMATION
        if path == "/metrics":
            return 200, self._metrics().encode()
        return 404, {"detail": "Not Found"}

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, object]:
        self.asked.append(path)
        if path == "/abort_request":
            self._aborted.set()
            return 200, b""
        if path == "/flush_cache":
            return (400, b"Flush cache failed.\n") if self.running else (200, b"Cache flushed.\n")
        if path in ("/release_memory_occupation", "/resume_memory_occupation"):
            releases = path.startswith("/release")
            self.crashed |= bool(self.running) if releases else not self.asleep
            self.asleep = releases
            return 200, b"null"
        if path == "/tokenize":
            tokens = [7] * len(body["prompt"].split())
            return 200, {"tokens": tokens, "count": len(tokens), "max_model_len": 131072}
        if path in ("/v1/chat/completions", "/v1/completions"):
            return self._generate(path, body)
        return 404, {"detail": "Not Found"}

    def _generate(self, path: str, body: dict[str, Any]) -> tuple[int, object]:
        chat = path == "/v1/chat/completions"
        if chat and body.get("stream") and body.get("return_token_ids") and not self.old:
            error = {"object": "error", "message": _NO_IDS_IN_STREAMS, "type": "BadRequest", "param": None, "code": 400}
            return 400, error
        if not body.get("stream"):
            return 200, self._whole(body)
        return 200, self._stream(body, self._chat_events(body) if chat else self._completion_events(body))

    def _whole(self, body: dict[str, Any]) -> dict[str, Any]:
        made = min(body["max_tokens"], len(WORDS))
        message = {"role": "assistant", "content": "".join(WORDS[:made]), "reasoning_content": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "length", "matched_stop": None}
        usage = {
            "prompt_tokens": 30,
            "total_tokens": 30 + made,
            "completion_tokens": made,
            "prompt_tokens_details": None,
            "reasoning_tokens": 0,
            "completion_tokens_details": None,
        }
        return _HEAD | {"object": "chat.completion", "choices": [choice], "usage": usage, "metadata": None}

    def _chat_events(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield _chat_event({"role": "assistant", "content": ""})
        made = len(body["messages"][-1]["content"].split()) if body.get("continue_final_message") else 0
        for number in range(made, made + body["max_tokens"]):
            yield _chat_event({"content": WORDS[number % len(WORDS)]})
        yield _chat_event({}, "length")

    def _completion_events(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        tells_ids = body.get("return_token_ids") and not self.old
        made = len(body["prompt"]) - len(_PROMPT) if isinstance(body["prompt"], list) else 0
        for number in range(made, made + body["max_tokens"]):
            last = "length" if number + 1 == made + body["max_tokens"] else None
            choice: dict[str, Any] = {"index": 0, "text": WORDS[number % len(WORDS)], "logprobs": None}
            choice |= {"finish_reason": last, "matched_stop": None}
            if tells_ids:
                choice |= {"token_ids": [number]} | ({} if number > made else {"prompt_token_ids": _PROMPT})
            yield _HEAD | {"object": "text_completion", "choices": [choice], "usage": None}

    def _stream(self, body: dict[str, Any], events: Iterator[dict[str, Any]]) -> Iterator[bytes]:
        self._aborted.clear()
        with self._lock:
            self.running += 1
        try:
            for number, event in enumerate(events):
                if self._aborted.is_set():
                    return
                yield b"data: " + json.dumps(event).encode() + b"\n\n"
                if number > len(WORDS):
                    self.left.wait(_A_STEP_S)
            yield b"data: [DONE]\n\n"
        finally:
            with self._lock:
                self.running -= 1

    def _metrics(self) -> str:
        gauges = (
            ("num_running_reqs", "The number of running requests.", self.running),
            ("num_queue_reqs", "The number of requests in the waiting queue.", 0),
            ("num_used_tokens", "The number of used tokens.", 40 * self.running),
            ("token_usage", "The token usage.", 0.01 * self.running),
            ("max_total_num_tokens", "Maximum total number of tokens in the KV cache pool.", 4000),
        )
        return "".join(_GAUGE.format(*each) for each in gauges)


def _chat_event(delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"reasoning_content": None, **delta}, "logprobs": None, "finish_reason": finish}
    return _HEAD | {"object": "chat.completion.chunk", "choices": [choice | {"matched_stop": None}]}


_HEAD: dict[str, Any] = {"id": "b2a5", "created": 1, "model": MODEL}
_MODEL_INFORMATION = {
    "model_path": MODEL,
    "served_model_name": MODEL,
    "tokenizer_path": MODEL,
    "is_generation": True,
    "preferred_sampling_params": None,
    "weight_version": "default",
    "load_format": "auto",
    "reasoning_parser": None,
    "tool_call_parser": None,
    "disaggregation_mode": "null",
    "has_image_understanding": False,
    "has_audio_understanding": False,
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
}
_SERVER_INFORMATION = {
    "model_path": MODEL,
    "max_running_requests": None,
    "max_total_num_tokens": 20480,
    "internal_states": [
        {
            "last_gen_throughput": 129.3,
            "memory_usage": {"weight": 0.98, "kvcache": 0.23, "token_capacity": 20480, "graph": 0},
            "effective_max_running_requests_per_dp": 128,
        }
    ],
    "version": "0.5.23",
}
