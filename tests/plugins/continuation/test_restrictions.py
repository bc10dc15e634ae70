"""Which requests cannot be continued, and what a stop string leaves undecided."""

from __future__ import annotations

from typing import Any

import pytest

from enginehouse_continuation.restrictions import (
    number,
    undecided_characters,
    why_not,
    why_not_again,
    withheld_characters,
)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"n": 2}, "'n'"),
        ({"best_of": 3}, "'best_of'"),
        ({"prompt": ["a", "b"]}, "several prompts"),
        ({"prompt": [[1], [2]]}, "several prompts"),
        ({"logprobs": True}, "'logprobs'"),
        ({"logprobs": 0}, "'logprobs'"),
        ({"response_format": {"type": "json_object"}}, "grammar"),
        ({"guided_regex": "a+"}, "grammar"),
        ({"tools": [{}]}, "tools"),
        ({"modalities": ["text", "audio"]}, "audio"),
        ({"presence_penalty": 0.5}, "'presence_penalty'"),
        ({"seed": 7}, "'seed'"),
        ({"n_predict": 100}, "'n_predict'"),
        ({"stop": [str(number) for number in range(65)]}, "more than 64 stop strings"),
        ({"stop": "a" * 1025}, "more than 1024 characters"),
        ({"truncate_prompt_tokens": 512}, "'truncate_prompt_tokens'"),
        ({"echo": True}, "'echo'"),
    ],
)
def test_what_cannot_be_continued_says_why(fields: dict[str, Any], reason: str) -> None:
    assert reason in why_not(fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"n": 1, "prompt": [1, 2, 3], "logprobs": False, "logit_bias": {"5": 1}, "repetition_penalty": 1.1},
        {"tools": [{}], "tool_choice": "none", "response_format": {"type": "text"}, "presence_penalty": 0},
        {"seed": 7, "temperature": 0, "n_predict": -1},
        {"stop": ["a" * 1024] * 64},
        {"modalities": 1, "stop": 1, "prompt": 1, "response_format": 1, "tools": 0},  # of types that engines may ignore
    ],
)
def test_what_can_be_continued_gives_no_reason(fields: dict[str, Any]) -> None:
    assert why_not(fields) == ""


def test_grammars_penalties_and_tools_can_still_be_asked_anew() -> None:
    assert why_not_again({"seed": 7, "tools": [{}], "response_format": {"type": "json_object"}}) == ""
    assert "'n'" in why_not_again({"n": 2})


def test_vllm_withholds_one_character_less_than_the_longest_stop_string_has() -> None:
    assert withheld_characters({"stop": ["ab", "abcd"]}) == 3
    assert withheld_characters({"stop": "abcd", "include_stop_str_in_output": True}) == 0
    assert withheld_characters({}) == withheld_characters({"stop": 1}) == withheld_characters({"stop": [1, None]}) == 0


@pytest.mark.parametrize(("text", "length"), [("xab", 2), ("xa", 1), ("abc", 0), ("", 0), ("b", 0)])
def test_the_end_of_a_text_may_begin_a_stop_string(text: str, length: int) -> None:
    assert undecided_characters(text, {"stop": ["abc", "aa"]}) == length


def test_stop_strings_are_compared_as_far_as_that_is_quick() -> None:
    """32 MiB of them would hold up the event loop for many seconds, when an engine breaks a long answer."""
    assert undecided_characters("a" * 2000, {"stop": ["b"] * 64 + ["a" * 2001]}) == 0
    assert undecided_characters("a" * 2000, {"stop": "a" * 2001}) == 1023


def test_a_number_is_one_that_other_processes_can_be_told() -> None:
    assert number({"max_tokens": 10**30}, "max_completion_tokens", "max_tokens") == 1 << 53
    assert number({"max_tokens": True, "n": -(10**30)}, "max_tokens", "n") == -(1 << 53)
