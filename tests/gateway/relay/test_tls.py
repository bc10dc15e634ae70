from __future__ import annotations

import asyncio
import ssl
import sys
from pathlib import Path

import pytest
import trustme

from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway
from tests.support.stream_events import DONE, event


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def certified(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


async def test_an_engine_with_an_unknown_certificate_is_refused(
    house: OpenGateway, engine: StartEngine, certified: ssl.SSLContext
) -> None:
    served = await engine(tls=certified)
    gateway = await house(served)
    reply = await gateway.ask()
    assert (reply.status, reply.code) == (502, "upstream_error")
    assert "certificate" in reply.error["message"].lower()
    assert served.calls == []


async def test_an_engine_with_an_unknown_certificate_is_replaced(
    house: OpenGateway, engine: StartEngine, certified: ssl.SSLContext
) -> None:
    gateway = await house(await engine(tls=certified), await engine())
    reply = await gateway.ask()
    assert (reply.status, reply.header("x-enginehouse-reason")) == (200, "retry")


async def test_a_certificate_is_not_looked_at_where_that_is_wanted(
    house: OpenGateway, engine: StartEngine, certified: ssl.SSLContext
) -> None:
    served = await engine(tls=certified)
    gateway = await house(served, backend={"verify_tls": False})
    served.streams(event(), DONE, served.END)
    assert (await gateway.ask(gateway.post(stream=True))).body == event() + DONE
    assert (await gateway.ask()).status == 200
    assert len(served.connections) == 1


async def test_a_known_authoritys_certificate_is_accepted(
    house: OpenGateway,
    engine: StartEngine,
    authority: trustme.CA,
    certified: ssl.SSLContext,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    gateway = await house(await engine(tls=certified))
    assert (await gateway.ask()).status == 200


async def test_an_engine_that_speaks_no_tls_is_an_upstream_error(house: OpenGateway, engine: StartEngine) -> None:
    plain = await engine(scheme="https")
    plain.answers_early(b"HTTP/1.1 400 Bad\r\n\r\n")
    gateway = await house(plain)
    assert (await gateway.ask()).code == "upstream_error"


async def test_a_slow_client_slows_an_engine_behind_tls(
    house: OpenGateway, engine: StartEngine, certified: ssl.SSLContext
) -> None:
    if sys.version_info < (3, 11) and isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop):
        pytest.skip("asyncio has flow control over TLS from Python 3.11 on; uvloop, our default, has it anywhere")
    served = await engine(tls=certified)
    gateway = await house(served, backend={"verify_tls": False}, timeouts={"client": 0})
    piece = b"x" * (1 << 18)
    served.plays(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (len(piece) * 128), *[piece] * 128)
    client = await gateway.client()
    client.send(gateway.post())
    await gateway.congested(served)
    gateway.pass_time(1000)
    reply = await client.reply()
    assert (reply.whole, len(reply.body)) == (True, len(piece) * 128)
