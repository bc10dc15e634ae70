"""Middleware of another plugin that fails: its requests get an error that names it, and are not left behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
import pytest

from enginehouse import Middleware
from enginehouse.middleware import MiddlewareFacts, OpenExchange, Opening, PassingWriter, ResponseWriter
from enginehouse.plugin_manager.registry import Registry
from enginehouse.requests import Tokens
from tests.support.noted_records import NotedRecords
from tests.support.registries import registry_with
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway


class Odd(Middleware):
    """Fails where the test says, before or after it has opened the request."""

    fails: ClassVar[str] = ""

    def use(self, gateway: MiddlewareFacts) -> None: ...

    def open(
        self, opening: Opening, writer: ResponseWriter, inner: Callable[[ResponseWriter, Opening], OpenExchange]
    ) -> OpenExchange:
        if self.fails == "at once":
            raise ZeroDivisionError
        if self.fails == "in its writer":
            return inner(Writer(writer), opening)
        if self.fails.startswith("when it counts"):
            return inner(Counter(writer), opening)
        if self.fails == "never":
            return inner(PassingWriter(writer), opening)
        request: Any = inner(writer, opening)
        if self.fails == "in open":
            raise ZeroDivisionError
        if self.fails == "with nonsense":
            return None  # type: ignore[return-value]
        return Exchange(request) if self.fails.endswith("in begin") else request

    def check_time(self, now: float) -> None:
        raise ZeroDivisionError


class Writer(PassingWriter):
    def start(self, status: int, lines: bytes, length: int | None) -> None:
        raise ZeroDivisionError

    def abort(self) -> None:
        raise ZeroDivisionError


class Counter(PassingWriter):
    def counted(self) -> Tokens | None:
        if Odd.fails == "when it counts nonsense":
            return "many"  # type: ignore[return-value]
        raise ZeroDivisionError


class Exchange(OpenExchange):
    def __init__(self, request: OpenExchange) -> None:
        self.request = request

    def begin(self, body: bytes, caller: object = None) -> None:
        raise SystemExit if Odd.fails.startswith("exits") else ZeroDivisionError

    def cancel(self, error: Exception | None = None) -> None: ...

    def client_disconnected(self) -> None: ...

    def withdraw(self) -> bool:
        return False

    def pause(self) -> None: ...

    def resume(self) -> None: ...


@pytest.fixture(scope="session")
def registry() -> Registry:
    return registry_with("middleware", "odd", Odd, instead_of="interception")


@pytest.mark.parametrize("fails", ["at once", "in open", "with nonsense", "in begin", "exits in begin"])
async def test_a_request_that_it_fails_with_gets_its_failure(
    house: OpenGateway, engine: StartEngine, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    served = await engine()
    gateway = await house(served, interceptors=["volatile_lines"])
    monkeypatch.setattr(Odd, "fails", fails)
    reply = await gateway.ask(gateway.post())
    error = msgspec.json.decode(reply.body)["error"]
    assert (reply.status, error["code"]) == (500, "plugin_failed")
    assert error["message"].startswith("The middleware 'odd' of plugin 'acme' failed with ")
    await gateway.quiet()
    assert served.calls == []


async def test_a_writer_of_it_that_fails_leaves_no_request_behind(
    house: OpenGateway, engine: StartEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = await house(await engine(), interceptors=["volatile_lines"])
    monkeypatch.setattr(Odd, "fails", "in its writer")
    client = await gateway.client()
    client.send(gateway.post())
    assert await client.rest() == b""
    await gateway.quiet()


async def test_a_client_behind_it_that_never_reads_frees_its_engine(
    house: OpenGateway, engine: StartEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await engine()
    gateway = await house(served, interceptors=["volatile_lines"], timeouts={"client": 60})
    monkeypatch.setattr(Odd, "fails", "never")
    piece = b"x" * (1 << 18)
    served.plays(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (len(piece) * 128), *[piece] * 128)
    client = await gateway.client()
    client.send(gateway.post())
    call = await served.call()
    await gateway.congested(served)
    gateway.pass_time(61)
    await call.closed.wait()
    await gateway.quiet()
    assert gateway.relay.context.counters.series("a", "m").keys[""].requests == {(499, "match"): 1}


@pytest.mark.parametrize("fails", ["", "when it counts", "when it counts nonsense"])
async def test_what_it_lets_pass_is_served(
    house: OpenGateway, engine: StartEngine, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    gateway = await house(await engine(), interceptors=["volatile_lines"])
    monkeypatch.setattr(Odd, "fails", fails)
    noted = NotedRecords(gateway)
    assert (await gateway.ask(gateway.post())).status == 200
    await gateway.quiet()
    assert [(each.status, each.outcome) for each in noted.records] == [(200, "served")]
