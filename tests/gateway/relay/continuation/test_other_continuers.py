"""A continuer of another plugin that fails: its streams pass as they come, and end with their engines or alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import msgspec
import pytest

from enginehouse import Continuer
from enginehouse.continuers import KeptStream, NewShare, Rest
from enginehouse.drivers import SupportsContinuation
from enginehouse.plugin_manager.registry import Registry
from enginehouse_continuation.continuer import StreamContinuer
from enginehouse_continuation.stream_history import StreamHistory
from enginehouse_kit.protocols import Protocol
from tests.gateway.relay.continuation.test_broken_engines import CHAT, VLLM, ask, body, continued, unbroken
from tests.gateway.relay.continuation.test_moves import WHOLE, Streaming
from tests.support.model_engine import Break, StartModelEngine
from tests.support.registries import registry_with
from tests.support.scripted_engine import Cut
from tests.support.seen_stream import read_stream
from tests.support.served_gateway import OpenGateway

T = TypeVar("T")
KEPT: list[object] = []
"""What ``Odd.keep`` returns; an exception is raised."""
FAILING: list[str] = []
"""The methods that fail of each stream that ``Odd`` keeps."""


def fail(*_: object) -> NoReturn:
    raise SystemExit


def failing(made: T) -> T:
    for name in FAILING:
        setattr(made, name, fail)
    return made


class Odd(StreamContinuer):
    def keep(
        self,
        path: str,
        body: bytes,
        driver: SupportsContinuation,
        share: NewShare,
        protocol: Protocol | None = None,
        knows: Callable[[str], bool] | None = None,
    ) -> tuple[KeptStream | None, bytes]:
        if not KEPT:
            stream, asked = super().keep(path, body, driver, share, protocol, knows)
            return failing(stream), asked
        if isinstance(KEPT[0], SystemExit):
            raise KEPT[0]
        wrong: Any = KEPT[0]
        kept: tuple[KeptStream | None, bytes] = wrong
        return kept

    def rest(self, kept: KeptStream, rule: str) -> Rest:
        raise ZeroDivisionError


@pytest.fixture(scope="session")
def registry() -> Registry:
    return registry_with("continuer", "odd", Odd, instead_of="continuation")


@pytest.fixture(autouse=True)
def _right() -> None:
    KEPT.clear()
    FAILING.clear()


@pytest.mark.parametrize("wrong", [SystemExit(), None, (None, "text"), ("text", b"{}")], ids=repr)
async def test_a_stream_that_it_cannot_keep_passes_as_it_comes(
    house: OpenGateway, model_engine: StartModelEngine, wrong: object
) -> None:
    KEPT.append(wrong)
    first, other = await model_engine(), await model_engine()
    gateway = await house(first, other, backend=VLLM)
    assert isinstance(gateway.relay.context.continuer, Continuer)
    assert (await ask(gateway, CHAT, body())).answer == unbroken(CHAT, body()).answer


async def test_a_stream_whose_rest_it_cannot_ask_for_ends_with_its_failure(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    first, other = await model_engine(), await model_engine()
    gateway = await house(first, other, backend=VLLM)
    first.breaks = [Break(9, Cut.CLOSE)]
    reply = await gateway.ask(gateway.post(body(), path=CHAT))
    assert (reply.status, b"[DONE]" in reply.body, b'"code":"plugin_failed"' in reply.body) == (200, False, True)
    assert continued(gateway) == {}


async def test_a_stream_of_which_it_tells_nothing_is_listed_beside_one_that_moves(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    first, other = await model_engine(), await model_engine()
    gateway = await house(first, other, backend=VLLM)
    gateway.fleet.drain("b")
    FAILING.extend(("tokens", "why_not_movable"))
    stays = await Streaming.begin(gateway, first, id="stays")
    FAILING.clear()
    moves = await Streaming.begin(gateway, first, id="moves")
    listed = await gateway.ask(gateway.get("/api/requests"))
    assert {each["id"]: each["stays"] for each in msgspec.json.decode(listed.body)["requests"]} == {
        "stays": "the continuer 'odd' of plugin 'acme' failed",
        "moves": None,
    }
    gateway.fleet.undrain("b")
    gateway.fleet.drain("a")
    gateway.relay.drains.begin("a")
    await gateway.until(lambda: sorted(live.moves for live in gateway.relay.live) == [0, 1])
    for streaming in (stays, moves):
        streaming.gate.set()
        await streaming.rest()
        assert read_stream(streaming.wire).answer == WHOLE.answer
    await gateway.quiet()


async def test_a_stream_ends_whatever_fails_then(house: OpenGateway, model_engine: StartModelEngine) -> None:
    first, other = await model_engine(), await model_engine()
    gateway = await house(first, other, backend=VLLM)
    FAILING.extend(("count", "release"))
    assert (await ask(gateway, CHAT, body())).answer == unbroken(CHAT, body()).answer
    await gateway.quiet()


@pytest.mark.parametrize("fails", ["take", "ending", "may_go_on"])
async def test_a_stream_that_it_cannot_follow_fails_alone(
    house: OpenGateway, model_engine: StartModelEngine, fails: str
) -> None:
    first, other = await model_engine(), await model_engine()
    gateway = await house(first, other, backend=VLLM)
    first.breaks = [Break(9, Cut.CLOSE)]
    FAILING.append(fails)
    reply = await gateway.ask(gateway.post(body(), path=CHAT))
    assert (reply.status, b"[DONE]" in reply.body, b'"code":"plugin_failed"' in reply.body) == (200, False, True)
    await gateway.quiet()


async def test_a_stream_of_which_it_returns_nothing_does_not_look_whole(
    house: OpenGateway, model_engine: StartModelEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = await house(await model_engine(), await model_engine(), backend=VLLM)
    monkeypatch.setattr(StreamHistory, "take", lambda *_: None)
    reply = await gateway.ask(gateway.post(body(), path=CHAT))
    assert b"returned no bytes from take" in reply.body
    await gateway.quiet()
