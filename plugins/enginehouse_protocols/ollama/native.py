"""The answers of engines that speak the protocol themselves.

Their lines: https://github.com/ollama/ollama/blob/main/docs/api.md#response.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from enginehouse.errors import UpstreamError
from enginehouse.requests import Tokens
from enginehouse_kit.protocols import NativeAnswer

_LONGEST: Final = 1 << 20
"""Bytes of a last line, or of a whole answer, that is read; nothing is known of a longer one."""
_MOST: Final = 1 << 53
"""No engine has so many tokens."""


class _Line(msgspec.Struct):
    done: Any = None
    error: Any = None
    prompt_eval_count: Any = None
    eval_count: Any = None


class EngineLines(NativeAnswer):
    """The lines of a stream, or the only one of any other answer. The last one is ``done``, and has the counts.

    ``_line``: what has come of it.
    """

    def __init__(self) -> None:
        self._line = b""

    def read(self, piece: bytes, *, last: bool) -> None:
        if len(self._line) > _LONGEST and not self._line.endswith(b"\n") and b"\n" not in piece:
            return
        text = self._line + piece
        self._line = line = text[text.rstrip().rfind(b"\n") + 1 :]
        if last and len(line) <= _LONGEST:
            self._end(line)

    def _end(self, line: bytes) -> None:
        try:
            end = msgspec.json.decode(line, type=_Line)
        except msgspec.ValidationError:  # JSON of another form
            return
        except (ValueError, RecursionError):
            end = _Line(done=False)
        if end.error is not None:
            self.error = UpstreamError(f"The engine ended its answer with an error: {end.error}")
        elif end.done is False:
            raise UpstreamError("The engine ended its answer before the last line")
        counts = [end.prompt_eval_count, end.eval_count]
        prompt, output = [each if type(each) is int and 0 <= each < _MOST else None for each in counts]
        if prompt is not None or output is not None:
            self.tokens = Tokens(prompt or 0, output or 0)
