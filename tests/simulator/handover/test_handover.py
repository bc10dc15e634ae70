"""Prefill in one process and decode in another, over vLLM's ``kv_transfer_params``."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from enginehouse_kit.engines import SimEngine
from tests.support import plain_httpx

PROMPT = " ".join(f"word{number}" for number in range(80))
SLOW = "2000000"
"""Bytes per second: loading the prompt takes about fifteen seconds, longer than any test waits."""

Eventually = Callable[[Callable[[], bool]], bool]


def complete(engine: SimEngine, max_tokens: int, params: dict[str, Any] | None = None) -> dict[str, Any]:
    body = {"model": "tiny", "prompt": PROMPT, "max_tokens": max_tokens, "kv_transfer_params": params}
    with plain_httpx.Client(timeout=60) as client:
        answer: dict[str, Any] = client.post(f"{engine.url}/v1/completions", json=body).raise_for_status().json()
    return answer


def prefill(engine: SimEngine) -> dict[str, Any]:
    """Compute the prompt, and return what the decoding engine needs to know."""
    params: dict[str, Any] = complete(engine, 1, {"do_remote_decode": True})["kv_transfer_params"]
    return params


def figure(engine: SimEngine, name: str) -> float:
    with plain_httpx.Client() as client:
        found = re.search(rf"^vllm:{name}{{.*}} (\S+)$", client.get(f"{engine.url}/metrics").text, re.MULTILINE)
    assert found is not None
    return float(found[1])


def cached_tokens(answer: dict[str, Any]) -> int:
    details = answer["usage"].get("prompt_tokens_details") or {}
    return int(details.get("cached_tokens", 0))


@pytest.fixture(scope="module")
def expected() -> str:
    """What one engine answers by itself."""
    with SimEngine("tiny") as engine:
        text: str = complete(engine, 20)["choices"][0]["text"]
        return text


def test_a_prompt_computed_elsewhere_is_not_computed_again(expected: str) -> None:
    with SimEngine("tiny") as first, SimEngine("tiny") as second:
        params = prefill(first)
        assert (params["do_remote_prefill"], params["do_remote_decode"]) == (True, False)
        assert figure(first, "kv_cache_usage_perc") == 0
        answer = complete(second, 20, params)
    assert answer["choices"][0]["text"] == expected
    assert cached_tokens(answer) == answer["usage"]["prompt_tokens"] - 1


def test_any_engine_can_decode_even_after_the_prefilling_one_was_killed(expected: str, eventually: Eventually) -> None:
    with SimEngine("tiny") as first, SimEngine("tiny", kv_bandwidth=SLOW) as second, ThreadPoolExecutor() as pool:
        params = prefill(first)
        first.kill()
        answering = pool.submit(complete, second, 20, params)
        assert eventually(lambda: figure(second, "num_requests_waiting") == 1), "it loads"
        second.kill()
        with pytest.raises(httpx.TransportError):
            answering.result()
        with SimEngine("tiny") as third:
            answer = complete(third, 20, params)
    assert answer["choices"][0]["text"] == expected
    assert cached_tokens(answer) == answer["usage"]["prompt_tokens"] - 1
