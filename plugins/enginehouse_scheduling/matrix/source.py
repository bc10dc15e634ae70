"""The text of an expression, for errors that show the place."""

from __future__ import annotations

from typing import NamedTuple

from enginehouse import ConfigError


class Span(NamedTuple):
    """A part of an expression: the offset of its first character and the offset behind its last."""

    start: int
    end: int


class Source(NamedTuple):
    """The text of an expression and its configuration key."""

    key: str
    text: str

    def error(self, problem: str, span: Span, remedy: str = "") -> ConfigError:
        """An error with line and column, both counted from 1, the line itself, and carets under the place."""
        before = self.text[: span.start]
        line = before.count("\n") + 1
        column = span.start - (before.rfind("\n") + 1) + 1
        shown = self.text.split("\n")[line - 1]
        indent = "".join(character if character == "\t" else " " for character in shown[: column - 1])
        carets = "^" * max(1, min(span.end, span.start + len(shown) - column + 1) - span.start)
        text = f"line {line}, column {column}: {problem}\n    {shown}\n    {indent}{carets}"
        return ConfigError(text, key=self.key, remedy=remedy)
