"""Redirects and cookies of engines below ``/upstream``."""

from __future__ import annotations

import pytest

from enginehouse.relay.jobs.engine_job import lines_below
from enginehouse.relay.upstream.outside import Origin
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway

MOUNT = b"/upstream/m"


def below(line: str, url: str = "http://gpu:8000") -> str:
    lines = lines_below(f"content-type: a/b\r\n{line}\r\nx-y: z\r\n".encode(), MOUNT, Origin.parse(url)).decode()
    first, changed, last, _ = lines.split("\r\n")
    assert (first, last) == ("content-type: a/b", "x-y: z")
    return changed


@pytest.mark.parametrize(
    ("location", "seen"),
    [
        ("/docs", "/upstream/m/docs"),
        ("/", "/upstream/m/"),
        ("http://gpu:8000/docs?a=b", "/upstream/m/docs?a=b"),
        ("http://gpu:8000", "/upstream/m/"),
        ("http://gpu:8000?a", "/upstream/m/?a"),
        ("http://gpu:80001/docs", "http://gpu:80001/docs"),
        ("https://gpu:8000/docs", "https://gpu:8000/docs"),
        ("//gpu:8000/docs", "//gpu:8000/docs"),
        ("https://elsewhere/docs", "https://elsewhere/docs"),
        ("docs", "docs"),
        ("../docs", "../docs"),
    ],
)
def test_a_redirect_stays_at_the_engine(location: str, seen: str) -> None:
    assert below(f"location: {location}") == f"location: {seen}"


@pytest.mark.parametrize(
    ("location", "seen"),
    [("/tenant/docs", "/docs"), ("/tenant", "/"), ("/tenants", "/tenants"), ("http://gpu:8000/tenant/x", "/x")],
)
def test_the_prefix_of_a_backend_is_not_repeated(location: str, seen: str) -> None:
    assert below(f"location: {location}", "http://gpu:8000/tenant") == f"location: /upstream/m{seen}"


@pytest.mark.parametrize(
    ("cookie", "seen"),
    [
        ("a=b", "a=b"),
        ("a=b; Path=/", "a=b; Path=/upstream/m/"),
        ("a=b; path=/x; HttpOnly", "a=b; Path=/upstream/m/x; HttpOnly"),
        ("a=b; Domain=gpu; Secure", "a=b; Secure"),
        ("a=b; Path=relative; Max-Age=1", "a=b; Max-Age=1"),
    ],
)
def test_a_cookie_is_for_its_engine_alone(cookie: str, seen: str) -> None:
    assert below(f"set-cookie: {cookie}") == f"set-cookie: {seen}"


async def test_clients_get_the_changed_lines(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    head = b"HTTP/1.1 302 Found\r\nLocation: /docs\r\nSet-Cookie: a=b; Path=/\r\ncontent-length: 0\r\n\r\n"
    served.plays(head)
    reply = await gateway.ask(gateway.get("/upstream/m/"))
    assert (reply.status, reply.value("location")) == (302, "/upstream/m/docs")
    assert reply.value("set-cookie") == "a=b; Path=/upstream/m/"


async def test_other_endpoints_pass_a_location_as_it_is(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    served.plays(b"HTTP/1.1 200 OK\r\nLocation: /docs\r\ncontent-length: 2\r\n\r\n{}")
    assert (await gateway.ask()).value("location") == "/docs"
