"""``server.per_address`` over real sockets."""

from __future__ import annotations

import httpx

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}


def test_an_address_is_limited_and_a_trusted_proxy_names_others() -> None:
    with SimEngine("m") as engine:
        config = f"""
[server]
trusted_proxies = ["127.0.0.0/8"]
per_address = {{ requests_per_minute = 2 }}
[backends.a]
driver = "sim"
url = "{engine.url}"
"""
        with RunningGateway(config) as gateway, plain_httpx.Client(base_url=gateway.url) as client:
            gateway.until_health(a="healthy")

            def ask(**headers: str) -> httpx.Response:
                return client.post("/v1/chat/completions", json=CHAT, headers=headers)

            answers = [ask() for _ in range(3)]
            other = ask(**{"x-forwarded-for": "192.0.2.7"})

    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[0].headers["x-ratelimit-remaining-requests"] == "1"
    assert answers[2].json()["error"]["code"] == "rate_limited"
    assert "Address 127.0.0.1 is over its rate limit" in answers[2].json()["error"]["message"]
    assert other.status_code == 200
