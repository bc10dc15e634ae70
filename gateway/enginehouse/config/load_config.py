"""Finds the file of the configuration, loads it with the environment, and checks the result."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.inspect import type_info
from platformdirs import user_config_path

from enginehouse.config.decode import Decoder, Problem, gather_parameters
from enginehouse.config.environment import CONFIG_FILE, Overrides, override
from enginehouse.config.rules import problems
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.config.secrets import read_secret
from enginehouse.config.shape import config_type, dotted
from enginehouse.domain.errors import ConfigError, ConfigErrors

_POSITION: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_YAML: Final = re.compile(r"\A(?:\s*(?:#[^\n]*)?\n|---\n)*[\w-]+:(?:\s|$)")
_AS_TOML: Final = (
    "this looks like YAML: write [server] and port = 8080, or convert another program's file by `enginehouse import`"
)
_HEADER: Final = re.compile(r"\s*(?P<open>\[\[?)(?P<path>[^\]\"']*)(?P<close>\]?\]?)")
_KEY: Final = re.compile(r"\s*(?P<key>[^=\"']*?)\s*(?:=|$)")
_ASSIGNED: Final = re.compile(r"\s*(?P<key>[^=]*?)\s*=\s*(?P<value>[^\[{\"'\s#][^#]*?)\s*(?:#.*)?$")
_FILE_NAME = "enginehouse.toml"


class LoadedConfig(NamedTuple):
    """A valid configuration. ``file`` is ``None`` if there is no file. ``warnings``: of variables without effect."""

    config: Config
    file: Path | None
    warnings: tuple[str, ...]

    @contextmanager
    def naming_file(self) -> Iterator[None]:
        """Name the file in a ``ConfigError`` that names a key of it."""
        try:
            yield
        except ConfigError as error:
            raise error.located(str(self.file) if self.file else "") from None


def find_config(file: Path | None, environ: Mapping[str, str]) -> Path | None:
    """The first of ``file``, ``$ENGINEHOUSE_CONFIG``, ``./enginehouse.toml`` and the user's; ``None`` if there is none.

    Raises ``ConfigError`` if ``file`` or the variable names a file that does not exist.
    """
    named = environ.get(CONFIG_FILE)
    asked = file or (Path(named).expanduser() if named else None)
    if asked is not None:
        if not asked.exists():
            by = CONFIG_FILE if file is None else "--config"
            raise ConfigError("there is no such file", file=str(asked), remedy=f"create it, or change {by}")
        return asked
    usual = (Path(_FILE_NAME), user_config_path("enginehouse", appauthor=False) / _FILE_NAME)
    return next((path for path in usual if path.is_file()), None)


def load_config(file: Path | None, environ: Mapping[str, str]) -> LoadedConfig:
    """Load the configuration of ``file``, or of the file that ``find_config`` finds, with overrides from ``environ``.

    Raises ``ConfigError``, or ``ConfigErrors`` for several problems.
    """
    document, found = find_document(file, environ)
    return read_document(document, found, environ)


def find_document(file: Path | None, environ: Mapping[str, str]) -> tuple[dict[str, Any], Path | None]:
    """The document of the file that ``find_config`` finds, and that file. Raises ``ConfigError``."""
    found = find_config(file, environ)
    return _parse(found) if found else {}, found


def load_config_or_embedded(file: Path | None, environ: Mapping[str, str]) -> LoadedConfig:
    """``load_config``, with the embedded default if there is no file. Raises ``ConfigError``."""
    if find_config(file, environ) is not None:
        return load_config(file, environ)
    embedded = (files("enginehouse.config") / "default.toml").read_bytes()
    return read_document(msgspec.toml.decode(embedded, type=dict[str, Any]), None, environ)


def load_plugin_settings(environ: Mapping[str, str]) -> PluginSettings:
    """``[plugins]`` alone, for what works without a valid configuration. Raises as ``load_config``."""
    found = find_config(None, environ)
    data = {"plugins": (_parse(found) if found else {}).get("plugins", {})}
    gather_parameters(data)
    overrides = override(data, environ)
    decoder = Decoder(lambda text: read_secret(text, Path(), environ))
    plain = decoder.read(type_info(PluginSettings), data["plugins"], ("plugins",))
    _refuse(decoder.problems, found, overrides)
    return msgspec.convert(plain, PluginSettings)


def read_document(data: dict[str, Any], file: Path | None, environ: Mapping[str, str]) -> LoadedConfig:
    """The configuration of a document, which comes from ``file``, with overrides from ``environ``.

    Raises as ``load_config``.
    """
    gather_parameters(data)
    overrides = override(data, environ)
    folder = file.parent if file else Path()
    decoder = Decoder(lambda text: read_secret(text, folder, environ))
    plain = decoder.read(config_type(), data)
    _refuse([*overrides.problems, *decoder.problems], file, overrides)
    config = msgspec.convert(plain, Config)
    _refuse(problems(config), file, overrides)
    return LoadedConfig(config, file, tuple(overrides.warnings))


def _parse(file: Path) -> dict[str, Any]:
    try:
        text = file.read_bytes().decode("utf-8-sig")
        return msgspec.toml.decode(text, type=dict[str, Any])
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(file)) from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"is not UTF-8 text (byte {error.start})", file=str(file), remedy="save it as UTF-8"
        ) from None
    except msgspec.DecodeError as error:
        raise _syntax_error(str(error), text, file) from None


def _refuse(problems: Iterable[Problem], file: Path | None, overrides: Overrides) -> None:
    errors = [_located(problem, file, overrides) for problem in problems]
    if len(errors) == 1:
        raise errors.pop()  # not errors[0]: an error refers to this frame, and the list would refer to the error
    if errors:
        raise ConfigErrors(errors)


def _located(problem: Problem, file: Path | None, overrides: Overrides) -> ConfigError:
    """``problem`` as an error that names its source: the variable, or the file and the key."""
    above = (problem.path[:length] for length in range(len(problem.path), 0, -1))  # a variable may be a whole list
    if variable := next(filter(None, map(overrides.origins.get, above)), ""):
        return problem.error(problem.text, key=variable, remedy=problem.remedy)
    key = dotted(problem.path)
    return problem.error(problem.text, file=str(file) if file else "", key=key, remedy=problem.remedy)


def _syntax_error(message: str, text: str, file: Path) -> ConfigError:
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
        return f"quote the text: {assigned['key']} = {mark}...{mark}", ""  # the value may be a secret
    if "Unescaped" in problem:
        return "write the text in single quotes, in which a backslash is one", ""
    return "", ""
