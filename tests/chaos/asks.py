"""Requests of clients, as bytes on the wire, and their outcomes."""

from __future__ import annotations

import json
import random
from typing import Any

PATHS = (
    "/v1/chat/completions",
    "/v1/chat/completions",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/messages",
    "/v1/responses",
    "/v1/embeddings",
)
STREAMING = frozenset(PATHS) - {"/v1/embeddings"}
ENDLESS = "~"
"""What names of any length consist of. A log line has 256 characters of one at most."""
LAST_EVENTS = {
    "/v1/chat/completions": b"data: [DONE]",
    "/v1/completions": b"data: [DONE]",
    "/v1/messages": b'data: {"type": "message_stop"}',
    "/v1/responses": b'data: {"type": "response.completed"}',
}


class Ask:
    """One request, and its answer as far as it came.

    ``served``: its head and body are right, so an engine may serve it. ``repeatable``: it may reach an engine twice.
    ``complete`` and ``broken`` say how the answer ended; ``starts_at`` is its offset on the connection.
    """

    def __init__(self, number: int, method: str, target: str, body: bytes, headers: list[tuple[str, str]]) -> None:
        self.nonce = b"nonce-%d-" % number
        self.method = method
        self.target = target
        self.path = target.partition("?")[0]
        self.body = body
        self.headers = headers
        self.model = ""
        self.stream = False
        self.version = "1.1"
        self.chunks = False
        self.expects = False
        self.closes = False
        self.served = True
        self.repeatable = True
        self.raw: bytes | None = None

        self.sent = False
        self.connection = ""
        self.starts_at = 0
        self.status = 0
        self.answer_headers: dict[bytes, bytes] = {}
        self.answer = b""
        self.complete = False
        self.broken = ""
        self.began_at = 0.0
        self.ended_at = 0.0

    @property
    def name(self) -> str:
        return self.nonce.decode().rstrip("-")

    def wire(self) -> bytes:
        """The whole request."""
        if self.raw is not None:
            return self.raw
        lines = [f"{self.method} {self.target} HTTP/{self.version}", "host: 127.0.0.1:8080"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        if self.expects:
            lines.append("expect: 100-continue")
        if self.closes:
            lines.append("connection: close")
        body = self.body
        if self.chunks:
            lines.append("transfer-encoding: chunked")
            middle = len(body) // 2
            pieces = [piece for piece in (body[:middle], body[middle:]) if piece]
            body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        elif body or self.method == "POST":
            lines.append(f"content-length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode() + body


def make_ask(rng: random.Random, number: int, models: list[str], keys: list[str]) -> Ask:
    """Any request, most of them right."""
    path = rng.choice(PATHS)
    model = rng.choice(models)
    body: dict[str, Any] = {"model": model, "prompt": f"PROMPT-SECRET nonce-{number}- {'x' * rng.choice((0, 9, 3000))}"}
    if rng.random() < 0.03:
        body["prompt"] += "y" * 300_000
    stream = path in STREAMING and rng.random() < 0.6
    if stream:
        body["stream"] = True
    headers = [("content-type", "application/json")]
    if rng.random() < 0.1:
        body["user"] = endless_name(rng, 60_000)
        headers.append(("x-session-id", endless_name(rng, 2000)))
    if keys:
        headers.append(("authorization", f"Bearer {rng.choice(keys)}"))
    if rng.random() < 0.3:
        headers.append(("x-request-id", f"nonce-{number}-"))
    target, repeatable = path, True
    kind = rng.random()
    if kind < 0.15:
        target += "?with=query"
    elif kind < 0.25:
        target, repeatable = f"/upstream/{model}{path}", False
    ask = Ask(number, "POST", target, json.dumps(body).encode(), headers)
    ask.path, ask.model, ask.stream, ask.repeatable = path, model, stream, repeatable
    ask.version = "1.0" if rng.random() < 0.05 else "1.1"
    ask.chunks = ask.version == "1.1" and rng.random() < 0.1
    ask.expects = ask.version == "1.1" and rng.random() < 0.05
    ask.closes = rng.random() < 0.1
    if rng.random() < 0.1:
        _spoil(rng, ask, bool(keys))
    return ask


def endless_name(rng: random.Random, most: int) -> str:
    """A name of nobody else's, which may be far too long."""
    return f"{rng.randrange(1_000_000)}-{ENDLESS * rng.choice((1, 300, most))}"


def plain_ask(number: int, model: str, keys: list[str], stream: bool) -> Ask:
    """A request without any peculiarity."""
    body = {"model": model, "prompt": f"PROMPT-SECRET nonce-{number}-", "stream": stream}
    headers = [("authorization", f"Bearer {keys[0]}")] if keys else []
    ask = Ask(number, "POST", "/v1/chat/completions", json.dumps(body).encode(), headers)
    ask.model, ask.stream = model, stream
    return ask


def _spoil(rng: random.Random, ask: Ask, has_keys: bool) -> None:
    """Make it a request that the gateway refuses."""
    ask.served = ask.chunks = False
    wire = ask.wire()
    kinds = ["json", "model", "type", "length", "head", "get", "large"] + ["key", "no key"] * has_keys
    kind = rng.choice(kinds)
    if kind == "json":
        ask.body = ask.body[:-3]
    elif kind == "model":
        ask.body = ask.body.replace(f'"{ask.model}"'.encode(), b'"no-such-model"')
        ask.target = ask.path
    elif kind == "type":
        ask.body = ask.body.replace(f'"{ask.model}"'.encode(), b"[1]")
        ask.target = ask.path
    elif kind == "length":
        ask.raw = wire.replace(b"content-length: ", b"content-length: 1\r\ncontent-length: ")
    elif kind == "head":
        ask.raw = wire.replace(b" HTTP/1.", b" HTTQ/9.", 1)
    elif kind == "get":
        ask.method, ask.body, ask.repeatable = "GET", b"", True
        ask.target += f"?nonce-{ask.nonce.decode()[6:]}"
    elif kind == "large":
        ask.raw = f"POST {ask.path} HTTP/1.1\r\nhost: 127.0.0.1:8080\r\ncontent-length: 9000000\r\n\r\n".encode()
    elif kind == "key":
        ask.headers = [("authorization", "Bearer SECRET-of-nobody")]
    else:
        ask.headers = []
    if ask.target.startswith("/upstream") and kind in ("json", "get"):
        ask.served = True  # whatever comes is passed on
        ask.stream = False
