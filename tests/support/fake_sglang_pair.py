"""SGLang servers of which one reads prompts and another one answers, played by threads as the source of 0.5.23 says.

| what | source, below https://github.com/sgl-project/sglang/blob/main/ |
|---|---|
| both get the same body with ``bootstrap_host``, ``bootstrap_port``, ``bootstrap_room``; the answer is the decode \
server's | ``sgl-model-gateway/src/routers/http/pd_router.rs``, ``sgl-router``'s ``mini_lb.py`` |
| without a room, either refuses | ``python/sglang/srt/managers/scheduler.py`` (``Invalid request: ...``) |
| without a port, the decode server takes its own ``disaggregation_bootstrap_port`` | the same file |
| ``GET /route`` of the bootstrap server, which the decode server asks first | \
``python/sglang/srt/disaggregation/common/conn.py`` (``CommonKVBootstrapServer``) |
| ``disaggregation_mode`` and ``disaggregation_bootstrap_port`` in ``/server_info`` | \
``entrypoints/http_server.py``: the resolved arguments |
| an abort is 400 or 500; in a stream, an event with ``error`` | ``managers/tokenizer_manager.py``, \
``entrypoints/openai/serving_base.py`` |

The transfer itself, which goes by ZeroMQ and RDMA, is a meeting of two threads.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

from enginehouse_kit.testing import PlayedServer
from tests.support.fake_sglang import FakeSglang

_LONGEST_S = 30
_TRANSFER_FAILED = "Decode transfer failed for request rank=0 decode_req.req.rid='r' decode_req.req.bootstrap_room=1"
_ROUTE = "/route?prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1"


class _Room:
    """Where the KV cache of one request changes hands."""

    def __init__(self) -> None:
        self.decode_is_there = threading.Event()
        self.transferred = threading.Event()


class _Bootstrap(PlayedServer):
    """The bootstrap server of a prefill server, with the rooms of its requests."""

    def __init__(self) -> None:
        super().__init__()
        self._rooms: dict[int, _Room] = {}
        self._lock = threading.Lock()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def room(self, number: int) -> _Room:
        with self._lock:
            return self._rooms.setdefault(number, _Room())

    def get(self, path: str) -> tuple[int, object]:
        if path != _ROUTE:
            return 404, b"Bootstrap info not Found"
        sizes = {"attn_tp_size": 1, "attn_cp_size": 1, "dp_size": 1, "pp_size": 1, "page_size": 1}
        return 200, sizes | {"kv_cache_dtype": "auto", "follow_bootstrap_room": True}


class FakePrefill(FakeSglang):
    """A server with ``--disaggregation-mode prefill``.

    ``bodies``: what it was asked. ``fails``: the status of an abort that its requests end with; ``refused``: a field,
    with which they are refused as wrong. ``gone``: it ends connections without an answer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bootstrap = _Bootstrap()
        self.bodies: list[dict[str, Any]] = []
        self.fails = 0
        self.refused = ""
        self.gone = False
        self.mode = "prefill"

    def __enter__(self) -> FakePrefill:
        self.bootstrap.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.bootstrap.__exit__(*error)

    def get(self, path: str) -> tuple[int, object]:
        status, answer = super().get(path)
        if path == "/server_info" and isinstance(answer, dict):
            answer = answer | {"disaggregation_mode": self.mode, "disaggregation_bootstrap_port": self.bootstrap.port}
        return status, answer

    def _generate(self, path: str, body: dict[str, Any]) -> tuple[int, object]:
        self.bodies.append(body)
        if self.gone:
            raise ConnectionAbortedError
        if (refusal := _without_room(body)) is not None:
            return refusal
        if self.fails or self.refused in body:
            return _abort(body, self.fails or 400, "Prefill transfer failed")
        room = self.bootstrap.room(body["bootstrap_room"])
        room.decode_is_there.wait(_LONGEST_S)
        room.transferred.set()
        return super()._generate(path, body | {"max_tokens": 1})


class FakeDecode(FakeSglang):
    """A server with ``--disaggregation-mode decode``, which finds the prefill servers given by their ports.

    ``most_events``: it ends connections in the middle of longer streams, each after ``before_break`` was called.
    """

    def __init__(self, *prefills: FakePrefill) -> None:
        super().__init__()
        self.bodies: list[dict[str, Any]] = []
        self.fails = 0
        self.most_events: int | None = None
        self.before_break: Callable[[], None] = lambda: None
        self._rooms = {prefill.bootstrap.port: prefill.bootstrap for prefill in prefills}
        self._default_port = prefills[0].bootstrap.port

    def _generate(self, path: str, body: dict[str, Any]) -> tuple[int, object]:
        self.bodies.append(body)
        if (refusal := _without_room(body)) is not None:
            return refusal
        if self.fails:
            return _abort(body, self.fails, _TRANSFER_FAILED)
        port = self._default_port if body["bootstrap_port"] is None else body["bootstrap_port"]
        with urllib.request.urlopen(f"http://{body['bootstrap_host']}:{port}{_ROUTE}", timeout=30) as answer:
            assert json.load(answer)["dp_size"] == 1
        room = self._rooms[port].room(body["bootstrap_room"])
        room.decode_is_there.set()
        if not room.transferred.wait(_LONGEST_S):
            return _abort(body, 500, _TRANSFER_FAILED)
        return super()._generate(path, body)

    def _stream(self, body: dict[str, Any], events: Iterator[dict[str, Any]]) -> Iterator[bytes]:
        for number, event in enumerate(super()._stream(body, events)):
            if number == self.most_events:
                self.before_break()
                return
            yield event


def _without_room(body: dict[str, Any]) -> tuple[int, object] | None:
    if body.get("bootstrap_room") is not None:
        return None
    why = "Invalid request: Disaggregated request received without bootstrap room id. req.rid='r'"
    return _abort(body, 400, why)


def _abort(body: dict[str, Any], status: int, why: str) -> tuple[int, object]:
    """The answer to a request that the scheduler aborts."""
    kind = {400: "BAD_REQUEST", 500: "INTERNAL_SERVER_ERROR"}[status]
    if body.get("stream"):
        error = {"object": "error", "message": why, "type": kind, "param": None, "code": status}
        return 200, iter([b"data: " + json.dumps({"error": error}).encode() + b"\n\n", b"data: [DONE]\n\n"])
    kind = "BadRequest" if status == 400 else str(status)
    return status, {"object": "error", "message": why, "type": kind, "param": None, "code": status}
