"""TOML's own errors, with the change that they probably need."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from enginehouse.domain.errors import ConfigError

_POSITION: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_YAML: Final = re.compile(r"\A(?:\s*(?:#[^\n]*)?\n|---\n)*[\w-]+:(?:\s|$)")
_AS_TOML: Final = (
    "this looks like YAML: write [server] and port = 8080, or convert another program's file by `enginehouse import`"
)
_HEADER: Final = re.compile(r"\s*(?P<open>\[\[?)(?P<path>[^\]\"']*)(?P<close>\]?\]?)")
_KEY: Final = re.compile(r"\s*(?P<key>[^=\"']*?)\s*(?:=|$)")
_ASSIGNED: Final = re.compile(r"\s*(?P<key>[^=]*?)\s*=\s*(?P<value>[^\[{\"'\s#][^#]*?)\s*(?:#.*)?$")


def syntax_error(message: str, text: str, file: Path) -> ConfigError:
    """``message`` with its position as ``FILE:LINE:COLUMN``, which editors recognize."""
    at = _POSITION.search(message)
    lines = text.split("\n")
    line, column = (int(at[1]), int(at[2])) if at and at[1] else (len(lines), len(lines[-1]) + 1)
    problem = message[: at.start()] if at else message
    last = next((each for each in reversed(lines[:line]) if each.strip()), "")
    remedy, better = (_AS_TOML, "") if _YAML.search(text) else _likely(problem, last)
    place = f"{file}:{line}:{column}"
    return ConfigError(f"not valid TOML: {better or problem}", file=place, remedy=remedy or "fix the syntax there")


def _likely(problem: str, line: str) -> tuple[str, str]:
    """The change that ``line`` probably needs, and a better name for the problem; each may be empty."""
    if "declaration" in problem and problem.startswith("Expected") and (header := _HEADER.match(line)):
        section, _, name = header["path"].strip().partition(".")
        quoted = f'{section}."{name}"' if name else f'"{section}"'
        return f"quote the name: {header['open']}{quoted}{header['close']}", ""
    if "after a key" in problem and (key := _KEY.match(line)) and key["key"]:
        return f'quote the name: "{key["key"]}" = ...', ""
    if ("overwrite" in problem or "twice" in problem) and (name := line.partition("=")[0].strip()):
        return "remove one of the two", f"{name} is there twice"
    bare = problem == "Invalid value" or ("after a statement" in problem and line.count("=") == 1)
    if bare and (assigned := _ASSIGNED.match(line)):
        mark = "'" if "\\" in assigned["value"] else '"'
        return f"quote the text: {assigned['key']} = {mark}{assigned['value']}{mark}", ""
    if "Unescaped" in problem:
        return "write the text in single quotes, in which a backslash is one", ""
    return "", ""
