"""What discoverers have found, and which of it the gateway shall serve."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from msgspec.structs import replace

from enginehouse.backends import DiscoverySettings, FoundBackend

_TAKEN = "there is a backend of this name already; set another 'prefix'"


class Source:
    """The backends that one discoverer found last, by their names in this gateway.

    - ``listed_at``: when that was; ``None`` before the first list.
    - ``has_begun`` is set from the first list or failure on.
    - ``error``: why there is no newer list; empty if all is well.
    - ``refused``: the backends of the list that cannot be used, and why.
    """

    def __init__(self, name: str, settings: DiscoverySettings) -> None:
        self.name = name
        self.settings = settings
        self.backends: dict[str, FoundBackend] = {}
        self.listed_at: float | None = None
        self.has_begun = asyncio.Event()
        self.error = ""
        self.refused: dict[str, str] = {}
        self._prefix = f"{name}-" if settings.prefix is None else settings.prefix

    def take(self, found: Mapping[str, FoundBackend], now: float) -> None:
        """Replace the list."""
        key = str(self.settings.api_key)
        self.backends = {
            f"{self._prefix}{name}": backend if backend.api_key or not key else replace(backend, api_key=key)
            for name, backend in found.items()
        }
        self.listed_at, self.error = now, ""

    @property
    def problem(self) -> str:
        """Why the source failed, or why backends of its list are not used; empty if all is well."""
        return self.error or "; ".join(f"{name}: {why}" for name, why in self.refused.items())


class Sources:
    """All that discoverers found, and the backends that they withdrew but that still have requests: ``leaving``."""

    def __init__(self) -> None:
        self.by_name: dict[str, Source] = {}
        self.leaving: dict[str, FoundBackend] = {}

    def listed(self, source: Source, found: Mapping[str, FoundBackend], now: float) -> bool:
        """Take a new list of ``source``; whether it differs. Backends that it withdraws are leaving."""
        before = source.backends
        source.take(found, now)
        self._leave(source, {name: each for name, each in before.items() if name not in source.backends})
        return before != source.backends

    def remove(self, name: str) -> None:
        """Forget a source that is no longer configured: all its backends are leaving."""
        source = self.by_name.pop(name)
        self._leave(source, source.backends)

    def wanted(self) -> dict[str, FoundBackend]:
        """The backends to serve with. Of two of one name, that of the first source counts."""
        found: dict[str, FoundBackend] = {}
        for source in self.by_name.values():
            for name, backend in source.backends.items():
                found.setdefault(name, backend)
        self.leaving = {name: each for name, each in self.leaving.items() if name not in found}
        return {**found, **self.leaving}

    def note_refused(self, refused: Mapping[str, str]) -> None:
        """Note for each source the backends that the gateway has refused, and those that another source has too."""
        owners: dict[str, Source] = {}
        for source in self.by_name.values():
            source.refused = {}
            for name in source.backends:
                if owners.setdefault(name, source) is not source:
                    source.refused[name] = _TAKEN
                elif name in refused:
                    source.refused[name] = refused[name]
        self.leaving = {name: each for name, each in self.leaving.items() if name not in refused}

    def draining(self) -> set[str]:
        """The names of the backends that shall get no new requests."""
        listed = (
            name
            for source in self.by_name.values()
            for name, each in source.backends.items()
            if each.draining and name not in source.refused
        )
        return {*self.leaving, *listed}

    def _leave(self, source: Source, backends: Mapping[str, FoundBackend]) -> None:
        self.leaving |= {name: each for name, each in backends.items() if name not in source.refused}
