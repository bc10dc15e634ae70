"""A llama-server in router mode, played by a thread: a test decides when models load, and how many fit.

The shapes are those of https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md ("Using multiple
models"), as a real one (b11434) answers them.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

_OUT_OF_MEMORY = 137


class FakeRouter:
    """Serves ``models``. Use it as a context manager.

    ``open``: loads end once it is set. ``room``: how many models fit; one more is killed, as the kernel does.
    ``forgetful``: it refuses loaded models as not loaded. ``reports``: it has ``/models/sse``.
    ``loads``: the models loaded so far. ``served``: those that answered a request, in order.
    """

    def __init__(self, *models: str) -> None:
        self.models: Sequence[str] = models
        self.open = threading.Event()
        self.open.set()
        self.room = 100
        self.forgetful = False
        self.reports = True
        self._readers: list[queue.SimpleQueue[bytes]] = []
        self.loads: list[str] = []
        self.served: list[str] = []
        self.states: dict[str, Mapping[str, Any]] = {}
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FakeRouter:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.open.set()
        for reader in self._readers:
            reader.put(b"")
        self._server.shutdown()
        self._server.server_close()

    def is_loaded(self, model: str) -> bool:
        return self.states.get(model, {}).get("value") == "loaded"

    def load_by_itself(self, model: str) -> None:
        """Load a model that the gateway has not asked for."""
        self._set(model, "loaded")

    def unload_by_itself(self, model: str) -> None:
        """Unload a model as a server does with an idle one."""
        self._set(model, "unloaded")

    def listed(self) -> dict[str, Any]:
        entries = [{"id": model, "object": "model", "status": self._status(model)} for model in self.models]
        return {"object": "list", "data": entries}

    def load(self, model: str) -> tuple[int, dict[str, Any]]:
        with self._lock:
            if self._status(model)["value"] != "unloaded":
                return 400, {"error": {"code": 400, "message": "model is already running"}}
            self._set(model, "loading")
            self.report(model, {"status": "loading", "progress": {"current": "text_model", "value": 0.5}})
            self.loads.append(model)
        threading.Thread(target=self._finish_load, args=(model,), daemon=True).start()
        return 200, {"success": True}

    def unload(self, model: str) -> tuple[int, dict[str, Any]]:
        with self._lock:
            if self._status(model)["value"] == "unloaded":
                return 400, {"error": {"code": 400, "message": "model is not running"}}
            self._set(model, "unloaded")
        return 200, {"success": True}

    def _finish_load(self, model: str) -> None:
        self.open.wait(60)
        with self._lock:
            loaded = sum(self.is_loaded(each) for each in self.models)
            if self._status(model)["value"] != "loading":
                return
            killed = {"failed": True, "exit_code": _OUT_OF_MEMORY}
            self._set(model, "loaded") if loaded < self.room else self._set(model, "unloaded", **killed)

    def events(self) -> Iterator[bytes]:
        """What a reader of ``/models/sse`` gets until the server closes."""
        reader: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._readers.append(reader)
        while event := reader.get():
            yield event

    def report(self, model: str, data: Mapping[str, Any]) -> None:
        event = {"model": model, "event": "status_change", "data": data}
        for reader in self._readers:
            reader.put(b"data: " + json.dumps(event).encode() + b"\n\n")

    def _set(self, model: str, value: str, **more: Any) -> None:
        self.states[model] = {"value": value, **more}
        self.report(model, {"status": value, **more})

    def _status(self, model: str) -> Mapping[str, Any]:
        return self.states.get(model, {"value": "unloaded"})


def _handler(router: FakeRouter) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/health":
                self._answer(200, {"status": "ok"})
            elif self.path in ("/models", "/v1/models"):
                self._answer(200, router.listed())
            elif self.path == "/models/sse" and router.reports:
                self._stream(router.events())
            else:
                self._answer(404, {})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            model = asked["model"]
            if self.path == "/models/load":
                self._answer(*router.load(model))
            elif self.path == "/models/unload":
                self._answer(*router.unload(model))
            elif router.forgetful or not router.is_loaded(model):
                self._answer(400, {"error": {"code": 400, "message": "model is not loaded"}})
            else:
                router.served.append(model)
                message = {"role": "assistant", "content": "Hi"}
                if asked.get("stream"):
                    chunk = {"id": "1", "model": model, "choices": [{"index": 0, "delta": message}]}
                    self._stream(iter([b"data: " + json.dumps(chunk).encode() + b"\n\n", b"data: [DONE]\n\n"]))
                    return
                self._answer(200, {"id": "1", "model": model, "choices": [{"index": 0, "message": message}]})

        def _answer(self, status: int, body: Mapping[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _stream(self, events: Iterator[bytes]) -> None:
            self.close_connection = True
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            with suppress(OSError):
                for event in events:
                    self.wfile.write(event)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
