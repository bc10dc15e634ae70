"""What operators and clients learn of limits and costs: metrics, and which limit a 429 means."""

from __future__ import annotations

import re
import time

import httpx
import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.upgraded_gateway import until_now

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}


def config(engine: SimEngine) -> str:
    return f"""
[prices]
m = {{ input = 1_000, output = 1_000 }}
[backends.a]
driver = "sim"
url = "{engine.url}"
[[auth.keys]]
name = "ann"
key = "k-ann"
budget_per_month = 500
limits = [{{ models = ["m"], requests_per_minute = 2 }}]
[[auth.keys]]
name = "münch"
key = "k-spent"
budget_per_day = 1e-8
[[auth.keys]]
name = "operator"
key = "k-operator"
admin = true
"""


def figures(url: str, name: str) -> dict[str, float]:
    """The series of a metric, by their labels."""
    page = plain_httpx.get(f"{url}/metrics").text
    return {labels: float(value) for labels, value in re.findall(rf"^{name}{{(.*)}} (\S+)$", page, re.MULTILINE)}


def ask(url: str, key: str) -> httpx.Response:
    return plain_httpx.post(f"{url}/v1/chat/completions", json=CHAT, headers={"authorization": f"Bearer {key}"})


def test_costs_limits_and_refusals_are_metrics() -> None:
    with SimEngine("m") as engine, RunningGateway(config(engine), key="k-operator") as gateway:
        gateway.until_health(a="healthy")
        answers = [ask(gateway.url, "k-ann") for _ in range(4)]
        cost = sum(answer.json()["usage"]["total_tokens"] for answer in answers[:2]) * 1_000 / 1e6
        expected = {'key="ann",model="m"': pytest.approx(cost)}
        until_now(lambda: figures(gateway.url, "enginehouse_cost_total") == expected)
        refused = {'key="ann",limit="requests_per_minute"': 2}
        until_now(lambda: figures(gateway.url, "enginehouse_limited_total") == refused)
        limits = figures(gateway.url, "enginehouse_limit")
        left = figures(gateway.url, "enginehouse_limit_left")
        keys = plain_httpx.get(f"{gateway.url}/api/keys", headers={"authorization": "Bearer k-operator"}).json()["keys"]
    assert {each["name"] for each in keys if each["last_used"]} >= {"ann"}
    assert time.time() - next(each["last_used"] for each in keys if each["name"] == "ann") < 600
    assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
    budget = 'key="ann",limit="budget_per_month",models="*"'
    assert limits == {
        budget: 500,
        'key="ann",limit="requests_per_minute",models="m"': 2,
        'key="münch",limit="budget_per_day",models="*"': 1e-8,
    }
    assert left[budget] == pytest.approx(500 - cost)


def test_a_refusal_names_its_limit_and_its_owner() -> None:
    with SimEngine("m") as engine, RunningGateway(config(engine), key="k-operator") as gateway:
        gateway.until_health(a="healthy")
        many = [ask(gateway.url, "k-ann") for _ in range(3)][-1]
        spent = [ask(gateway.url, "k-spent") for _ in range(2)][-1]
    error = many.json()["error"]
    assert error["message"] == "Key 'ann' for m is over its rate limit (requests_per_minute = 2)"
    assert error["details"] == {"limit": "requests_per_minute", "amount": 2, "of": "Key 'ann' for m"}
    assert many.headers["x-enginehouse-limit"] == "requests_per_minute"
    assert many.headers["x-enginehouse-limit-of"] == "Key 'ann' for m"
    assert (spent.json()["error"]["code"], spent.headers["x-enginehouse-limit"]) == (
        "budget_exhausted",
        "budget_per_day",
    )
    assert spent.headers["x-enginehouse-limit-of"] == "Key 'm%C3%BCnch'"
