"""Reads configuration files of other programs as plain data, in bounded time and memory."""

from __future__ import annotations

from typing import Any, Final

import yaml

from enginehouse import ConfigError
from enginehouse_importers.kit.table import scalar_text

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MOST_NODES: Final = 200_000
"""The most values of a document, with everything that its aliases repeat."""
_DEEPEST: Final = 100


def read_yaml(text: str, file: str) -> dict[str, Any]:
    """The mapping in ``text``, with all keys as text. Raises ``ConfigError`` with the position in ``file``."""
    try:
        _check_depth(text, file)
        loader = _LOADER(text)
        try:
            root = loader.get_single_node()
            if root is not None:
                _Sizes(file).of(root)
            data = loader.construct_document(root) if root is not None else None
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else file
        problem = f"not valid YAML: {error.problem or error.context}"
        raise ConfigError(problem, file=where, remedy="fix the syntax there") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"not valid YAML: {error}", file=file) from None
    return table_of(data, file)


def _check_depth(text: str, file: str) -> None:
    """Refuse deep nesting before the parser's recursion meets it."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _DEEPEST:
            raise ConfigError(f"nested deeper than {_DEEPEST} levels", file=file)


class _Sizes:
    """Counts what a document becomes when each alias repeats its anchor. Raises ``ConfigError`` if that is too much.

    An alias is the node of its anchor again: nine lines of nine aliases are a billion values.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self._sizes: dict[int, int] = {}

    def of(self, node: yaml.Node) -> int:
        key = id(node)
        if key not in self._sizes:
            self._sizes[key] = _MOST_NODES  # for an anchor that contains itself
            self._sizes[key] = 1 + sum(map(self.of, _parts(node)))
        if self._sizes[key] > _MOST_NODES:
            problem = f"its aliases stand for more than {_MOST_NODES} values"
            raise ConfigError(problem, file=f"{self._file}:{node.start_mark.line + 1}", remedy="write them out")
        return self._sizes[key]


def _parts(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def table_of(data: Any, file: str) -> dict[str, Any]:
    """``data`` with all keys as text. Raises ``ConfigError`` if it is no mapping; nothing is an empty one."""
    if data is None:
        return {}
    if not isinstance(data, dict):
        remedy = "name the configuration file of the program"
        raise ConfigError("is not a mapping of settings", file=file, remedy=remedy)
    table: dict[str, Any] = _with_text_keys(data)
    return table


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {scalar_text(name): _with_text_keys(item) for name, item in value.items()}
    return [_with_text_keys(item) for item in value] if isinstance(value, list) else value
