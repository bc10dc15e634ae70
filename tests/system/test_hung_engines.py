"""A launched engine that is frozen: it is ended by force, and started again for the requests that wait."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx

from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.operated_gateway import engines_of

CONFIG = """
[checks]
interval = "100ms"
timeout = "100ms"
[models.m]
driver = "sim"
"""


def chat(url: str) -> httpx.Response:
    body = {"model": "m", "max_tokens": 2, "messages": [{"role": "user", "content": "Hello"}]}
    return plain_httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)


def test_a_frozen_engine_is_replaced() -> None:
    with RunningGateway(CONFIG) as gateway, ThreadPoolExecutor(1) as pool:
        assert chat(gateway.url).is_success
        [before] = engines_of(gateway.pid)
        before.suspend()
        waiting = pool.submit(chat, gateway.url)
        assert waiting.result().is_success
        assert chat(gateway.url).is_success
        [after] = engines_of(gateway.pid)
        assert after.pid != before.pid
        assert "computed nothing" in gateway.log
