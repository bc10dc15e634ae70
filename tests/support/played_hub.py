"""A server that plays the Hugging Face hub and Ollama's registry, as their public documentation describes them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any
from urllib.parse import unquote


class PlayedHub:
    """Repositories and models by name. ``gated``: those that ask for ``token``."""

    def __init__(self) -> None:
        self.url = ""
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.models: dict[str, list[tuple[str, bytes]]] = {}
        self.gated: set[str] = set()
        self.token = "hf_right"
        self.elsewhere: PlayedHub | None = None
        """The server that files are redirected to."""
        self.breaks_after: list[int] = []
        """Of the next answers with a file, each ends after so many bytes."""
        self.claims: dict[str, Mapping[str, Any]] = {}
        """What the list of files says of a file instead of the truth."""
        self.link = "Link"
        """How it writes the name of that header."""
        self.endless = False
        self.ranges = True
        self.released: Event | None = None
        """Files are sent by half until this is set."""
        self.asked: list[tuple[str, Mapping[str, str]]] = []

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path.partition("?")[0]
        self.asked.append((path, dict(request.headers.items())))
        parts = path.strip("/").split("/")
        if path.startswith("/api/models/"):
            self._hub_page(request, "/".join(parts[2:4]), parts[4:])
        elif len(parts) > 4 and parts[2] == "resolve":
            self._hub_file(request, "/".join(parts[:2]), unquote("/".join(parts[4:])))
        elif parts[0] == "v2":
            self._registry(request, "/".join(parts[1:3]), parts[3], parts[4])
        elif path.startswith("/files/"):
            self.send_file(request, bytes.fromhex(parts[1]) if self.elsewhere is None else b"")
        else:
            request.send_error(404)

    def _allowed(self, request: BaseHTTPRequestHandler, repository: str) -> bool:
        if repository not in self.repositories:
            request.send_error(404)
            return False
        if repository in self.gated and request.headers.get("Authorization") != f"Bearer {self.token}":
            request.send_error(401)
            return False
        return True

    def _hub_page(self, request: BaseHTTPRequestHandler, repository: str, rest: list[str]) -> None:
        if not self._allowed(request, repository):
            return
        if not rest:
            send_json(request, {"id": repository, "sha": "abc123"})
            return
        listed = []
        for name, content in self.repositories[repository].items():
            entry: dict[str, Any] = {"type": "file", "path": name, "size": len(content)}
            if name.endswith((".gguf", ".safetensors")):
                entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content)}
                entry["lfs"].update(self.claims.get(name, {}))
            listed.append(entry)
        if "cursor" in request.path or len(listed) < 2:
            send_json(request, listed[1:] or listed)
        else:  # a page with one file, and the rest
            link = f'<{self.url}/api/models/{repository}/tree/{rest[1]}?recursive=true&cursor=2>; rel="next"'
            send_json(request, listed[:1], {self.link: link})

    def _hub_file(self, request: BaseHTTPRequestHandler, repository: str, name: str) -> None:
        if not self._allowed(request, repository):
            return
        content = self.repositories[repository].get(name)
        if content is None:
            request.send_error(404)
        elif self.elsewhere is not None:
            request.send_response(302)
            request.send_header("Location", f"{self.elsewhere.url}/files/{content.hex()}")
            request.send_header("Content-Length", "0")
            request.end_headers()
        else:
            self.send_file(request, content)

    def _registry(self, request: BaseHTTPRequestHandler, name: str, what: str, which: str) -> None:
        blobs = {f"sha256:{hashlib.sha256(content).hexdigest()}": content for content in self._layers(name)}
        if what == "manifests" and f"{name}:{which}" in self.models:
            layers = [
                {
                    "mediaType": f"application/vnd.ollama.image.{kind}",
                    "digest": f"sha256:{hashlib.sha256(content).hexdigest()}",
                    "size": len(content),
                }
                for kind, content in self.models[f"{name}:{which}"]
            ]
            send_json(request, {"schemaVersion": 2, "layers": layers})
        elif what == "blobs" and which in blobs:
            self.send_file(request, blobs[which])
        else:
            request.send_error(404)

    def _layers(self, name: str) -> Iterator[bytes]:
        for known, layers in self.models.items():
            if known.rpartition(":")[0] == name:
                yield from (content for _, content in layers)

    def send_file(self, request: BaseHTTPRequestHandler, content: bytes) -> None:
        """Send a file, from where the client asks for, with the faults that are set."""
        start = 0
        if self.ranges and (asked := request.headers.get("Range")):
            start = int(asked.removeprefix("bytes=").partition("-")[0])
        if start and start >= len(content):
            request.send_error(416)
            return
        request.send_response(206 if start else 200)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        request.send_header("Content-Length", str(10**12 if self.endless else len(content) - start))
        request.end_headers()
        if self.breaks_after:
            request.wfile.write(content[start : start + self.breaks_after.pop(0)])
            request.close_connection = True
            return
        if self.released is not None:
            half = (start + len(content)) // 2
            request.wfile.write(content[start:half])
            request.wfile.flush()
            self.released.wait(60)
            start = half
        request.wfile.write(content[start:])
        while self.endless:
            request.wfile.write(b"x" * 65536)


def send_json(request: BaseHTTPRequestHandler, value: object, headers: Mapping[str, str] = {}) -> None:
    """Send JSON."""
    body = json.dumps(value).encode()
    request.send_response(200)
    for name, text in {**headers, "Content-Length": str(len(body))}.items():
        request.send_header(name, text)
    request.end_headers()
    request.wfile.write(body)


@contextmanager
def played_hub() -> Iterator[PlayedHub]:
    """A running hub."""
    hub = PlayedHub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            try:
                hub.answer(self)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
