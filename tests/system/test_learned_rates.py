"""What the default strategy learns of engines from streams, and from answers that come whole."""

from __future__ import annotations

from typing import Any

import pytest

from enginehouse_kit.engines import SimEngine
from tests.support.operated_gateway import OperatedGateway, ServeAlone


def config(used: SimEngine, spare: SimEngine) -> str:
    tables = (f'[backends.{name}]\ndriver = "sim"\nurl = "{each.url}"\n' for name, each in (("a", used), ("b", spare)))
    return "".join(tables) + "priority = 9\n"


def learned(gateway: OperatedGateway, name: str = "a") -> dict[str, Any]:
    rates: dict[str, Any] = gateway.process.status()["learned"][name]
    return rates


@pytest.mark.parametrize("stream", [True, False])
def test_both_rates_of_an_engine_are_learned(serve_alone: ServeAlone, stream: bool) -> None:
    """A busy machine makes single answers slow at any time, so more of them are asked for until the rates are there."""
    with SimEngine("shared", tpot="5ms") as a, SimEngine("shared", tpot="5ms") as b:
        gateway = serve_alone(config(a, b))
        gateway.until_health(a="healthy", b="healthy")
        for number in range(600):
            tokens = 2 + 40 * (number % 3)
            body = {"model": "shared", "prompt": f"{number} " * 400, "max_tokens": tokens, "stream": stream}
            assert gateway.http.post("/v1/completions", json=body).status_code == 200
            rates = learned(gateway)
            if number >= 29 and 3.5 < rates["ms_per_output_token"] < 50 and rates["ms_per_token"] < 2:
                break
        else:
            pytest.fail(f"after {number + 1} answers the rates are {rates}")


def test_the_client_hears_how_much_was_cached_and_why_not_more(serve_alone: ServeAlone) -> None:
    with SimEngine("shared") as a, SimEngine("shared") as b:
        gateway = serve_alone(config(a, b))
        gateway.until_health(a="healthy", b="healthy")
        system = {"role": "system", "content": "Be brief. " * 300}
        turns = [{"role": "user", "content": "Hello? " * 100}, {"role": "assistant", "content": "Yes. " * 100}]
        asked = {"role": "user", "content": "Well. " * 100}
        heard = []
        for messages in ([system, turns[0]], [system, *turns, asked], [{**system, "content": "Hey."}, *turns, asked]):
            body = {"model": "shared", "messages": messages, "max_tokens": 2}
            explained = gateway.http.post("/api/explain/route", json=body).json()["prefix"]
            answer = gateway.http.post("/v1/chat/completions", json=body, headers={"x-enginehouse-explain": "cache"})
            said = f"hit={explained['cached']}/{explained['tokens']}; why={explained['why']}"
            assert answer.headers["x-enginehouse-cache"] == said
            assert gateway.http.get("/api/history?limit=1").json()["requests"][0]["prefix"] == explained
            heard.append((explained["why"], explained["cached"] > 800, explained["lost"] > 200))
        assert heard == [("new", False, False), ("message:2", True, False), ("system", False, True)]
        assert "x-enginehouse-cache" not in gateway.http.post("/v1/chat/completions", json=body).headers


def test_a_refused_request_teaches_nothing(serve_alone: ServeAlone) -> None:
    with SimEngine("shared") as a, SimEngine("shared") as b:
        gateway = serve_alone(config(a, b))
        gateway.until_health(a="healthy", b="healthy")
        body = {"model": "shared", "prompt": "long " * 400, "max_tokens": 1 << 40, "stream": True}
        assert gateway.http.post("/v1/completions", json=body).status_code == 400
        assert learned(gateway)["ms_per_token"] == 0
