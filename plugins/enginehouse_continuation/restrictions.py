"""Tells which streams cannot be continued, with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Fields = Mapping[str, Any]

PATHS = frozenset({"/v1/chat/completions", "/v1/completions"})
"""The endpoints whose streams can be continued."""
_MOST_STOPS, _LONGEST_STOP = 64, 1024
_MOST = 1 << 53
_ABOVE_ONE = ("n", "best_of", "num_beams", "beam_width")
_SCORES = ("logprobs", "top_logprobs", "prompt_logprobs", "n_probs")
_GRAMMARS = (
    *("guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs", "grammar", "json_schema"),
    *("regex", "ebnf", "structural_tag"),
)
_OF_OUTPUT = ("presence_penalty", "frequency_penalty", "dry_multiplier", "mirostat", "logits_processors")
_TIED = (
    "echo",
    "suffix",
    "use_beam_search",
    "kv_transfer_params",
    "audio",
    "return_hidden_states",
    "thinking_token_budget",
    "prompt_embeds",
    "truncate_prompt_tokens",
)


def why_not(fields: Fields) -> str:
    """Why a stream of this request cannot be continued; empty if it can."""
    return _choices(fields) or _scores(fields) or _form(fields) or _sampling(fields) or _stops(fields)


def why_not_again(fields: Fields) -> str:
    """Why the answer to this request, asked again, cannot be compared with what the client has; empty if it can."""
    return _choices(fields) or _scores(fields) or ("'echo' is asked for" if fields.get("echo") else "")


def _choices(fields: Fields) -> str:
    for name in _ABOVE_ONE:
        if isinstance(value := fields.get(name), int) and value > 1:
            return f"'{name}' is above 1"
    prompt = fields.get("prompt")
    if isinstance(prompt, list) and len(prompt) > 1 and not isinstance(prompt[0], int):
        return "it has several prompts"
    return ""


def _scores(fields: Fields) -> str:
    for name in _SCORES:
        value = fields.get(name)
        if value is not None and value is not False:
            return f"'{name}' is asked for"
    return ""


def _form(fields: Fields) -> str:
    form = fields.get("response_format")
    if isinstance(form, dict) and form.get("type", "text") != "text":
        return "its answer follows a grammar, which would start over"
    for name in _GRAMMARS:
        if fields.get(name):
            return f"its answer follows a grammar ('{name}'), which would start over"
    if (fields.get("tools") and fields.get("tool_choice") != "none") or fields.get("functions"):
        return "its answer may call tools"
    if isinstance(wanted := fields.get("modalities"), list) and "audio" in wanted:
        return "its answer has audio"
    return ""


def _sampling(fields: Fields) -> str:
    for name in _OF_OUTPUT:
        if fields.get(name):
            return f"'{name}' counts the tokens of the output only"
    for name in _TIED:
        if fields.get(name):
            return f"'{name}' is asked for"
    if (number(fields, "n_predict") or 0) > 0:  # llama.cpp's, which wins over the limits that drivers reduce
        return "'n_predict' would start over"
    if fields.get("seed") is not None and fields.get("temperature") != 0:
        return "'seed' would start over"
    return ""


def _stops(fields: Fields) -> str:
    given = _given_stops(fields)
    if len(given) <= _MOST_STOPS and all(len(each) <= _LONGEST_STOP for each in given):
        return ""
    return f"it has more than {_MOST_STOPS} stop strings, or one with more than {_LONGEST_STOP} characters"


def withheld_characters(fields: Fields) -> int:
    """How many characters vLLM withholds for stop strings: one less than the longest has."""
    if fields.get("include_stop_str_in_output"):
        return 0
    return max((len(stop) - 1 for stop in stop_strings(fields)), default=0)


def undecided_characters(text: str, fields: Fields) -> int:
    """The length of the longest end of ``text`` that is the beginning of a stop string."""
    longest = 0
    for stop in stop_strings(fields):
        for length in range(min(len(stop) - 1, len(text)), longest, -1):
            if text.endswith(stop[:length]):
                longest = length
                break
    return longest


def has_joined_tokens(pieces: Sequence[str], fields: Fields) -> bool:
    """Whether a piece may have several tokens, because its engine withheld what a stop string may begin with."""
    firsts = {stop[0] for stop in stop_strings(fields)}
    return any(
        undecided_characters(piece[:end], fields)
        for piece in pieces
        if not firsts.isdisjoint(piece[:-1])
        for end in range(1, len(piece))
    )


def stop_strings(fields: Fields) -> list[str]:
    """The stop strings of a request, as far as a stream with them can be continued: to compare more takes too long."""
    return [each[:_LONGEST_STOP] for each in _given_stops(fields)[:_MOST_STOPS]]


def _given_stops(fields: Fields) -> list[str]:
    stop = fields.get("stop")
    given = stop if isinstance(stop, list) else [stop]
    return [each for each in given if isinstance(each, str) and each]


def number(fields: Fields, *names: str) -> int | None:
    """The first of these fields that is a whole number, as far as processes can tell it to each other."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return max(-_MOST, min(value, _MOST))
    return None
