"""A fake server in a thread, written from the documentation of a real one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from typing_extensions import Self


class PlayedServer:
    """An HTTP server whose answers a subclass makes. Use it as a context manager.

    ::

        class FakeLoader(PlayedServer):
            def get(self, path: str) -> tuple[int, object]:
                return (200, {"models": []}) if path == "/api/models" else (404, {"error": "not found"})

        with FakeLoader() as server:
            check_driver(LoaderDriver, server.url, "qwen")

    Each request runs in its own thread. An answer is a status and JSON, bytes, or lines, which the server sends one by
    one. The server sets ``left`` when a client leaves before the end.
    """

    content_type: ClassVar[str] = "application/json"

    def __init__(self) -> None:
        self.left = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def get(self, path: str) -> tuple[int, object]:
        """Return the answer to a ``GET``; ``path`` includes the query."""
        return 404, {"error": "not found"}

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, object]:
        """Return the answer to a ``POST`` of JSON; an empty body counts as an empty object."""
        return 404, {"error": "not found"}


def _handler(server: PlayedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(*server.get(self.path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            self._answer(*server.post(self.path, json.loads(body) if body else {}))

        def _answer(self, status: int, answer: object) -> None:
            try:
                self._send(status, answer)
            except OSError:
                self.close_connection = True
                server.left.set()

        def _send(self, status: int, answer: object) -> None:
            if isinstance(answer, (bytes, dict, list)):
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self._head(status, server.content_type, f"{len(data)}")
                self.wfile.write(data)
            elif isinstance(answer, Iterable):
                self._head(status, "text/event-stream", None)
                self.close_connection = True
                for line in answer:
                    self.wfile.write(line)

        def _head(self, status: int, content_type: str, length: str | None) -> None:
            self.send_response(status)
            self.send_header("content-type", content_type)
            self.send_header(*(("connection", "close") if length is None else ("content-length", length)))
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
