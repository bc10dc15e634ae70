"""A server of WebSockets of another plugin: what it fails with ends its own connection, and nothing is left behind."""

from __future__ import annotations

import asyncio
from typing import ClassVar, cast

import pytest

from enginehouse import Headers, RequestError, WebSocketServer
from enginehouse.plugin_manager.registry import Registry
from enginehouse.web_sockets import AskedEngine, Handshake
from tests.support.registries import registry_with
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway

ASKS = (b"connection: upgrade", b"upgrade: websocket")


class Odd(WebSocketServer):
    """Fails where the test says, or tells its client the error of the request."""

    fails: ClassVar[str] = ""

    def open(self, handshake: Handshake) -> None:
        if self.fails == "in open":
            raise SystemExit
        asyncio.get_running_loop().create_task(self._serve(handshake))

    async def _serve(self, handshake: Handshake) -> None:
        assert handshake.engine is not None
        said = "served"
        request = handshake.engine()
        if self.fails == "before it is served":
            handshake.transport.abort()
            return
        try:
            await request.serve(handshake.headers, Carrier())
        except RequestError as error:
            said = f"{error.status} {error.code}: {error.message}"
        handshake.transport.write(said.encode())
        handshake.transport.close()


class Carrier:
    async def open(self, engine: AskedEngine) -> int:
        if Odd.fails == "with its engine":
            raise ZeroDivisionError
        if Odd.fails == "to answer in time":
            await asyncio.Event().wait()
        return 101 if Odd.fails != "with what it returns" else cast(int, "101")

    async def left(self) -> None:
        await asyncio.Event().wait()

    async def carry(self, headers: Headers) -> None: ...

    def abort(self) -> None: ...


@pytest.fixture(scope="session")
def registry() -> Registry:
    return registry_with("web_socket_server", "odd", Odd, instead_of="web_sockets")


@pytest.mark.parametrize(
    ("fails", "said"),
    [
        ("", b"served"),
        ("in open", b""),
        ("with its engine", b"500 plugin_failed: The web_socket_server 'odd'"),
        ("to answer in time", b"504 upstream_timeout: Backend 'a' did not open a WebSocket in time"),
        ("with what it returns", b"500 plugin_failed: The web_socket_server 'odd'"),
    ],
)
async def test_its_client_gets_what_it_fails_with(
    house: OpenGateway, engine: StartEngine, monkeypatch: pytest.MonkeyPatch, fails: str, said: bytes
) -> None:
    monkeypatch.setattr(Odd, "fails", fails)
    gateway = await house(await engine(), timeouts={"connect": 0.5, "first_byte": 0.5})
    client = await gateway.client()
    client.send(gateway.get("/upstream/m/x", *ASKS))
    assert (await client.rest()).startswith(said)
    await gateway.quiet()
    assert not gateway.relay.live


async def test_a_request_that_it_never_serves_is_not_live(
    house: OpenGateway, engine: StartEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Odd, "fails", "before it is served")
    gateway = await house(await engine())
    client = await gateway.client()
    client.send(gateway.get("/upstream/m/x", *ASKS))
    await gateway.quiet()
    assert not gateway.relay.live
