"""A strategy that learns follows each request that it has placed, whoever stands between the engine and the client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import msgspec
import pytest

from enginehouse import Candidate, Middleware, RequestError, Requirements, Strategy
from enginehouse.middleware import MiddlewareFacts, OpenExchange, Opening, PassingWriter, ResponseWriter
from enginehouse.plugin_manager.registry import Registered, Registry
from enginehouse.requests import Tokens
from enginehouse.routing_facts import Placement
from tests.support.registries import registry_with
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import MODEL, OpenGateway

ANSWER = {
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 2},
}
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}


class Learner(Strategy):
    steps: ClassVar[list[str]] = []

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        return candidates[0]

    def placed(self, requirements: Requirements, chosen: Candidate) -> Placement:
        self.steps.clear()
        return Following()


class Following(Placement):
    def queued(self) -> None:
        Learner.steps.append("queued")

    def granted(self) -> None:
        Learner.steps.append("granted")

    def first_byte(self) -> None:
        Learner.steps.append("first byte")

    def counted(self, tokens: Tokens) -> None:
        Learner.steps.append(f"{tokens.input} and {tokens.output} tokens")

    def ended(self) -> None:
        Learner.steps.append("ended")


class Deciding(Middleware):
    """Decides a moment after each answer that its client may have it."""

    def use(self, gateway: MiddlewareFacts) -> None: ...

    def open(
        self, opening: Opening, writer: ResponseWriter, inner: Callable[[ResponseWriter, Opening], OpenExchange]
    ) -> OpenExchange:
        return inner(DecidingWriter(writer), opening)


class DecidingWriter(PassingWriter):
    def settle(self, then: Callable[[RequestError | None], None]) -> None:
        asyncio.get_running_loop().call_soon(then, None)


@pytest.fixture(scope="session")
def registry() -> Registry:
    registry = registry_with("middleware", "deciding", Deciding, instead_of="interception")
    origin = {"entry_point": "other", "module": "other", "distribution": "other", "version": "1"}
    registry.add([Registered(kind="strategy", type="learner", factory=Learner, **origin)])
    return registry


@pytest.mark.parametrize(
    ("path", "between"),
    [
        ("/v1/chat/completions", {}),
        ("/v1/chat/completions", {"interceptors": ["volatile_lines"]}),
        ("/v1/messages", {"models": {MODEL: {"endpoints": []}}}),
    ],
    ids=["nobody", "middleware", "translation"],
)
async def test_it_learns_of_good_answers_and_of_no_others(
    house: OpenGateway, engine: StartEngine, path: str, between: dict[str, Any]
) -> None:
    served = await engine()
    gateway = await house(served, routing={"strategy": "learner"}, **between)
    served.says(msgspec.json.encode(ANSWER))
    assert (await gateway.ask(gateway.post(BODY, path=path))).status == 200
    await gateway.quiet()
    assert Learner.steps == ["queued", "granted", "first byte", "5 and 2 tokens", "ended"]
    served.says(msgspec.json.encode(ANSWER), 400)
    assert (await gateway.ask(gateway.post(BODY, path=path))).status == 400
    await gateway.quiet()
    assert Learner.steps == ["queued", "granted", "ended"]
