"""Why a prompt is not cached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from enginehouse import Candidate, ReplicaState, Requirements
from enginehouse.routing_facts import PrefixFacts
from enginehouse_kit.testing import candidate, request, requirements
from enginehouse_routing.cache_aware import CacheAware

LONG = "All aboard, the train to the north leaves from platform four. "
TOOL = {"type": "function", "function": {"name": "timetable", "description": LONG * 20}}


class Chats:
    """Chats at one strategy, and what it says of their prompts."""

    def __init__(self, **parameters: object) -> None:
        self.strategy = CacheAware(msgspec.convert(parameters, CacheAware.Config))
        self.strategy.start(lambda: 0.0)

    def asks(self, *said: str, system: Any = LONG * 40, tools: Sequence[Any] = (TOOL,)) -> Requirements:
        messages = [{"role": "system", "content": system}]
        messages += [
            {"role": ("user", "assistant")[n % 2], "content": f"{text} {LONG * 20}"} for n, text in enumerate(said)
        ]
        body = {"model": "m", "messages": messages, "tools": list(tools)}
        needs = requirements("m", estimated_tokens=len(msgspec.json.encode(body)) // 4)
        [extractor] = self.strategy.extractors()
        extractor.extract(request(body), needs)
        return needs

    def sends(self, needs: Requirements, engine: Candidate) -> PrefixFacts:
        self.strategy.pick(needs, [engine])
        placement = self.strategy.placed(needs, engine)
        assert placement is not None
        assert placement.prefix is not None
        return placement.prefix


A, B = candidate("a", "m"), candidate("b", "m")


def test_the_first_prompt_is_new_and_the_next_turn_differs_where_it_goes_on() -> None:
    chats = Chats()
    first = chats.sends(chats.asks("Hello"), A)
    assert (first.cached, first.lost, first.why) == (0, 0, "new")
    second = chats.sends(chats.asks("Hello", "Yes?", "When?"), A)
    assert (second.lost, second.why) == (0, "message:2")
    assert second.cached > 0.8 * first.tokens


def test_a_history_that_was_changed_is_known_by_its_message() -> None:
    chats = Chats()
    chats.sends(chats.asks("Hello", "Yes?", "When?", "Soon.", "How soon?"), A)
    changed = chats.sends(chats.asks("Hello", "Yes!", "When?", "Soon.", "How soon?", "At four.", "Thanks"), A)
    assert changed.why == "message:2"
    assert 900 < changed.lost < 1100, "the three messages after it"


def test_tools_and_the_system_prompt_have_names() -> None:
    chats = Chats()
    chats.sends(chats.asks("Hello"), A)
    assert chats.sends(chats.asks("Hello", tools=()), A).why in ("tools", "system")
    other = chats.sends(chats.asks("Hello", system="Now it is five. " + LONG * 40), A)
    assert other.why == "system"
    assert other.lost > 0


def test_another_engine_may_have_it() -> None:
    chats = Chats()
    chats.sends(chats.asks("Hello"), A)
    elsewhere = chats.sends(chats.asks("Hello"), B)
    assert (elsewhere.cached, elsewhere.why) == (0, "moved")
    assert elsewhere.lost > 900


def test_what_had_to_go_was_evicted() -> None:
    chats = Chats(cache_tokens=2000)
    chats.sends(chats.asks("Hello"), A)
    chats.sends(chats.asks("Bye", system="Other. " * 700, tools=()), A)
    again = chats.sends(chats.asks("Hello"), A)
    assert again.why == "evicted"
    assert again.lost > 500


def test_an_engine_that_is_launched_anew_has_nothing() -> None:
    chats = Chats()
    chats.sends(chats.asks("Hello"), A)
    cold = candidate("a", "m", state=ReplicaState.STOPPED)
    explained = chats.strategy.prefix(chats.asks("Hello"), cold)
    assert explained is not None
    assert explained.why == "restarted"
    sent = chats.sends(chats.asks("Hello"), cold)
    assert (sent.cached, sent.why) == (0, "restarted")
    assert sent.lost == explained.lost


def test_an_engine_has_no_more_than_was_kept() -> None:
    chats = Chats()
    other = chats.asks("Bye", system="Other. " * 700, tools=())
    chats.sends(chats.asks("Hello"), A)
    last = chats.sends(other, A)
    kept = candidate("a", "m", state=ReplicaState.STOPPED, cache_kept=last.tokens)
    found = chats.sends(other, kept)
    assert found.cached > 0.9 * last.tokens
    dropped = chats.sends(chats.asks("Hello"), A)
    assert (dropped.cached < 200, dropped.why) == (True, "restarted")


def test_a_line_that_is_new_each_time_is_no_difference() -> None:
    chats = Chats()
    for nonce in ("3fa2b", "9cc01"):
        line = f"x-anthropic-billing-header: cc_version=2.1.100; cch={nonce};"
        for system in (f"{line}\n{LONG * 40}", [{"type": "text", "text": line}, {"type": "text", "text": LONG * 40}]):
            last = chats.sends(chats.asks("Hello", system=system), A)
    assert last.cached > 0.8 * last.tokens
