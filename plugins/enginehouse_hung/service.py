"""Finds engines that hang, frozen or silent for too long, and has the gateway give them up."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from typing import Final, NamedTuple

from enginehouse import EnginehouseError, Service
from enginehouse.backends import BackendStatus
from enginehouse.runtime import BackgroundTasks, run_within
from enginehouse.services import GatewayRequest, Measured, MetricInfo, ServiceGateway

_log = logging.getLogger(__name__)

_STILL: Final = 0.01
"""An engine that takes a smaller share of a processor computes nothing. Threads that only wait take far less."""
_KNOWN: Final = 3
"""So many silences of a kind have ended before it is known how long they usually are."""
_REMEMBERED: Final = 50
_TIMES: Final = 5
"""A silence that is so many times as long as usual is too long."""
_READS: Final = 50.0
_WRITES: Final = 10.0
"""Tokens a second, of an engine that is taken for a slow one."""
_SHORT_PROMPT: Final = 500
"""Tokens: reading fewer takes about as long."""
_LONG_ANSWER: Final = 4096
"""Tokens of an answer: how many it may have is not known."""
_LOOK_EVERY_S = 1.0
HUNG = MetricInfo("counter", "enginehouse_hung_engines", "Engines that were given up as hung.", ("backend",))


class LateProbes:
    """The late probes of one engine, ``known`` of them in a row. Times are in seconds of any clock."""

    def __init__(self) -> None:
        self.known = 0
        self._since: float | None = None
        self._last: tuple[float, float] | None = None
        self._still = 0

    def why_hung(self, late: int, now: float, used: float | None, failures: int, hung: float, *, serves: bool) -> str:
        """Why the engine hangs, for people, after so many ``late`` probes in a row; empty if it may compute.

        It hangs if it has taken no processor time through ``failures`` of them; or after ``hung`` seconds of them in
        which it ``serves`` no request, for one that reads a long prompt may answer nothing else. ``used``: the
        processor time that it has taken so far, ``None`` if unknown.
        """
        last, more, self.known = self._last, late - self.known, late
        self._last = None if used is None else (now, used)
        if used is not None and last is not None:
            stands_still = used - last[1] < _STILL * (now - last[0])
            self._still = self._still + more if stands_still else 0
        self._since = now if self._since is None else self._since
        silent = now - self._since
        if self._still >= failures:
            return f"The engine hung: it answered no health check and computed nothing for {silent:.0f} s"
        if silent >= hung and not serves:
            return f"The engine hung: it answered no health check for {silent:.0f} s and served no request"
        return ""


class FrozenEngines:
    """Follows the late probes of all launched engines. ``give_up`` gets a backend, and why it is given up."""

    def __init__(self, gateway: ServiceGateway, give_up: Callable[[str, str], Awaitable[None]]) -> None:
        self._gateway = gateway
        self._give_up = give_up
        self._probes: dict[str, LateProbes] = {}

    async def look(self) -> None:
        """To be called about once a second."""
        gateway, checks = self._gateway, self._gateway.table("checks")
        remote, before, self._probes = gateway.table("backends"), self._probes, {}
        if not checks.hung:
            return
        more = []
        for backend in gateway.backends:
            name, late = backend.name, gateway.backends.late_probes(backend.name)
            if not late or name in remote:
                continue
            probes = before.get(name)
            self._probes[name] = probes = LateProbes() if probes is None or late < probes.known else probes
            if late > probes.known:
                more.append(self._judge(backend, probes, late))
        await asyncio.gather(*more)

    async def _judge(self, backend: BackendStatus, probes: LateProbes, late: int) -> None:
        checks = self._gateway.table("checks")
        try:
            used = await run_within(checks.timeout, self._gateway.backends.processor_seconds(backend.name))
        except Exception:  # the launcher cannot say, and the gateway has logged why
            used = None
        if self._gateway.backends.late_probes(backend.name) < late:  # it has answered meanwhile, or was started again
            return
        now, serves = self._gateway.clock.now(), backend.pending > 0
        if why := probes.why_hung(late, now, used, checks.failures, checks.hung, serves=serves):
            await self._give_up(backend.name, why)


class SeenRequest(NamedTuple):
    """One live request of an engine.

    ``key``: what tells it from others. ``pieces``: how many pieces of its answer have come.
    """

    key: Hashable
    pieces: int
    stream: bool
    prompt_tokens: int


class _Silence:
    """A silence since ``since``, after ``pieces`` pieces of the answer."""

    __slots__ = ("asked", "pieces", "since")

    def __init__(self, pieces: int, since: float, asked: SeenRequest) -> None:
        self.pieces = pieces
        self.since = since
        self.asked = asked


class Silences:
    """The silences of the live requests of one engine. Times are in seconds of any clock."""

    def __init__(self) -> None:
        self._live: dict[Hashable, _Silence] = {}
        self._ended: dict[str, deque[float]] = {
            kind: deque(maxlen=_REMEMBERED) for kind in ("reading", "between", "whole")
        }

    def look(self, now: float, requests: Iterable[SeenRequest]) -> None:
        """Note how far the live requests are."""
        before, self._live = self._live, {}
        for each in requests:
            silence = before.get(each.key)
            if silence is not None and each.pieces > silence.pieces:
                self._ended[_kind(silence)].append((now - silence.since) / _amount(silence))
                silence = None
            if silence is None or each.pieces < silence.pieces:
                silence = _Silence(each.pieces, now, each)
            self._live[each.key] = silence

    def too_long(self, now: float, at_least: float) -> float | None:
        """The seconds for which no request has got anything, if each of them has waited too long; else ``None``.

        Each has if it has waited for ``at_least`` seconds, and for five times what is usual.
        """
        if not self._live or any(now - each.since < max(at_least, self._most(each)) for each in self._live.values()):
            return None
        return min(now - each.since for each in self._live.values())

    def forgive(self, now: float) -> None:
        """Count the silences from ``now``: the engine has just shown that it serves."""
        for each in self._live.values():
            each.since = now

    def _most(self, silence: _Silence) -> float:
        kind = _kind(silence)
        ended = self._ended[kind]
        if len(ended) >= _KNOWN:
            return _TIMES * max(ended) * _amount(silence)
        if kind == "between":
            return 0.0
        asked = silence.asked
        written = 0.0 if kind == "reading" else _LONG_ANSWER / _WRITES
        return asked.prompt_tokens / _READS + written


def _kind(silence: _Silence) -> str:
    return "between" if silence.pieces else "reading" if silence.asked.stream else "whole"


def _amount(silence: _Silence) -> float:
    """By what a silence is measured: the prompt that is read, or nothing."""
    return max(silence.asked.prompt_tokens, _SHORT_PROMPT) if _kind(silence) == "reading" else 1.0


class Hung(Service):
    """Gives up engines that pass their health check while none of their requests gets anything, and frozen ones.

    Of the former, one is asked for one token before. An engine whose driver cannot ask for one is left alone.
    """

    table = "checks"
    metrics = (HUNG,)

    def __init__(self) -> None:
        self._silences: dict[str, Silences] = {}
        self._asked: set[str] = set()
        self._given_up: Counter[str] = Counter()
        self._tasks = BackgroundTasks()
        self._gateway: ServiceGateway

    def prepare(self, gateway: ServiceGateway) -> None:
        self._gateway = gateway

    def start(self, gateway: ServiceGateway) -> None:
        gateway.every(_LOOK_EVERY_S, self._look)
        gateway.every(_LOOK_EVERY_S, FrozenEngines(gateway, self._give_up).look)

    def stop(self) -> None:
        self._tasks.cancel()

    def measure(self) -> Measured:
        return {HUNG: [((each.name,), self._given_up[each.name]) for each in self._gateway.backends]}

    def _look(self) -> None:
        at_least: float = self._gateway.table("checks").hung
        if not at_least:
            self._silences.clear()
            return
        by_backend: dict[str, list[GatewayRequest]] = {}
        for request in self._gateway.requests:
            if request.pieces is not None and request.backend is not None:
                by_backend.setdefault(request.backend, []).append(request)
        if not by_backend and not self._silences:
            return
        now, known = self._gateway.clock.now(), self._silences
        names = {each.name for each in self._gateway.backends}
        self._silences = {name: known.get(name) or Silences() for name in {*known, *by_backend} if name in names}
        for name, silences in self._silences.items():
            requests = by_backend.get(name, [])
            silences.look(now, _seen(requests))
            silent = silences.too_long(now, at_least)
            if silent is not None and name not in self._asked:
                self._asked.add(name)
                self._tasks.start(self._ask(name, silences, requests[0], at_least))

    async def _ask(self, backend: str, silences: Silences, request: GatewayRequest, limit: float) -> None:
        """Ask the engine of ``backend`` for one token, and give it up if it gives none either."""
        try:
            serves = await self._gateway.backends.serves(backend, request.model or "", limit)
            now = self._gateway.clock.now()
            silent = silences.too_long(now, limit)
            if serves is False and silent is not None and self._silences.get(backend) is silences:
                why = (
                    f"It hangs: for {silent:.0f} s none of its requests got anything, and it did not serve a small one"
                )
                await self._give_up(backend, why)
            silences.forgive(now)
        except EnginehouseError as error:  # it is gone
            _log.debug("Backend '%s' could not be asked: %s", backend, error)
        finally:
            self._asked.discard(backend)

    async def _give_up(self, backend: str, why: str) -> None:
        _log.warning("Backend '%s' is given up. %s", backend, why)
        self._given_up[backend] += 1
        await self._gateway.backends.give_up(backend, why)


def _seen(requests: list[GatewayRequest]) -> Iterator[SeenRequest]:
    for each in requests:
        view = each.view(streams=False)
        yield SeenRequest((each.id, each.began), each.pieces or 0, each.stream, view.prompt_tokens)
