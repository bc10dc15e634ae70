"""Reads the meters of this machine, splits what was used by the tokens in flight, and adds it to usage and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from enginehouse import Service
from enginehouse.callers import UsageRow
from enginehouse.services import Measured, MetricInfo, ServiceGateway
from enginehouse_energy.meters import Meter, Nvml, Rapl

_EVERY_S: Final = 1.0
_READING_S: Final = 0.001
"""The time between two turns of the event loop while streams are read."""
_HOUR_S: Final = 3600
_MOST_SERIES: Final = 1000
"""Callers of identity providers are many: above so many, further ones count together."""
_OTHER: Final = "other"
_HERE: Final = ("127.0.0.1", "localhost", "::1")
JOULES = MetricInfo(
    "counter",
    "enginehouse_energy_joules",
    "Energy of this machine, by the requests that its engines served; idle without a model.",
    ("host", "model", "key"),
)


class Share(NamedTuple):
    """A model and a key that use energy on a host; without a model, the host is idle."""

    host: str = ""
    model: str = ""
    key: str = ""


IDLE = Share()


def split(joules: float, tokens: Iterable[tuple[Share, int]]) -> Mapping[Share, float]:
    """``joules`` by the ``tokens`` of live requests. A request counts as one token at least."""
    weights: dict[Share, int] = {}
    for share, count in tokens:
        weights[share] = weights.get(share, 0) + max(1, count)
    whole = sum(weights.values())
    return {share: joules * weight / whole for share, weight in weights.items()} if whole else {IDLE: joules}


def used(before: Mapping[str, float], now: Mapping[str, float]) -> float:
    """The joules between two readings of devices. A device that is new, or has begun again, counts from the next."""
    return sum(max(0.0, joules - before[name]) for name, joules in now.items() if name in before)


class Energy(Service):
    """Shares the energy of each second among the requests that are served by engines of this machine."""

    class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """``rapl``: the folder of the processors' counters; empty leaves them out."""

        rapl: str = "/sys/class/powercap"

    metrics = (JOULES,)

    def __init__(self, config: Config, meters: Sequence[Meter] | None = None) -> None:
        own: list[Meter] = [Nvml(), *([Rapl(Path(config.rapl))] if config.rapl else ())]
        self._meters = own if meters is None else meters
        self._before: Mapping[str, float] = {}
        self._joules: dict[Share, float] = {}
        self._gateway: ServiceGateway

    def prepare(self, gateway: ServiceGateway) -> None:
        self._gateway = gateway

    def start(self, gateway: ServiceGateway) -> None:
        gateway.every(_EVERY_S, self._sample)

    def measure(self) -> Measured:
        return {JOULES: [(share, joules) for share, joules in self._joules.items()]}

    async def _sample(self) -> None:
        now = await asyncio.to_thread(self._read)
        joules, self._before = used(self._before, now), now
        if joules:
            self._add(split(joules, await self._tokens()))

    def _read(self) -> Mapping[str, float]:
        return {name: joules for meter in self._meters for name, joules in meter.read().items()}

    async def _tokens(self) -> Sequence[tuple[Share, int]]:
        """The tokens of the live requests here. Other work of the event loop is done while their streams are read."""
        here = {each.name: each.host for each in self._gateway.backends if _is_here(each.url)}
        found: list[tuple[Share, int]] = []
        now = self._gateway.clock.now
        began = now()
        for request in [*self._gateway.requests]:
            if request.pieces is None or request.backend not in here:
                continue
            share = Share(here[request.backend], request.model or "", request.caller or "")
            found.append((share, request.view(streams=True).num_tokens))
            if now() - began > _READING_S:
                await asyncio.sleep(0)
                began = now()
        return found

    def _add(self, shares: Mapping[Share, float]) -> None:
        for share, joules in shares.items():
            if share not in self._joules and len(self._joules) >= _MOST_SERIES:
                share = share._replace(key=_OTHER)
            self._joules[share] = self._joules.get(share, 0.0) + joules
        hour = int(self._gateway.clock.epoch()) // _HOUR_S * _HOUR_S
        self._gateway.used(
            [
                UsageRow(hour, share.key, share.model, "", wh=joules / 3600)
                for share, joules in shares.items()
                if share is not IDLE and share.model
            ]
        )


def _is_here(url: str) -> bool:
    """Whether an engine runs on this machine: a launched one that does not run has no address."""
    return not url or urlsplit(url).hostname in _HERE
