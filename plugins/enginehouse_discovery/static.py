"""The discoverer ``static``: a list of backends in a file or at a URL, read again and again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar
from urllib.request import Request, urlopen

import msgspec

from enginehouse import ConfigError, Period
from enginehouse.backends import FoundBackend
from enginehouse.settings import is_base_url
from enginehouse_kit.discoverers import Discoverer

_LONGEST = 4 << 20
"""Bytes of a list."""
_TIMEOUT_S = 10.0


class StaticConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``file`` or ``url``: a list in TOML or JSON with a table ``backends``. It is read every ``interval``."""

    file: str = ""
    url: str = ""
    interval: Annotated[Period, msgspec.Meta(description="time between two reads of the list")] = 5.0


class _List(msgspec.Struct, forbid_unknown_fields=True):
    backends: dict[str, FoundBackend] = {}


class StaticDiscoverer(Discoverer):
    """Backends that a file or a URL lists, in a table ``backends`` as in ``enginehouse.toml``."""

    Config: ClassVar[type[StaticConfig]] = StaticConfig

    def __init__(self, config: StaticConfig) -> None:
        if bool(config.file) == bool(config.url):
            raise ConfigError("the discoverer 'static' takes a 'file' or a 'url'", remedy="set one of the two")
        if config.url and not is_base_url(config.url.partition("?")[0]):
            raise ConfigError("the 'url' of the discoverer 'static' is not an http address", remedy="mend it")
        self._config = config

    async def watch(self) -> AsyncIterator[Mapping[str, FoundBackend]]:
        while True:
            yield await asyncio.to_thread(self._listed)
            await asyncio.sleep(self._config.interval)

    def _listed(self) -> Mapping[str, FoundBackend]:
        return read_list(self._read(), self._config.file or self._config.url)

    def _read(self) -> bytes:
        if self._config.file:
            return Path(self._config.file).expanduser().read_bytes()
        request = Request(self._config.url, headers={"accept": "application/json, application/toml"})
        with urlopen(request, timeout=_TIMEOUT_S) as answer:
            text: bytes = answer.read(_LONGEST + 1)
        if len(text) > _LONGEST:
            raise ValueError(f"the list at {self._config.url} has more than {_LONGEST} bytes")
        return text


def read_list(text: bytes, place: str) -> Mapping[str, FoundBackend]:
    """The backends of a list in TOML or JSON, which stands at ``place``. Raises ``ValueError`` for any other text."""
    if not text.strip():  # somebody is about to write it
        raise ValueError(f"{place} is empty: an empty table 'backends' withdraws them all")
    try:
        return msgspec.convert(_parsed(text), _List).backends
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def _parsed(text: bytes) -> Any:
    return (msgspec.json if text.lstrip().startswith(b"{") else msgspec.toml).decode(text)
