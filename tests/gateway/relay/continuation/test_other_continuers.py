"""A continuer of another plugin that fails: its streams pass as they come, and end with their engines or alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

import msgspec
import pytest

from enginehouse import Candidate, Continuer, Health, RequestError
from enginehouse.continuers import KeptStream, NewShare, Question, Rest, StreamMove, Translator
from enginehouse.drivers import EngineClient, SupportsContinuation
from enginehouse.errors import PluginFailed
from enginehouse.plugin_manager.registry import Registry
from enginehouse_continuation.continuer import StreamContinuer
from enginehouse_continuation.stream_history import StreamHistory
from enginehouse_kit.protocols import Protocol
from tests.gateway.relay.continuation.test_broken_engines import CHAT, VLLM, ask, body, continued, unbroken
from tests.gateway.relay.continuation.test_moves import WHOLE, Streaming
from tests.support.model_engine import Break, StartModelEngine
from tests.support.registries import registry_with
from tests.support.scripted_engine import END, Cut, StartEngine
from tests.support.seen_stream import read_stream
from tests.support.served_gateway import OpenGateway

T = TypeVar("T")
KEPT: list[object] = []
"""What ``Odd.keep`` returns; an exception is raised."""
FAILING: list[str] = []
"""The methods that fail of each stream that ``Odd`` keeps."""
WRONG: dict[str, Callable[[], Any]] = {}
"""What methods of a rest and its translator do in place of what is right, by their names."""


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
        if "rest" in WRONG:
            wrong: Rest = WRONG["rest"]()
            return wrong
        return OddRest(super().rest(kept, rule))

    async def move(self, kept: KeptStream, move: StreamMove) -> None:
        await super().move(kept, OddMove(move))


def changed(name: str, right: T) -> T:
    wrong: T = WRONG[name]() if name in WRONG else right
    return wrong


def odd(asked: Question) -> Question:
    assert asked.translator is not None
    return changed("ask", asked._replace(translator=changed("translator", OddTranslator(asked.translator))))


class OddRest(Rest):
    def __init__(self, own: Rest) -> None:
        self._own = own

    async def ask(self, candidate: Candidate, driver: SupportsContinuation, engine: EngineClient) -> Question:
        return odd(await self._own.ask(candidate, driver, engine))


class OddTranslator(Translator):
    def __init__(self, own: Translator) -> None:
        self._own = own
        self.path, self.tokens = own.path, own.tokens

    def translate(self, piece: bytes) -> Iterator[bytes]:
        events = list(self._own.translate(piece))
        self.has_begun = self._own.has_begun
        return changed("translate", iter(events))


class OddMove:
    """A move whose question for the rest is odd; that for the text so far, before the cut, is right."""

    def __init__(self, move: StreamMove) -> None:
        self._move = move

    def __getattr__(self, name: str) -> Any:
        return getattr(self._move, name)

    async def cut(self, ask: Callable[[], Any]) -> float:
        async def asked() -> Question:
            return odd(await ask())

        return await self._move.cut(asked)


@pytest.fixture(scope="session")
def registry() -> Registry:
    return registry_with("continuer", "odd", Odd, instead_of="continuation")


@pytest.fixture(autouse=True)
def _right() -> None:
    KEPT.clear()
    FAILING.clear()
    WRONG.clear()


@pytest.mark.parametrize("wrong", [SystemExit(), None, (None, "text"), ("text", b"{}")], ids=repr)
async def test_a_stream_that_it_cannot_keep_passes_as_it_comes(
    house: OpenGateway, model_engine: StartModelEngine, wrong: object
) -> None:
    KEPT.append(wrong)
    first, other = await model_engine(), await model_engine()
    gateway = await house(first, other, backend=VLLM)
    assert isinstance(gateway.relay.context.continuer, Continuer)
    assert (await ask(gateway, CHAT, body())).answer == unbroken(CHAT, body()).answer


RIGHT: Any = Question(CHAT, b"{}", "text")
WRONGS: list[tuple[str, Callable[[], Any]]] = [
    ("rest", fail),
    ("rest", lambda: None),
    ("ask", fail),
    ("ask", lambda: None),
    ("ask", lambda: RIGHT._replace(path=None)),
    ("ask", lambda: RIGHT._replace(body="text")),
    ("ask", lambda: RIGHT._replace(way="none")),
    ("translator", lambda: "text"),
    ("translate", fail),
    ("translate", lambda: None),
    ("translate", lambda: iter(["text"])),
]


@pytest.mark.parametrize(("name", "wrong"), WRONGS)
async def test_a_stream_whose_rest_it_cannot_ask_for_ends_with_its_failure(
    house: OpenGateway, model_engine: StartModelEngine, name: str, wrong: Callable[[], Any]
) -> None:
    first, other = await model_engine(), await model_engine()
    gateway = await house(first, other, backend=VLLM)
    first.breaks = [Break(9, Cut.CLOSE)]
    WRONG[name] = wrong
    reply = await gateway.ask(gateway.post(body(), path=CHAT))
    assert (reply.status, b"[DONE]" in reply.body, b'"code":"plugin_failed"' in reply.body) == (200, False, True)
    assert b"The continuer 'odd' of plugin 'acme'" in reply.body
    assert gateway.fleet.health("b") is Health.HEALTHY
    await gateway.quiet()


async def test_a_stream_whose_rest_is_right_goes_on(house: OpenGateway, model_engine: StartModelEngine) -> None:
    first, other = await model_engine(), await model_engine()
    gateway = await house(first, other, backend=VLLM)
    first.breaks = [Break(9, Cut.CLOSE)]
    assert (await ask(gateway, CHAT, body())).answer == unbroken(CHAT, body()).answer
    assert continued(gateway) == {("b", "broken", "tokens"): 1}


@pytest.mark.parametrize(("name", "wrong"), WRONGS[2:])
async def test_a_stream_stays_whose_rest_it_cannot_ask_for(
    house: OpenGateway, model_engine: StartModelEngine, name: str, wrong: Callable[[], Any]
) -> None:
    source, destination = await model_engine(), await model_engine()
    gateway = await house(source, destination, backend=VLLM)
    streaming = await Streaming.begin(gateway, source)
    WRONG[name] = wrong
    with pytest.raises(RequestError, match="The continuer 'odd' of plugin 'acme'") as raised:
        await gateway.relay.move("r1", "b")
    assert isinstance(raised.value, PluginFailed) or name == "translate"
    streaming.gate.set()
    await streaming.rest()
    assert read_stream(streaming.wire).answer == WHOLE.answer
    await gateway.quiet()


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


@pytest.mark.parametrize("fails", ["read", "cut"])
async def test_an_event_that_it_cannot_follow_alone_is_no_fault_of_the_engine(
    house: OpenGateway, engine: StartEngine, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StreamHistory, "most", 1)
    first, more = await engine(), asyncio.Event()
    gateway = await house(first, await engine(), backend=VLLM)
    events = [b'data: {"choices":[{"index":0,"delta":{"content":"%d"}}]}\n\n' % number for number in range(2)]
    first.streams(events[0], more, events[1], b"data: [DONE]\n\n", END)
    FAILING.append(fails)
    client = await gateway.client()
    client.send(gateway.post(body(), path=CHAT))
    if fails == "read":
        await client.head()
        assert await client.chunk() == events[0]
        [attempt] = gateway.attempts()
        assert attempt.connection is not None
        assert attempt.connection.fast_path is not None
    more.set()
    rest = (await client.reply()).body if fails == "cut" else await client.chunk()
    assert b'"code":"plugin_failed"' in rest
    assert b"The continuer 'odd' of plugin 'acme'" in rest
    assert gateway.fleet.backends()[0].last_error is None
    await gateway.quiet()


async def test_a_stream_of_which_it_returns_nothing_does_not_look_whole(
    house: OpenGateway, model_engine: StartModelEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = await house(await model_engine(), await model_engine(), backend=VLLM)
    monkeypatch.setattr(StreamHistory, "take", lambda *_: None)
    reply = await gateway.ask(gateway.post(body(), path=CHAT))
    assert b"returned no bytes from take" in reply.body
    await gateway.quiet()
