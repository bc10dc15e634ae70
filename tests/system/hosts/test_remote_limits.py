"""The limit of a remote engine is discovered, and requests over it wait at the gateway."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway, Status
from tests.support import plain_httpx as http


def test_requests_wait_at_the_gateway_for_an_engine_that_takes_one_at_a_time() -> None:
    config = '[backends.one]\ndriver = "sim"\nurl = "{}"\n'
    with (
        SimEngine("tiny", concurrency=1) as engine,
        RunningGateway(config.format(engine.url)) as gateway,
        ThreadPoolExecutor() as pool,
    ):
        body = {"model": "tiny", "prompt": "Hello", "max_tokens": 1}
        engine.fault("hang")
        answers = [pool.submit(http.post, f"{gateway.url}/v1/completions", json=body) for _ in range(3)]

        def shown(_: Status) -> bool:
            requests = http.get(f"{gateway.url}/api/requests").json()["requests"]
            phases = {(each["phase"], each["position"]) for each in requests}
            return phases == {("queued", 0), ("queued", 1), ("serving", None)}

        gateway.until(shown)
        assert len(engine.requests()) == 1
        engine.clear()
        assert {answer.result().status_code for answer in answers} == {200}
