"""Reads the input file of a batch: a request on each line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from enginehouse_batches.objects import InputError

_MOST_ERRORS = 20
_LONGEST_LINE = 32 << 20
"""In bytes, as the body of a request by default."""


class InputLine(NamedTuple):
    """One request. ``start``, ``length``: where it is in the file, in bytes."""

    number: int
    custom_id: str
    model: str
    start: int
    length: int


class _Asked(msgspec.Struct):
    custom_id: Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
    method: str
    url: str
    body: dict[str, Any]


def read_input(path: Path, endpoint: str, most: int) -> tuple[list[InputLine], list[InputError]]:
    """The lines of an input file for ``endpoint``, and what is wrong with them; ``most``: lines.

    If anything is wrong, the batch fails as a whole, as OpenAI's does.
    """
    if not path.is_file():
        return [], [InputError("missing_file", "The file does not exist any more")]
    lines: list[InputLine] = []
    errors: list[InputError] = []
    seen: set[str] = set()
    start = 0
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE + 1), b""), 1):
            if line.strip():
                found = _read_line(line, number, start, endpoint, seen)
                if isinstance(found, InputError):
                    errors.append(found)
                else:
                    lines.append(found)
            start += len(line)
            if len(lines) > most:
                return [], [InputError("too_many_requests", f"The file has more than {most} lines", number)]
            if len(errors) >= _MOST_ERRORS or len(line) > _LONGEST_LINE:
                break
    if not lines and not errors:
        errors.append(InputError("empty_file", "The file has no requests"))
    return lines, errors


def _read_line(text: bytes, number: int, start: int, endpoint: str, seen: set[str]) -> InputLine | InputError:
    if len(text) > _LONGEST_LINE:
        return InputError("invalid_request", f"The line has more than {_LONGEST_LINE} bytes", number)
    try:
        asked = msgspec.json.decode(text, type=_Asked)
    except (ValueError, RecursionError) as error:
        return InputError("invalid_json_line", f"This line is not a request: {error}", number)
    problem = _problem(asked, endpoint)
    if problem is not None:
        code, message, param = problem
        return InputError(code, message, number, param)
    if asked.custom_id in seen:
        return InputError("duplicate_custom_id", f"'{asked.custom_id}' is on an earlier line", number, "custom_id")
    seen.add(asked.custom_id)
    return InputLine(number, asked.custom_id, asked.body["model"], start, len(text))


def _problem(asked: _Asked, endpoint: str) -> tuple[str, str, str] | None:
    if asked.method != "POST":
        return "invalid_method", "The method must be POST", "method"
    if asked.url != endpoint:
        return "mismatched_endpoint", f"The url must be '{endpoint}', as in the batch", "url"
    model = asked.body.get("model")
    if not isinstance(model, str) or not model:
        return "invalid_request", "The body must name a model", "body.model"
    if asked.body.get("stream"):
        return "invalid_request", "A batch has no streams", "body.stream"
    return None


class _Sent(msgspec.Struct):
    body: msgspec.Raw


def body_of(line: bytes) -> bytes:
    """The body of a line that was valid."""
    return bytes(msgspec.json.decode(line, type=_Sent).body)
