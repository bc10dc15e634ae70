"""Answers of engines, as far as they tell the tokens that were counted, or are in order."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from enginehouse.domain.request_record import EngineTimings

_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]


class PromptDetails(msgspec.Struct, gc=False):
    """Which of a prompt's tokens the engine did not compute."""

    cached_tokens: _Count | None = None


class Usage(msgspec.Struct, gc=False):
    """OpenAI's counts, and those of its Responses and of Anthropic."""

    prompt_tokens: _Count = 0
    completion_tokens: _Count = 0
    prompt_tokens_details: PromptDetails | None = None
    input_tokens: _Count = 0
    output_tokens: _Count = 0
    input_tokens_details: PromptDetails | None = None
    cache_read_input_tokens: _Count | None = None
    cache_creation_input_tokens: _Count | None = None


class Timings(msgspec.Struct, gc=False):
    """llama-server's counts, which its streams tell whether or not the client asks for the usage."""

    prompt_n: _Count
    """Those of the prompt that were computed."""
    predicted_n: _Count
    cache_n: _Count | None = None
    prompt_per_second: float | None = None
    predicted_per_second: float | None = None
    draft_n: _Count | None = None
    draft_n_accepted: _Count | None = None

    def measured(self) -> EngineTimings | None:
        """The figures that are no counts of tokens of the request, if it has any."""
        if self.predicted_per_second is None and self.draft_n is None:
            return None
        return EngineTimings(self.prompt_per_second, self.predicted_per_second, self.draft_n, self.draft_n_accepted)


class Counted(msgspec.Struct, gc=False):
    """An answer, or the end of one."""

    usage: Usage | None = None
    timings: Timings | None = None


decode_counted: Final = msgspec.json.Decoder(Counted).decode
"""Reads the counts in an answer, a JSON object. Raises ``ValueError`` or ``RecursionError`` if it is malformed."""


class NestedCounted(msgspec.Struct, gc=False):
    """The end of an event whose counts are in an object of it."""

    inner: Counted = msgspec.field(name="in")


decode_nested: Final = msgspec.json.Decoder(NestedCounted).decode
"""Reads the counts in such an event. Raises ``ValueError`` or ``RecursionError`` if it is malformed."""


def read_usage(usage: object) -> Usage:
    """A decoded ``usage``. Raises ``msgspec.ValidationError``."""
    return msgspec.convert(usage, Usage)


class WholeChoice(msgspec.Struct, gc=False):
    """A choice that goes on, or ends with a usual reason. With another one, its engine may have broken it off."""

    finish_reason: Literal["stop", "length", "tool_calls", "content_filter", "function_call", ""] | None = None


class CountedAnswer(Counted, gc=False):
    """An answer without an error. Those of some engines have a message or a detail at once."""

    error: None = None
    message: None = None
    detail: None = None
    choices: list[WholeChoice] = []


decode_answer: Final = msgspec.json.Decoder(CountedAnswer).decode
"""Reads an answer that came whole. Raises as ``decode_counted``, and for an answer with an error."""


class UncountedAnswer(msgspec.Struct, gc=False):
    """An answer without an error, of which nothing is kept: what it counts may be anything."""

    error: None = None
    message: None = None
    detail: None = None


check_answer: Final = msgspec.json.Decoder(UncountedAnswer).decode
"""Checks that an answer is an object without an error. Raises ``ValueError`` or ``RecursionError`` if it is not."""


class AnyObject(msgspec.Struct, gc=False):
    """An object of which nothing is kept. A decoder that keeps nothing is the fastest check."""


skim: Final = msgspec.json.Decoder(AnyObject | list[AnyObject]).decode
"""Checks that an answer is JSON. Raises ``ValueError`` or ``RecursionError`` if it is not."""


class EndingChoice(msgspec.Struct, gc=False):
    """A choice, of which only the reason of its end counts."""

    finish_reason: str | None = None


class EndingEvent(msgspec.Struct, gc=False):
    """An event of a stream that may be one of its last."""

    choices: list[EndingChoice] | None = None

    @property
    def ends(self) -> bool:
        """Whether it ends a choice, or only tells what comes behind all of them, such as the usage."""
        choices = self.choices
        return choices is not None and (not choices or any(each.finish_reason is not None for each in choices))


decode_ending: Final = msgspec.json.Decoder(EndingEvent).decode
"""Reads an event of a stream. Raises ``ValueError`` or ``RecursionError`` if it is malformed."""
