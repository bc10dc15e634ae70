"""The failures of an engine: in words, with the last lines that it printed, and the pauses after them."""

from __future__ import annotations

import asyncio
import math
import re
import signal
from collections.abc import Callable, Collection, Iterable, Sequence

from enginehouse.domain.errors import LoadFailed, NotEnoughMemory
from enginehouse.interfaces.engine_words import tells_of_too_little_memory
from enginehouse.interfaces.launchers import Exit
from enginehouse.telemetry.log_ring import LogRing

_READ_LINES, _DETAILED_LINES, _QUOTED_LINES = 500, 20, 3
_LONGEST_CAUSE = 300
_CAUSES = (
    re.compile(r"error loading model.*|.*(corrupted|incomplete|no such file|address already in use)", re.IGNORECASE),
    re.compile(r"\b\w+(Error|Exception): \S"),
    re.compile(r"\b(fatal )?error: \S", re.IGNORECASE),
)
"""The ways in which engines name the cause of a failed start, the clearest first."""
_KILLED = (-9, 128 + 9)
"""The kernel's out-of-memory killer sends SIGKILL; a shell reports that as 137."""


class StartErrors:
    """Makes the errors of one model's engine, with what it has printed in ``log`` since its ``first_line``."""

    def __init__(self, model: str, log: LogRing) -> None:
        self._model = model
        self._log = log
        self.first_line = 0

    def late(self, missed: str, why: str) -> LoadFailed:
        """The start has missed a limit: ``missed`` says which one, and ``why`` what was wrong at last."""
        return self.did_not_start(f"it {missed} ({why})")

    def exited_early(self, how: Exit) -> LoadFailed:
        """The engine exited while it started; ``NotEnoughMemory`` if its output shows that reason."""
        lines = self._last_lines(_READ_LINES)
        kind = NotEnoughMemory if not how.lost and reports_too_little_memory(how.status, lines) else LoadFailed
        return self.did_not_start(f"it {how_it_ended(how)} while it started", kind)

    def unplaced(self, limit: float, why: str) -> LoadFailed:
        """No place was found for the engine within ``limit`` seconds; ``why`` as the launcher said."""
        waited = f"no machine had room for it within {limit:g} s (models.*.place_timeout)"
        return self.did_not_start(f"{waited}: {why}" if why else waited)

    def quote(self) -> str:
        """The engine's last lines, to be added to a sentence."""
        lines = self._last_lines(_QUOTED_LINES)
        return "; its last lines were: " + " | ".join(lines) if lines else ""

    def did_not_start(self, why: str, kind: type[LoadFailed] = LoadFailed) -> LoadFailed:
        """An error of this ``kind``. ``why``: the rest of its sentence, after the cause that the engine names."""
        cause = _cause(self._last_lines(_READ_LINES))
        said = f"{cause} ({why})" if cause else why
        return kind(
            f"Model '{self._model}' did not start: {said}{self.quote()}",
            details={"model": self._model, "log": self._last_lines(_DETAILED_LINES)},
        )

    def _last_lines(self, count: int) -> Sequence[str]:
        self._log.finish()
        return self._log.tail(count, since=self.first_line)


def _cause(lines: Sequence[str]) -> str:
    """The first line that names the cause of a failed start, without its mark of time and level; empty if none does."""
    for sign in _CAUSES:
        for line in lines:
            if found := sign.search(line):
                return line[found.start() :].strip()[:_LONGEST_CAUSE]
    return ""


def how_it_ended(how: Exit) -> str:
    """An end in words: ``ended with status 1``, ``ended by SIGKILL``, ``was lost: node gpu-3 is dead``."""
    verb = "was lost" if how.lost else f"ended {_by_status(how.status)}"
    return f"{verb}: {how.why}" if how.why else verb


def _by_status(status: int | None) -> str:
    if status is None:
        return "by itself"
    if status >= 0:
        return f"with status {status}"
    try:
        return f"by {signal.Signals(-status).name}"
    except ValueError:
        return f"by signal {-status}"


def reports_too_little_memory(status: int | None, lines: Iterable[str]) -> bool:
    """Whether an engine that exited with ``status`` after printing ``lines`` needed more memory."""
    return status in _KILLED or any(tells_of_too_little_memory(line) for line in lines)


_FIRST_S, _LONGEST_S, _MOST_DOUBLINGS = 1.0, 60.0, 6
_FORGIVEN_S = 60.0
"""An engine that was ready for this long works: its earlier failures no longer count."""
_WAITED_OUT_S = 2.0
"""The longest pause through which requests wait; during a longer one they are refused."""


class BackOff:
    """Doubles the pause after each failure in a row, from one second to a minute. Times are seconds on any clock.

    The first failure of an engine that had been ready causes no pause, because a restart usually helps. ``crowded_by``
    are the replicas that ran when the engine found too little memory; empty if it failed otherwise. ``ready_at``: when
    the engine that runs could take requests; ``None`` if none can.
    """

    def __init__(self) -> None:
        self.failures = 0
        self.crowded_by: Collection[str] = ()
        self._until = 0.0
        self.ready_at: float | None = None

    def failed(self, now: float) -> None:
        """Note that the engine did not start, or exited by itself."""
        was_ready = self.ready_at is not None
        if self.ready_at is not None and now - self.ready_at >= _FORGIVEN_S:
            self.failures = 0
        self.ready_at = None
        self.failures += 1
        doublings = min(self.failures - 1, _MOST_DOUBLINGS)
        pause = 0.0 if was_ready and not doublings else min(_FIRST_S * 2**doublings, _LONGEST_S)
        self._until = now + pause

    def left(self, now: float, running: Collection[str] = ()) -> float:
        """Seconds until the next start is allowed; 0 for now.

        ``running``: what will run beside it. Once one of ``crowded_by`` has stopped, there is no pause.
        """
        if not self.failures or any(replica not in running for replica in self.crowded_by):
            return 0.0
        return max(0.0, self._until - now)

    async def wait_out(self, replica: str, problem: str, running: Callable[[], Collection[str]]) -> None:
        """Wait for the end of a short pause. Raise ``LoadFailed`` during a longer one. ``running``: as in ``left``."""
        while 0 < (left := self.left(_now(), running())) <= _WAITED_OUT_S:  # noqa: ASYNC110 - no event ends it
            await asyncio.sleep(left)
        self.refuse_too_soon(replica, problem, running())

    def refuse_too_soon(self, replica: str, problem: str, running: Collection[str]) -> None:
        """Raise ``LoadFailed`` during a pause. ``problem`` describes the last failure of ``replica``."""
        left = math.ceil(self.left(_now(), running))
        if left <= 0:
            return
        times = "once" if self.failures == 1 else f"{self.failures} times in a row"
        text = f"'{replica}' failed {times} and is not tried again for {left} s: {problem}"
        raise LoadFailed(text, retry_after=left)


def _now() -> float:
    return asyncio.get_running_loop().time()
