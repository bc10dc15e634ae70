"""The tokens that an engine counted, as its answers report them."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]


class Usage(msgspec.Struct, gc=False):
    """OpenAI's counts, and those of its Responses and of Anthropic."""

    prompt_tokens: _Count = 0
    completion_tokens: _Count = 0
    input_tokens: _Count = 0
    output_tokens: _Count = 0


class Counted(msgspec.Struct, gc=False):
    """An answer, or the end of one."""

    usage: Usage | None = None


decode_counted: Final = msgspec.json.Decoder(Counted).decode
"""Reads the counts in an answer, a JSON object. Raises ``ValueError`` or ``RecursionError`` if it is malformed."""
