"""The limit of a remote engine is discovered, and requests over it wait at the gateway."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx as http


def test_requests_wait_at_the_gateway_for_an_engine_that_takes_one_at_a_time() -> None:
    config = '[backends.one]\ndriver = "sim"\nurl = "{}"\n'
    with (
        SimEngine("tiny", concurrency=1, ttft="1s") as engine,
        RunningGateway(config.format(engine.url)) as gateway,
        ThreadPoolExecutor() as pool,
    ):
        body = {"model": "tiny", "prompt": "Hello", "max_tokens": 1}
        answers = [pool.submit(http.post, f"{gateway.url}/v1/completions", json=body, timeout=30) for _ in range(3)]
        shown: set[tuple[str, int | None]] = set()
        while not all(answer.done() for answer in answers):
            requests = http.get(f"{gateway.url}/api/requests").json()["requests"]
            shown |= {(each["phase"], each["position"]) for each in requests}
            assert len(engine.requests()) - sum(answer.done() for answer in answers) <= 2
        assert {answer.result().status_code for answer in answers} == {200}
        assert {("queued", 0), ("queued", 1), ("serving", None)} <= shown
