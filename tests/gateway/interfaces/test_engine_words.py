from __future__ import annotations

from typing import Any

import pytest

from enginehouse.interfaces.engine_words import ContextOverflow, read_context_overflow

MAXIMUM = "This model's maximum context length is 4096 tokens. "
WORDS: list[tuple[Any, tuple[int | None, int | None]]] = [
    # llama.cpp
    ({"type": "exceed_context_size_error", "message": "m", "n_prompt_tokens": 5000, "n_ctx": 4096}, (5000, 4096)),
    ("request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it", (5000, 4096)),
    ("the request exceeds the available context size, try increasing it", (None, None)),
    # vLLM
    (MAXIMUM + "However, you requested 5000 tokens (4800 in the messages, 200 in the completion).", (5000, 4096)),
    (MAXIMUM + "However, your request has 5000 input tokens. Please reduce the length.", (5000, 4096)),
    (
        MAXIMUM + "However, you requested 4000 output tokens and your prompt contains at least 97 input tokens, "
        "for a total of at least 4097 tokens.",
        (4097, 4096),
    ),
    (
        "'max_tokens' or 'max_completion_tokens' is too large: 4090. " + MAXIMUM[:-2] + " and your request has 20 "
        "input tokens (4090 > 4096 - 20).",
        (4110, 4096),
    ),
    ("The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure", (5000, 4096)),
    # SGLang
    ("The input (5000 tokens) is longer than the model's context length (4096 tokens).", (5000, 4096)),
    ("Input length (5000 tokens) exceeds the maximum allowed length (4096 tokens). Use a shorter", (5000, 4096)),
    (
        "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of "
        "5000 tokens: 4800 tokens from the input messages and 200 tokens for the completion.",
        (5000, 4096),
    ),
    # LM Studio
    (
        "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context "
        "length of only 4096 tokens",
        (5000, 4096),
    ),
]


@pytest.mark.parametrize(("error", "numbers"), WORDS)
def test_engines_words_for_a_prompt_that_is_too_long(error: Any, numbers: tuple[int | None, int | None]) -> None:
    told = error if isinstance(error, dict) else {"message": error, "code": 400}
    assert read_context_overflow(told) == ContextOverflow(*numbers)


@pytest.mark.parametrize("error", [None, 5, {}, {"message": None}, "max_tokens must be at least 1", {"code": 400}])
def test_other_errors(error: Any) -> None:
    assert read_context_overflow(error) is None
