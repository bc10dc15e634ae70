"""What a web page can make a browser do to a gateway: nothing, unless it may."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway, ServedGateway
from tests.support.web_sockets import StartSocketEngine

EVIL = b"origin: https://evil.example"
CROSS_SITE = b"sec-fetch-site: cross-site"
KEYS = {"keys": [{"name": "boss", "key": "k", "admin": True}]}
OPERATORS_PAGES = [
    ("GET", "/api/status"), ("GET", "/api/requests"), ("DELETE", "/api/requests/x"), ("GET", "/api/decisions"),
    ("GET", "/api/events"), ("GET", "/api/logs/a"), ("POST", "/api/explain/route"), ("POST", "/api/explain/swap"),
    ("POST", "/api/models/m/load"), ("POST", "/api/models/m/unload"), ("POST", "/api/backends/a/drain"),
    ("POST", "/api/backends/a/undrain"), ("POST", "/api/backends/a/stop"),
    ("POST", "/api/reload"), ("GET", "/running"), ("GET", "/unload"),
    ("POST", "/unload"), ("GET", "/logs"), ("GET", "/logs/stream"), ("GET", "/logs/stream/a"),
    ("GET", "/upstream/m/x"), ("POST", "/upstream/m/x"), ("GET", "/upstream/m"),
]  # fmt: skip
REBOUND = (b"host: evil.example:8080", b"origin: http://evil.example:8080", b"sec-fetch-site: same-origin")


def statement(gateway: ServedGateway, method: str, path: str, lines: Sequence[bytes]) -> bytes:
    sized = (b"content-length: 0",) if method == "POST" else ()
    return gateway.get(path, *sized, *lines, method=method)


@pytest.mark.parametrize("lines", [(EVIL, CROSS_SITE), (CROSS_SITE,), (EVIL,), REBOUND, REBOUND[::2], REBOUND[:1]])
async def test_no_page_of_another_origin_reaches_an_operators_page(
    house: OpenGateway, engine: StartEngine, lines: Sequence[bytes]
) -> None:
    served = await engine()
    gateway = await house(served)
    for method, path in OPERATORS_PAGES:
        reply = await gateway.ask(statement(gateway, method, path, lines))
        assert (reply.status, reply.code) == (403, "forbidden"), (method, path)
        assert "server." in reply.error["message"]
    assert served.calls == []
    assert not any(backend.draining for backend in gateway.fleet.backends())


async def test_pages_of_the_gateway_itself_and_tools_reach_them(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    own = f"http://localhost:{gateway.port}".encode()
    for lines in ((), (b"origin: " + own, b"host: " + own[7:], b"sec-fetch-site: same-origin")):
        for path in ("/api/status", "/running", "/logs", "/upstream/m/x"):
            assert (await gateway.ask(gateway.get(path, *lines))).status == 200, path


async def test_allowed_hosts_and_origins_reach_them(house: OpenGateway, engine: StartEngine) -> None:
    server = {"allowed_hosts": ["*.lan"], "cors": ["https://app.example"]}
    gateway = await house(await engine(), server=server)
    assert (await gateway.ask(gateway.get("/api/status", b"host: gpu.lan:8080"))).status == 200
    page = (b"origin: https://app.example", CROSS_SITE)
    assert (await gateway.ask(gateway.get("/api/status", *page))).status == 200
    assert (await gateway.ask(gateway.get("/api/status", b"host: gpu.home", *page))).status == 403


@pytest.mark.parametrize("lines", [(EVIL, b"content-type: text/plain"), (EVIL,), (b"origin: null",), REBOUND])
async def test_no_page_of_another_origin_uses_a_model(
    house: OpenGateway, engine: StartEngine, lines: Sequence[bytes]
) -> None:
    served = await engine()
    gateway = await house(served)
    reply = await gateway.ask(gateway.post(None, *lines))
    assert (reply.status, reply.code) == (403, "forbidden")
    assert served.calls == []
    gateway = await house(served, server={"cors": ["https://evil.example", "null", "http://evil.example:8080"]})
    assert (await gateway.ask(gateway.post(None, *lines))).status == 200


async def test_tools_may_use_models_by_any_name(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    assert (await gateway.ask(gateway.post(None, b"host: gpu.lan:8080"))).status == 200


async def test_with_keys_the_key_decides(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), auth=KEYS)
    lines = (b"host: gpu.lan", EVIL, CROSS_SITE)
    for request in (gateway.get("/api/status", *lines), gateway.post(None, *lines), gateway.get("/unload", *lines)):
        assert (await gateway.ask(request)).status == 401
        assert (await gateway.ask(request.replace(b"\r\n\r\n", b"\r\nx-api-key: k\r\n\r\n", 1))).status == 200


HANDSHAKE = (
    b"connection: upgrade", b"upgrade: websocket", b"sec-websocket-version: 13",
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
)  # fmt: skip


@pytest.mark.parametrize("lines", [REBOUND, (b"host: localhost", EVIL), (b"host: localhost", CROSS_SITE)])
async def test_a_page_of_another_origin_opens_no_web_socket(
    house: OpenGateway, socket_engine: StartSocketEngine, lines: Sequence[bytes]
) -> None:
    served = await socket_engine(origins=None)
    gateway = await house(served)
    reply = await gateway.ask(gateway.get("/upstream/m/x", *HANDSHAKE, *lines))
    assert (reply.status, reply.code) == (403, "forbidden")
    assert served.requests == []


@pytest.mark.parametrize("path", ["/api/status/", "/v1/models/", "/running/", "/health/"])
async def test_nothing_is_redirected_to_what_the_host_says(house: OpenGateway, engine: StartEngine, path: str) -> None:
    gateway = await house(await engine(), auth=KEYS)
    reply = await gateway.ask(gateway.get(path, b"host: evil.example", b"x-api-key: k"))
    assert (reply.status, reply.header("location")) == (404, None)


async def test_a_page_of_an_engine_is_none_of_the_gateways(house: OpenGateway, engine: StartEngine) -> None:
    """A browser gives it an origin of its own, ``null``, whose requests are refused."""
    gateway = await house(await engine())
    reply = await gateway.ask(gateway.get("/upstream/m/index.html"))
    policy = (reply.header("content-security-policy") or "").split()
    assert (policy[0], "allow-same-origin" in policy) == ("sandbox", False)
    from_there = (b"content-length: 0", b"origin: null", CROSS_SITE)
    refused = await gateway.ask(gateway.get("/api/backends/a/drain", *from_there, method="POST"))
    assert (refused.status, refused.code) == (403, "forbidden")
