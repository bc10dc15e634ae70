"""Environment variables that override keys of the configuration: ``ENGINEHOUSE_<SECTION>_<KEY>``."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from msgspec.inspect import AnyType, BoolType, DictType, FloatType, IntType, ListType, StructType, Type, type_info

from enginehouse.config.decode import Problem
from enginehouse.config.rules import LOCAL_HOST
from enginehouse.config.shape import Path, config_type, dotted, shape_of, written

PREFIX = "ENGINEHOUSE_"
CONFIG_FILE = "ENGINEHOUSE_CONFIG"
STATE_DIR = "ENGINEHOUSE_STATE_DIR"
TEST_WORKERS = "ENGINEHOUSE_TEST_WORKERS"
"""The ``server.workers`` of the gateways that tests start."""
_NO_SETTINGS = frozenset(
    {CONFIG_FILE, STATE_DIR, "ENGINEHOUSE_URL", "ENGINEHOUSE_KEY", "ENGINEHOUSE_ENGINE", TEST_WORKERS}
)
"""Variables with the prefix that override no key: commands read a gateway's address and key, engines have marks."""


@dataclass
class Overrides:
    """The result of ``override``. ``origins`` maps each overridden path to its variable."""

    origins: dict[Path, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def override(data: dict[str, Any], environ: Mapping[str, str]) -> Overrides:
    """Write the values of environment variables into ``data``.

    A variable can override a key of an entry (a backend, a model, an API key), but cannot create the entry, except for
    the host that always exists.
    """
    result = Overrides()
    variables = [name for name in sorted(environ) if name.startswith(PREFIX) and name not in _NO_SETTINGS]
    if not variables:
        return result
    places: dict[str, list[tuple[Path, Type]]] = defaultdict(list)
    hosts = data.get("hosts", {})
    known = {**data, "hosts": {LOCAL_HOST: {}, **hosts}} if isinstance(hosts, dict) else data
    for path, type_ in _scalars(config_type(), known, ()):
        places[variable_of(path)].append((path, type_))
    for name in variables:
        match places.get(name.upper(), []):
            case []:
                result.warnings.append(_unknown(name, places))
            case [(path, type_)]:
                result.origins[path] = name
                _put(data, path, _parse(type_, environ[name]))
            case several:
                result.origins[(name,)] = name
                paths = " and ".join(dotted(path) for path, _ in several)
                result.problems.append(Problem((name,), f"may mean {paths}", "set it in the file, or rename one"))
    return result


def _unknown(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name.removeprefix(PREFIX), [other.removeprefix(PREFIX) for other in known], n=1)
    hint = f"did you mean {PREFIX}{near[0]}?" if near else "unset it, or see the documented settings"
    return f"{name}: there is no such setting; ignored ({hint})"


def variable_of(path: Path) -> str:
    """The variable that overrides ``path``: in upper case, other characters than letters and digits become ``_``."""
    return PREFIX + "_".join(re.sub(r"[^A-Za-z0-9]", "_", str(part)).upper() for part in written(path))


def _scalars(type_: Type, value: Any, path: Path) -> Iterator[tuple[Path, Type]]:
    """The paths and types of all scalars and lists of strings that a variable may override in ``value``."""
    whole = False
    for kind in shape_of(type_).kinds:
        if isinstance(kind, StructType):
            if value is not None and not isinstance(value, dict):
                continue  # the file has it in another form, or wrong
            for field_ in kind.fields:
                name = field_.encode_name
                yield from _scalars(field_.type, value.get(name) if value else None, (*path, name))
        elif isinstance(kind, DictType) or (isinstance(kind, AnyType) and isinstance(value, dict)):
            item_type = kind.value_type if isinstance(kind, DictType) else kind
            for name, item in value.items() if isinstance(value, dict) else ():
                yield from _scalars(item_type, item, (*path, name))
        elif isinstance(kind, ListType) and isinstance(kind.item_type, StructType):
            for index, item in enumerate(value if isinstance(value, list) else ()):
                yield from _scalars(kind.item_type, item, (*path, index))
        elif not isinstance(kind, AnyType):
            whole = True
        elif isinstance(value, bool | int | float | str):
            yield path, type_info(type(value))
    if whole:  # once, though it may be a text or a list
        yield path, type_


def _parse(type_: Type, text: str) -> Any:
    """``text`` as the value that the file would have. Invalid text stays as it is; the decoder reports it."""
    shape = shape_of(type_)
    kind = shape.kinds[0]
    if isinstance(kind, ListType):
        single = text.isdecimal() and any(isinstance(each, IntType) for each in shape.kinds)
        if single or text in shape.choices:
            return int(text) if single else text
        return [_parse(kind.item_type, item.strip()) for item in text.split(",") if item.strip()]
    if isinstance(kind, BoolType):
        return {"true": True, "false": False}.get(text.lower(), text)
    if isinstance(kind, IntType | FloatType) and not shape.unit:
        with suppress(ValueError):
            return int(text) if isinstance(kind, IntType) else float(text)
    return text


def _put(data: dict[str, Any], path: Path, value: Any) -> None:
    """Set the value at ``path``, which ``_scalars`` has found in ``data``."""
    place: Any = data
    for part in path[:-1]:
        place = place.setdefault(part, {}) if isinstance(place, dict) else place[part]
    place[path[-1]] = value
