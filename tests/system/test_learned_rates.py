"""What the default strategy learns of engines from streams, and from answers that come whole."""

from __future__ import annotations

from typing import Any

import pytest

from enginehouse.testing.engines import SimEngine
from tests.support.operated_gateway import OperatedGateway, ServeAlone


def config(used: SimEngine, spare: SimEngine) -> str:
    tables = (f'[backends.{name}]\ndriver = "sim"\nurl = "{each.url}"\n' for name, each in (("a", used), ("b", spare)))
    return "".join(tables) + "priority = 9\n"


def learned(gateway: OperatedGateway, name: str = "a") -> dict[str, Any]:
    rates: dict[str, Any] = gateway.process.status()["learned"][name]
    return rates


@pytest.mark.parametrize("stream", [True, False])
def test_both_rates_of_an_engine_are_learned(serve_alone: ServeAlone, stream: bool) -> None:
    with SimEngine("shared", tpot="5ms") as a, SimEngine("shared") as b:
        gateway = serve_alone(config(a, b))
        gateway.until_health(a="healthy", b="healthy")
        for number in range(30):
            tokens = 2 + 40 * (number % 3)
            body = {"model": "shared", "prompt": f"{number} " * 400, "max_tokens": tokens, "stream": stream}
            assert gateway.http.post("/v1/completions", json=body).status_code == 200
        rates = learned(gateway)
        assert 3.5 < rates["ms_per_output_token"] < 50
        assert rates["ms_per_token"] < 2


def test_a_refused_request_teaches_nothing(serve_alone: ServeAlone) -> None:
    with SimEngine("shared") as a, SimEngine("shared") as b:
        gateway = serve_alone(config(a, b))
        gateway.until_health(a="healthy", b="healthy")
        body = {"model": "shared", "prompt": "long " * 400, "max_tokens": 1 << 40, "stream": True}
        assert gateway.http.post("/v1/completions", json=body).status_code == 400
        assert learned(gateway)["ms_per_token"] == 0
