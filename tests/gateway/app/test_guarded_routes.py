"""Pages of plugins: open to everyone, or guarded as operators' pages are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from enginehouse import PluginError
from enginehouse.app import Gateway
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.pages import PageFacts, guarded
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registered
from tests.support import plain_httpx

KEYS = {"auth": {"keys": [{"name": "boss", "key": "k-boss", "admin": True}, {"name": "user", "key": "k-user"}]}}


async def page(request: Request) -> Response:
    return PlainTextResponse("seen")


def pages() -> list[BaseRoute]:
    return [
        Route("/open", page),
        *guarded([Route("/closed", page, methods=["POST"]), Mount("/tree", routes=[Route("/leaf", page)])]),
        *guarded([]),
        Route("/after", page),
    ]


def test_a_plugin_samples_facts_every_second_and_one_that_fails_harms_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[float] = []

    def fails(facts: PageFacts) -> None:
        raise SystemExit("away")

    def hears(facts: PageFacts) -> None:
        heard.append(facts.epoch())

    served = made(lambda: [*guarded([], every_second=fails), *guarded([], every_second=hears)])
    served.every_second.sample()
    assert len(heard) == 1
    assert "The routes 'extra' of plugin 'extra' failed in its call of every second" in caplog.text


@pytest.mark.parametrize(
    "pages",
    [lambda: ["/x"], lambda: guarded(["/x"]), lambda: guarded([Route("/x", page), None])],  # type: ignore[list-item]
)
def test_pages_that_are_no_routes_are_refused_at_start(pages: Callable[[], list[Any]]) -> None:
    with pytest.raises(PluginError, match="extra"):
        made(pages)


def made(pages: Callable[[], list[BaseRoute]], **sections: object) -> Gateway:
    """A gateway with the routes of a plugin."""
    registry = load_plugins(PluginSettings()).registry
    origin = {"entry_point": "extra", "module": "extra", "distribution": "extra", "version": "1"}
    registry.add([Registered(kind="routes", type="extra", factory=pages, **origin)])
    return Gateway(msgspec.convert(sections, Config), registry)


def gateway(**sections: object) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(made(pages, **sections).application)
    return plain_httpx.AsyncClient(transport=transport, base_url="http://localhost")


@pytest.mark.parametrize(("method", "path"), [("POST", "/closed"), ("GET", "/tree/leaf")])
async def test_a_guarded_page_needs_an_admin_key(method: str, path: str) -> None:
    async with gateway(**KEYS) as client:
        expected: Mapping[str, int] = {"": 401, "k-user": 403, "k-boss": 200}
        for key, status in expected.items():
            assert (await client.request(method, path, headers={"x-api-key": key})).status_code == status
        assert [(await client.get(open)).status_code for open in ("/open", "/after")] == [200, 200]
        assert (await client.get("/nowhere")).status_code == 404


@pytest.mark.parametrize(("disabled", "told"), [([], False), (["operations"], True)])
async def test_a_path_that_a_disabled_plugin_may_answer_names_the_remedy(disabled: list[str], told: bool) -> None:
    async with gateway(plugins={"disabled": disabled}) as client:
        answer = await client.get("/api/nowhere")
    assert answer.status_code == 404
    assert answer.json()["error"]["message"].startswith("GET /api/nowhere: Not Found")
    assert ("take it out of plugins.disabled" in answer.text) is told


async def test_without_keys_a_guarded_page_refuses_pages_of_other_origins() -> None:
    async with gateway() as client:
        assert (await client.post("/closed")).status_code == 200
        for headers in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}, {"host": "evil.example"}):
            assert (await client.post("/closed", headers=headers)).status_code == 403
            assert (await client.get("/open", headers=headers)).status_code == 200
        assert (await client.get("/closed")).status_code == 405


@pytest.mark.parametrize("failure", [SystemExit, KeyboardInterrupt])
async def test_a_page_that_exits_answers_500(failure: type[BaseException]) -> None:
    async def exits(request: Request) -> Response:
        raise failure

    transport = httpx.ASGITransport(made(lambda: [Route("/exits", exits)]).application, raise_app_exceptions=False)
    async with plain_httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await asyncio.ensure_future(client.get("/exits"))  # from a task, it would end the loop
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal_error"
