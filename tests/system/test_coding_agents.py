"""The command lines of coding agents, as far as ``python -m tools.clients install`` has brought them.

The engine speaks only OpenAI's chats, and has them run two commands whose calls come in alternating pieces.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from enginehouse_kit.gateway import RunningGateway
from tools.clients.__main__ import NPM

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TOOLS: dict[str, Callable[[str], dict[str, Any]]] = {
    "Bash": lambda command: {"command": command, "description": "Counts"},
    "exec_command": lambda command: {"cmd": command},
}
"""The arguments of the tool that runs a command: Claude Code's, and Codex's."""
CODEX = """
model = "m"
model_provider = "gateway"
web_search = "disabled"
[model_providers.gateway]
name = "Gateway"
base_url = "{url}/v1"
wire_api = "responses"
"""
ARGUMENTS = {
    "claude": ("-p", "Count", "--allowedTools", "Bash"),
    "codex": ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "Count"),
}


def said(chat: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Deltas: two calls at first, and at last what the commands have said."""
    results = [turn["content"] for turn in chat["messages"] if turn["role"] == "tool"]
    tool = next((each["function"]["name"] for each in chat.get("tools", ()) if each["function"]["name"] in TOOLS), "")
    yield {"role": "assistant", "content": None}
    yield {"reasoning_content": "Let me think."}
    if results or not tool:
        yield {"content": f"Found {' and '.join(results)}."}
        return
    yield {"content": "I count."}
    calls = [json.dumps(TOOLS[tool](f"echo result-$((40+{number}))")) for number in (1, 2)]
    for index in range(2):
        function = {"name": tool, "arguments": ""}
        yield {"tool_calls": [{"index": index, "id": f"call_{index}", "type": "function", "function": function}]}
    for begin in range(0, max(map(len, calls)), 9):
        for index, call in enumerate(calls):
            yield {"tool_calls": [{"index": index, "function": {"arguments": call[begin : begin + 9]}}]}


class Chats(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer("application/json", json.dumps({"object": "list", "data": [{"id": "m"}]}).encode())

    def do_POST(self) -> None:
        chat = json.loads(self.rfile.read(int(self.headers["content-length"])))
        deltas = list(said(chat))
        end = {"index": 0, "delta": {}, "finish_reason": "tool_calls" if "tool_calls" in deltas[-1] else "stop"}
        events = [*({"choices": [{"index": 0, "delta": delta}]} for delta in deltas), {"choices": [end]}]
        lines = [b"data: %s\n\n" % json.dumps(event).encode() for event in events]
        self._answer("text/event-stream", b"".join(lines) + b"data: [DONE]\n\n")

    def _answer(self, content_type: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Chats) as engine:
        Thread(target=engine.serve_forever).start()
        try:
            url = f"http://127.0.0.1:{engine.server_address[1]}"
            model = "[backends.one.models.m]\ncontext_length = 200000\n"
            with RunningGateway(f'[backends.one]\ndriver = "openai"\nurl = "{url}"\n{model}') as gateway:
                gateway.until_health(one="healthy")
                yield gateway
        finally:
            engine.shutdown()


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_agent_runs_both_commands_and_tells_their_results(
    name: str, gateway: RunningGateway, tmp_path: Path
) -> None:
    program = NPM / ".bin" / name
    if not program.exists():
        pytest.skip("needs: python -m tools.clients install")
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "config.toml").write_text(CODEX.format(url=gateway.url), "utf-8")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    env |= {"ANTHROPIC_BASE_URL": gateway.url, "ANTHROPIC_AUTH_TOKEN": "none", "ANTHROPIC_MODEL": "m"}
    ran = subprocess.run(
        [program, *ARGUMENTS[name]],
        env=env,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    assert "result-41" in ran.stdout
    assert "result-42" in ran.stdout
