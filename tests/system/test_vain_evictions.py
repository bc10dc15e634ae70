"""A model that cannot be started stops no engine that runs."""

from __future__ import annotations

import httpx

from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.operated_gateway import engines_of

CONFIG = """
[models.a]
driver = "sim"
[models.b]
command = "no-such-engine --port ${port}"
"""


def chat(url: str, model: str) -> httpx.Response:
    body = {"model": model, "max_tokens": 2, "messages": [{"role": "user", "content": "Hello"}]}
    return plain_httpx.post(f"{url}/v1/chat/completions", json=body)


def test_a_model_whose_program_is_missing_evicts_nothing() -> None:
    with RunningGateway(CONFIG) as gateway:
        assert chat(gateway.url, "a").is_success
        [engine] = engines_of(gateway.pid)
        refused = chat(gateway.url, "b")
        assert refused.status_code == 503
        assert "there is no program 'no-such-engine' on the PATH" in refused.text
        assert engines_of(gateway.pid) == [engine]
        assert chat(gateway.url, "a").is_success
