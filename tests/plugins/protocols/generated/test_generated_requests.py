"""One conversation of an agent, as the clients of each dialect send it, is the same chat.

``make test`` tries some seeds, ``make slow`` many more: ``ENGINEHOUSE_FUZZ=50`` multiplies those of both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from random import Random
from typing import Any

import ollama._types
import pytest

from enginehouse_kit.protocols import Protocol, ProtocolRequest, Translation
from enginehouse_protocols.messages.protocol import Messages
from enginehouse_protocols.ollama.protocol import Ollama
from enginehouse_protocols.responses.protocol import Responses
from tests.plugins.protocols.generated.client_requests import (
    Talk,
    as_message,
    as_ollama,
    as_response,
    expected,
    joined_turns,
    summary,
    talk,
)

FACTOR = int(os.environ.get("ENGINEHOUSE_FUZZ", "1"))
JOINED = {"messages": ("\n", "user", "assistant"), "ollama": ("\n\n", "user")}
"""What is between the texts of turns in a row that are one in the chat, and whose turns those are."""
MESSAGES, RESPONSES, OLLAMA = Messages(), Responses(), Ollama()


def chat(protocol: Protocol, path: str, body: dict[str, Any]) -> dict[str, Any]:
    made = protocol.translate(ProtocolRequest(path, json.dumps(body).encode(), lambda _: True))
    assert isinstance(made, Translation)
    found: dict[str, Any] = json.loads(made.body)
    return found


def check(
    asked: Talk,
    made: dict[str, Any],
    *,
    images: bool,
    limit: int | None,
    chooses: bool,
    is_response: bool = False,
    joins: tuple[str, ...] = (),
) -> None:
    wanted = expected(asked, is_response=is_response)
    found = summary(made["messages"])
    if not images:  # of results, which Ollama's tools cannot have
        wanted = [turn for turn in wanted if turn[1] or turn[3] or turn[0] != "user"]
    assert found == (joined_turns(wanted, *joins) if joins else wanted)
    assert made.get("max_tokens") == limit
    assert made.get("temperature") == asked.temperature
    assert [tool["function"]["name"] for tool in made.get("tools", ())] == asked.tools
    if chooses:
        named = {"type": "function", "function": {"name": asked.choice}}
        choice = named if asked.choice in asked.tools else {"any": "required"}.get(asked.choice, asked.choice)
        assert made.get("tool_choice", "") == choice


def try_talk(seed: int) -> None:
    try:
        _try(talk(seed), Random(seed))
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error!r}") from error


def _try(asked: Talk, rng: Random) -> None:
    message = as_message(asked, rng)
    made = chat(MESSAGES, "/v1/messages", message)
    check(asked, made, images=True, limit=asked.limit or 9, chooses=True, joins=JOINED["messages"])
    response = as_response(asked, rng)
    made = chat(RESPONSES, "/v1/responses", response)
    check(asked, made, images=True, limit=asked.limit, chooses=True, is_response=True)
    lines = as_ollama(asked)
    ollama._types.ChatRequest(**lines)
    check(
        asked, chat(OLLAMA, "/api/chat", lines), images=False, limit=asked.limit, chooses=False, joins=JOINED["ollama"]
    )


def test_a_conversation_is_the_same_chat_in_each_dialect() -> None:
    for seed in range(400 * FACTOR):
        try_talk(seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_conversations_are_the_same_chat_in_each_dialect() -> None:
    for seed in range(1_000_000, 1_000_000 + 20_000 * FACTOR):
        try_talk(seed)


NEEDED = {"type", "role", "model", "messages", "data", "media_type", "image_url", "images", "function", "source"}
"""Fields that a client cannot send as ``null``: without them nothing is said."""


def nulled(value: Any) -> Iterator[Any]:
    """Copies of ``value`` with ``null`` in place of one field somewhere inside."""
    if isinstance(value, dict | list):
        for place in list(value) if isinstance(value, dict) else range(len(value)):
            inner = [*nulled(value[place])]
            if isinstance(value, dict) and place not in NEEDED:
                inner.append(None)
            for other in inner:
                changed = value.copy()
                changed[place] = other
                yield changed


@pytest.mark.parametrize("seed", range(8))
def test_null_stands_for_a_field_that_is_not_there(seed: int) -> None:
    asked, rng = talk(seed), Random(seed)
    bodies: tuple[tuple[Protocol, str, dict[str, Any]], ...] = (
        (MESSAGES, "/v1/messages", as_message(asked, rng)),
        (RESPONSES, "/v1/responses", as_response(asked, rng)),
        (OLLAMA, "/api/chat", as_ollama(asked)),
    )
    for protocol, path, body in bodies:
        for changed in nulled(body):
            chat(protocol, path, changed)
