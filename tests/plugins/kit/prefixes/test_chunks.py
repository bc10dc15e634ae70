from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginehouse import Requirements
from enginehouse_kit.prefixes import ChunkExtractor, chunks_of
from enginehouse_kit.testing import check_extractor, request, requirements

TOKENS = 64
LONG = "All aboard the night train. " * 60
IDS = list(range(500))


def extracted(least: int = 0, tokens: int = 0, **fields: Any) -> Requirements:
    needs = requirements(estimated_tokens=tokens)
    ChunkExtractor(TOKENS, least).extract(request(fields), needs)
    return needs


def chunks(**fields: Any) -> Sequence[int]:
    return chunks_of(extracted(**fields))


def chat(*texts: str, **fields: Any) -> Sequence[int]:
    roles = ("user", "assistant")
    return chunks(messages=[{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)], **fields)


def common(one: Sequence[int], other: Sequence[int]) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def test_it_keeps_the_rules_of_extractors() -> None:
    check_extractor(lambda: ChunkExtractor(TOKENS))


def test_a_conversation_that_goes_on_begins_with_the_chunks_that_it_had() -> None:
    first = chat(LONG)
    assert len(first) == (len(LONG) + len("\nuser\n")) // (4 * TOKENS)
    assert common(first, chat(LONG, "Tickets, please", LONG)) == len(first)


def test_a_chunk_stands_for_the_prompt_up_to_its_end() -> None:
    assert common(chunks(prompt=LONG), chunks(prompt=LONG[:1000] + "?" + LONG[1001:])) == 1000 // (4 * TOKENS)
    assert not set(chunks(prompt="a" + LONG)) & set(chunks(prompt="b" + LONG))
    assert not set(chunks(prompt=LONG)) & set(chunks(prompt=LONG, model="another"))


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": LONG},
        {"prompt": IDS},
        {"input": LONG},
        {"input": IDS},
        {"input": [{"role": "user", "content": LONG}]},
        {"instructions": LONG, "input": "Hello"},
        {"system": LONG, "messages": []},
        {"system": [{"type": "text", "text": LONG}], "messages": []},
        {"tools": [{"name": LONG}], "messages": []},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}, {"type": "text", "text": LONG}]}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": LONG}]}]},
        {"input": [{"type": "function_call_output", "output": LONG}]},
    ],
)
def test_every_part_of_a_prompt_counts(fields: dict[str, Any]) -> None:
    assert len(chunks(**fields)) >= 6
    assert chunks(**fields) == chunks(temperature=0.5, **fields)


@pytest.mark.parametrize("prompts", [[LONG, LONG], [IDS, IDS]])
def test_of_several_prompts_none_counts(prompts: list[Any]) -> None:
    assert not chunks(prompt=prompts)
    assert not chunks(input=prompts)


@given(prompt=st.text(max_size=1000), more=st.text(max_size=500))
def test_what_follows_changes_no_chunk(prompt: str, more: str) -> None:
    short, long = chunks(prompt=prompt), chunks(prompt=prompt + more)
    assert len(short) == len(prompt) // (4 * TOKENS)
    assert long[: len(short)] == short


def test_short_prompts_are_left_out_if_wanted() -> None:
    assert chunks_of(extracted(least=100, tokens=100, prompt=LONG))
    assert not chunks_of(extracted(least=101, tokens=100, prompt=LONG))
    assert not chunks_of(requirements())


def test_the_end_of_a_huge_prompt_does_not_count() -> None:
    assert len(chunks(prompt="x" * 10_000_000)) == 2048


def test_explanations_show_their_number() -> None:
    shown = msgspec.to_builtins(extracted(prompt=LONG), enc_hook=repr)["extra"]
    assert shown == {"routing.chunks": "6 chunks"}
