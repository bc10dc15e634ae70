from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from enginehouse_kit.guards import Guard, GuardRequest
from enginehouse_kit.interceptors import Change, Refuse
from enginehouse_kit.testing import check_guard, create, installed_plugins


class Service(BaseHTTPRequestHandler):
    """Flags what says "bad"."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        answer = json.dumps({"results": [{"flagged": "bad" in asked["input"]}]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1/moderations"
    server.shutdown()
    server.server_close()


def before(guard: Guard, content: object) -> object:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": content}]}).encode()
    return asyncio.run(guard.before(GuardRequest("/v1/chat/completions", "m", {}, body), None))


def test_the_plugin_registers_its_guards() -> None:
    found = {(row.kind, row.type) for row in installed_plugins() if row.name == "text_guards"}
    assert found == {("guard", "mask_emails"), ("guard", "moderation")}


def test_they_keep_the_rules_of_guards(service: str) -> None:
    check_guard(lambda: create("guard", "mask_emails"))
    check_guard(lambda: create("guard", "moderation", {"url": service}))


def test_addresses_are_masked() -> None:
    guard = create("guard", "mask_emails")
    said = before(guard, "Write to ann.lee+x@mail.example.org, not to @ann")
    assert isinstance(said, Change)
    assert isinstance(said.body, bytes)
    assert json.loads(said.body)["messages"][0]["content"] == "Write to [e-mail], not to @ann"
    assert before(guard, "Hello") is None


def test_escaped_addresses_are_masked() -> None:
    guard = create("guard", "mask_emails")
    arguments = json.dumps({"to": "ann@mail.example.org"}).replace("@", "\\u0040")
    call = {"function": {"name": "send", "arguments": arguments}}
    body = json.dumps({"messages": [{"content": "To ann@mail.example.org", "tool_calls": [call]}]})
    escaped = body.replace("ann@", "\\u0061nn\\u0040").encode()
    said = asyncio.run(guard.before(GuardRequest("/v1/chat/completions", "m", {}, escaped), None))
    assert isinstance(said, Change)
    assert isinstance(said.body, bytes)
    [message] = json.loads(said.body)["messages"]
    assert message["content"] == "To [e-mail]"
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"to": "[e-mail]"}


@pytest.mark.parametrize("content", ["something bad", [{"type": "text", "text": "bad"}]])
def test_what_is_flagged_is_refused(service: str, content: object) -> None:
    guard = create("guard", "moderation", {"url": service})
    assert isinstance(before(guard, content), Refuse)
    assert before(guard, "something good") is None
