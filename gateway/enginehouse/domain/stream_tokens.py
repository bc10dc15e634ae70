"""The tokens of a stream that is under way."""

from __future__ import annotations

from typing import NamedTuple


class StreamTokens(NamedTuple):
    """The tokens of a stream: those of its prompt, those of its answer so far, and the most that this may have.

    ``None`` if no engine has told them, or if only the context limits the answer.
    """

    prompt: int | None = None
    output: int | None = None
    most: int | None = None
