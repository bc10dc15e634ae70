"""The conformance check of hand-overs finds what breaks their rules."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from enginehouse import HandOver, Route
from enginehouse.hand_overs import GoOn, PairChoice, PrefillEngine
from enginehouse_kit.checks import hand_overs
from enginehouse_kit.testing import check_hand_over


class Right(HandOver):
    def route(self, choice: PairChoice, failed: tuple[str, ...]) -> Route:
        return choice.find(failed)

    async def prepare(self, prefill: PrefillEngine, route: Route, body: bytes) -> tuple[bytes, GoOn | None]:
        await prefill.take()
        await prefill.ask(body)
        return body, None


class LeadsToFailed(Right):
    def route(self, choice: PairChoice, failed: tuple[str, ...]) -> Route:
        return choice.find(())


class AsksItself(Right):
    def route(self, choice: PairChoice, failed: tuple[str, ...]) -> Route:
        route = choice.find(failed)
        return replace(route, prefill=route.chosen)


class DoesNotTake(Right):
    async def prepare(self, prefill: PrefillEngine, route: Route, body: bytes) -> tuple[bytes, GoOn | None]:
        await prefill.ask(body)
        return body, None


class TakesTwice(Right):
    async def prepare(self, prefill: PrefillEngine, route: Route, body: bytes) -> tuple[bytes, GoOn | None]:
        await prefill.take()
        return await super().prepare(prefill, route, body)


class Hangs(Right):
    async def prepare(self, prefill: PrefillEngine, route: Route, body: bytes) -> tuple[bytes, GoOn | None]:
        return body, asyncio.Event().wait  # type: ignore[return-value]


class GivesText(Right):
    async def prepare(self, prefill: PrefillEngine, route: Route, body: bytes) -> tuple[bytes, GoOn | None]:
        return "text", None  # type: ignore[return-value]


def test_a_right_one_passes() -> None:
    check_hand_over(Right)


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (LeadsToFailed, "find must get the replicas that failed"),
        (AsksItself, "the two engines of a route must differ"),
        (DoesNotTake, "prepare must call take before it asks"),
        (TakesTwice, "prepare must call take once"),
        (Hangs, "prepare and what goes on must return within 0.5 seconds"),
        (GivesText, "prepare must return the body as bytes"),
    ],
)
def test_a_wrong_one_is_found(wrong: type[HandOver], problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hand_overs, "_LONGEST_S", 0.5)
    with pytest.raises(AssertionError, match=problem):
        check_hand_over(wrong)
