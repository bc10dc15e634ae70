"""The configuration of gateways that trace every request, and clients of theirs."""

from __future__ import annotations

import httpx

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx

CLIENT = "b7ad6b7169203331"
"""The client's span."""


def settings(endpoint: str, more: str = "") -> str:
    """A ``[telemetry]`` table with ``more`` lines."""
    return f'[telemetry]\ntraces = "otlp"\nendpoint = "{endpoint}"\nsample_ratio = 1.0\n{more}\n'


def backend(name: str, engine: SimEngine, *models: str, more: str = "") -> str:
    """The table of a backend with ``more`` lines."""
    return f'[backends.{name}]\nurl = "{engine.url}"\nmodels = {list(models)}\n{more}\n'


def ask(
    gateway: RunningGateway, model: str, *, trace: str = "", stream: bool = False, tokens: int = 16
) -> httpx.Response:
    """A chat. ``trace``: the id of the client's trace, which is sampled."""
    said = [{"role": "user", "content": "planted-prompt"}]
    body = {"model": model, "messages": said, "stream": stream, "max_tokens": tokens}
    headers = {"traceparent": f"00-{trace}-{CLIENT}-01"} if trace else {}
    return plain_httpx.post(f"{gateway.url}/v1/chat/completions", json=body, headers=headers, timeout=30)
