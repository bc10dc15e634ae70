"""What plugins of other distributions do: a filter, an observer and a driver that fail now and then, in every way."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from enginehouse import Candidate, Filter, Observer, RequestRecord, Requirements
from enginehouse.drivers import EngineClient, ServedModel, SupportsSleep
from enginehouse.http.admission import INFERENCE_PATHS
from enginehouse.plugin_manager.registry import Registered
from enginehouse.rescheduling import InstanceStatus
from enginehouse_kit.drivers import OpenAICompatibleDriver
from tests.support.unspeakable import Unspeakable, UnspeakableError

DETAIL = "DETAIL-of-a-plugin"
"""In what they raise: it may be in the log, but never in an answer."""
_FAILURES: tuple[Callable[[], BaseException], ...] = (
    lambda: ValueError(DETAIL),
    lambda: SystemExit(DETAIL),
    KeyboardInterrupt,
    UnspeakableError,
)
_NONSENSE: tuple[Any, ...] = (None, 7, DETAIL, [DETAIL], Unspeakable())


class PluginBench(Protocol):
    """``calm``: no faults. ``plugin_faults``: how many of the plugins' calls fail."""

    calm: bool
    plugin_faults: float
    plugin_rng: random.Random


class _Moody:
    """Fails or answers nonsense as the bench's seed says."""

    bench: Callable[[], PluginBench]

    def _answer(self, right: Any) -> Any:
        bench = type(self).bench()
        if bench.calm or not bench.plugin_faults or bench.plugin_rng.random() >= bench.plugin_faults:
            return right
        if bench.plugin_rng.random() < 0.5:
            raise bench.plugin_rng.choice(_FAILURES)()
        return bench.plugin_rng.choice(_NONSENSE)


class _MoodyFilter(_Moody, Filter):
    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        return cast(Sequence[Candidate], self._answer(candidates))

    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        return cast(str, self._answer("it is moody"))


class _MoodyObserver(_Moody, Observer):
    def finished(self, record: RequestRecord) -> None:
        self._answer(None)

    def swap_done(self, done: object) -> None:
        self._answer(None)


class _FluentDriver(OpenAICompatibleDriver):
    """Its engines answer every protocol themselves, as those of the bench do."""

    endpoints = INFERENCE_PATHS

    def __init__(self) -> None:
        self._rounds = itertools.count()

    async def status(self, engine: EngineClient) -> InstanceStatus | None:
        """Asks one time in five: these questions of every second would be a third of all that happens."""
        return await super().status(engine) if next(self._rounds) % 5 == 0 else None


class _MoodyDriver(_Moody, _FluentDriver, SupportsSleep):
    async def healthy(self, engine: EngineClient) -> bool:
        return cast(bool, self._answer(await super().healthy(engine)))

    async def models(self, engine: EngineClient) -> Sequence[ServedModel]:
        return cast(Sequence[ServedModel], self._answer(await super().models(engine)))

    async def concurrency(self, engine: EngineClient) -> int | None:
        return cast("int | None", self._answer(None))

    async def sleep(self, engine: EngineClient) -> bool:
        return cast(bool, self._answer(False))

    async def wake(self, engine: EngineClient) -> bool:
        return False


def plugins(launcher: Callable[[], object], bench: Callable[[], PluginBench]) -> list[Registered]:
    """What the bench registers, as a plugin would."""
    _Moody.bench = bench
    made = [
        ("launcher", "virtual", launcher),
        ("filter", "moody", _MoodyFilter),
        ("observer", "moody", _MoodyObserver),
        ("driver", "moody", _MoodyDriver),
        ("driver", "fluent", _FluentDriver),
    ]
    origin = {"entry_point": "chaos", "module": "tests.chaos", "distribution": "chaos", "version": "0"}
    return [Registered(kind=kind, type=type, factory=factory, **origin) for kind, type, factory in made]
