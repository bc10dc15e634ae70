"""A gateway in front of other gateways."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import httpx
import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.parallel import all_of

TRACE = "0af7651916cd43dd8448eb211c80319c"
BODY = {"model": "m", "max_tokens": 2, "messages": [{"role": "user", "content": "hi"}]}


class Line(NamedTuple):
    """An outer gateway, two inner ones, and the two engines that both of them have."""

    outer: RunningGateway
    inner: tuple[RunningGateway, RunningGateway]
    engines: tuple[SimEngine, SimEngine]

    def ask(self, gateway: RunningGateway | None = None, /, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        chosen = gateway or self.outer
        return plain_httpx.post(f"{chosen.url}/v1/chat/completions", json=BODY, headers=named)

    def asked(self) -> int:
        """How often the engines had a request."""
        return sum(len(engine.requests()) for engine in self.engines)


@pytest.fixture(scope="module")
def line() -> Iterator[Line]:
    engines = SimEngine("m", "narrow"), SimEngine("m")
    with all_of(*engines):
        tables = "".join(
            f'[backends.e{number}]\nurl = "{engine.url}"\ndriver = "sim"\nmodels = ["m"]\n'
            for number, engine in enumerate(engines)
        )
        tables += f'[backends.narrow]\nurl = "{engines[0].url}"\ndriver = "sim"\nmodels = ["narrow"]\nconcurrency = 1\n'
        front = (
            '[[auth.keys]]\nname = "front"\nkey = "secret-of-front"\ngateway = true\nadmin = true\nmax_concurrent = 9\n'
        )
        plain = '[[auth.keys]]\nname = "plain"\nkey = "secret-of-plain"\n'
        inner = f"{tables}{front}{plain}"
        with RunningGateway(inner, key="secret-of-front") as one, RunningGateway(inner, key="secret-of-front") as two:
            backends = "".join(
                f'[backends.g{number}]\nurl = "{gateway.url}"\napi_key = "secret-of-front"\npass_caller = true\n'
                f"models = {models}\n"
                for number, (gateway, models) in enumerate(((one, ["m", "narrow"]), (two, ["m"])))
            )
            key = '[[auth.keys]]\nname = "ann ü"\nkey = "secret-of-ann"\npriority = 7\nadmin = true\n'
            other = '[[auth.keys]]\nname = "bob"\nkey = "secret-of-bob"\n'
            with RunningGateway(f"{backends}{key}{other}", key="secret-of-ann") as outer:
                yield Line(outer, (one, two), engines)


@pytest.fixture(autouse=True)
def clean(line: Line) -> Iterator[None]:
    yield
    for engine in line.engines:
        engine.clear()


def records(gateway: RunningGateway, request_id: str) -> list[dict[str, object]]:
    answer = plain_httpx.get(f"{gateway.url}/api/history", headers={"authorization": "Bearer secret-of-front"}).json()
    return [each for each in answer["requests"] if each["id"] == request_id]


def test_the_request_id_the_trace_and_the_caller_go_all_the_way(line: Line) -> None:
    parent = f"00-{TRACE}-b7ad6b7169203331-01"
    answer = line.ask(authorization="Bearer secret-of-ann", x_request_id="all-the-way", traceparent=parent)
    assert answer.status_code == 200
    assert answer.headers["x-request-id"] == "all-the-way"
    [seen] = [each for engine in line.engines for each in engine.requests()]
    assert seen.header("x-request-id") == "all-the-way"
    assert TRACE in str(seen.header("traceparent"))
    assert seen.header("x-enginehouse-caller") is None
    [record] = [each for gateway in line.inner for each in records(gateway, "all-the-way")]
    assert record["caller"] == "ann ü"


def test_the_priority_goes_all_the_way(line: Line, pool: ThreadPoolExecutor) -> None:
    """Behind a full engine, the inner gateway's queue has the outer one's order."""
    url = f"{line.outer.url}/v1/chat/completions"

    def ask(key: str) -> int:
        body = {**BODY, "model": "narrow"}
        return plain_httpx.post(url, json=body, headers={"authorization": f"Bearer {key}"}).status_code

    engine = line.engines[0]
    engine.fault("hang", count=1, model="narrow")
    asked = [pool.submit(ask, "secret-of-bob")]
    wait_until(lambda: len(engine.requests()) == 1)
    asked.append(pool.submit(ask, "secret-of-bob"))
    wait_until(lambda: queue(line.inner[0]) == ["bob"])
    asked.append(pool.submit(ask, "secret-of-ann"))
    wait_until(lambda: queue(line.inner[0]) == ["ann ü", "bob"])
    engine.clear()
    assert {each.result() for each in asked} == {200}


def queue(gateway: RunningGateway) -> list[object]:
    """The callers of the waiting requests, the next one first."""
    answer = plain_httpx.get(f"{gateway.url}/api/requests", headers={"authorization": "Bearer secret-of-front"}).json()
    waiting = [each for each in answer["requests"] if each["position"] is not None]
    return [each["caller"] for each in sorted(waiting, key=lambda each: int(each["position"]))]


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_client_cannot_say_whose_its_request_is(line: Line) -> None:
    told = {"x_enginehouse_caller": "boss", "x_enginehouse_priority": "99"}
    line.ask(None, authorization="Bearer secret-of-ann", x_request_id="forged", **told)
    [record] = [each for gateway in line.inner for each in records(gateway, "forged")]
    assert record["caller"] == "ann ü"
    line.ask(line.inner[0], authorization="Bearer secret-of-plain", x_request_id="plain", **told)
    assert [each["caller"] for each in records(line.inner[0], "plain")] == ["plain"]


def test_what_one_gateway_has_retried_the_next_one_does_not(line: Line) -> None:
    for engine in line.engines:
        engine.fault("error", status=500)
    answer = line.ask(authorization="Bearer secret-of-ann")
    assert answer.status_code == 500
    assert answer.headers["x-enginehouse-attempts"] == "2"
    assert line.asked() == 2


def test_what_no_engine_had_is_retried_at_another_gateway(line: Line) -> None:
    """A gateway that refuses because of its own limits, or is gone, has tried nothing."""
    line.inner[0].stop()  # the last test: it stays away
    answers = [line.ask(authorization="Bearer secret-of-ann") for _ in range(6)]
    assert {each.status_code for each in answers} == {200}
