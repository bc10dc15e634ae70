"""Has the gateway keep the prefix caches of engines that it stops."""

from __future__ import annotations

from collections import Counter

from enginehouse import Service
from enginehouse.backends import LaunchedBackend
from enginehouse.services import Measured, MetricInfo, ServiceGateway
from enginehouse_kept_caches.keeper import CacheReports, KeptCache

CACHES_KEPT = MetricInfo(
    "counter",
    "enginehouse_caches_kept",
    "Prefix caches of launched engines over a stop (`models.*.keep_cache`): `saved`, `late` if it took longer than "
    "`keep_cache_wait`, `failed`, then `restored`, `refused` by the engine, or `unconfirmed` by its answers.",
    ("model", "outcome"),
)


class KeptCaches(Service):
    """Keeps the caches of launched engines whose drivers can have them written to files."""

    table = "models"
    metrics = (CACHES_KEPT,)

    def __init__(self) -> None:
        self._outcomes: Counter[tuple[str, str]] = Counter()

    def start(self, gateway: ServiceGateway) -> None:
        reports = CacheReports(self._note, gateway.requests.ended, gateway.clock.now)

        def keeper(backend: LaunchedBackend) -> KeptCache:
            return KeptCache(backend, reports)

        gateway.models.keep_with(keeper)

    def measure(self) -> Measured:
        return {CACHES_KEPT: self._outcomes.items()}

    def _note(self, model: str, outcome: str) -> None:
        self._outcomes[model, outcome] += 1
