"""What is known of engines, learned from their answers. Compiled: it runs for every request."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from math import exp, inf, log, sqrt
from typing import Final

from enginehouse import Candidate

FIRST_RATE: Final = 1e-4
"""Seconds for a token that is read, before any engine has answered."""
OVERHEAD: Final = 256
"""The tokens as which a prompt counts besides its own: an engine cannot answer in less than a step."""
_FIRST_READ: Final = log(FIRST_RATE)
_FIRST_WRITTEN: Final = log(0.02)
"""The same as a logarithm, and that for a token that is written."""
_KEPT: Final = 0.97
"""The weight that older answers keep when a new one comes."""
_ANY_SPEED: Final = 6.0
_ANY_RATIO: Final = 1.0
"""Before the first answer, the variances of the speed, and of each of the two beside it: of logarithms, as all here.

A graphics processor reads a token in a hundredth or less of the time to write one, an ordinary one in a fifth."""
_STRANGE: Final = 1.0
"""The variance of the speed of a new engine beside the others, a factor of three."""
_DRIFT: Final = 4e-4
_APART: Final = 2e-5
"""What each answer adds: an engine gets faster or slower, and seldom in one of the two only."""
_FIRST_NOISE: Final = 0.1
_LEAST_NOISE: Final = 0.01
_NOISE_KEPT: Final = 0.95
_OUTLIER: Final = 2.5
"""An answer counts as if it was off by so many standard deviations at most."""
_CHANGED: Final = 0.02
"""What an outlier adds to the variance of the speed: several in a row mean that it has changed."""
_SHORTEST: Final = 1e-6
_READ: Final = 0
_WRITTEN: Final = 1
_WHOLE: Final = 2
_ADAPTER_S: Final = 0.1
"""Seconds to load a LoRA adapter. vLLM reads one of rank 16 for 8 billion parameters, 80 MB, from memory or a disk."""
_MOST_ADAPTERS: Final = 256
"""Adapters that are remembered of an engine."""
_MISSED_TURNS: Final = 3
"""After so many turns that an engine missed, 63 % of what it was slower is forgotten: it may have been so only once."""
_MOST_CHANGES: Final = 4096
_GONE_TURNS: Final = 30
"""An engine that missed so many turns is probably gone; what was learned of it would count for nothing."""
_MOST_ENGINES: Final = 4096
_MANY_DUE: Final = 64
"""Where a model has one engine, nobody compares, and time passes when so many prompts may be read."""


class EngineState:
    """What is known of the engine of a backend, or of all engines together: then ``usual`` is ``None``.

    The seconds that it takes for a token that it reads, and for one that it writes, are 0 before the first answer. They
    come from a Kalman filter on their logarithms. Each answer tells the time of some tokens read and some written, with
    noise; a stream tells the two apart. What is known of both together, the speed of the engine, follows within some 25
    answers; what is known of one against the other stays much longer.

    ``lowest`` and ``highest``: what a token that is read probably takes, within a standard deviation.
    ``lowest_written`` and ``highest_written``: one that is written. ``answer``: the mean number of those in an answer.
    ``in_slot``: the mean seconds from grant to end. ``lessons``: how often something was learned of its speed.

    ``backlog``: tokens of prompts that are there without an answer yet. ``used``: the turn in which it was picked last;
    0 for never. ``answered``: when something was last learned from an answer that came whole.
    ``adapters``: the LoRA adapters that it was asked for, least recently asked for first, with their live requests.
    ``changes``: the backends whose engines have changed, one after the other.
    """

    __slots__ = (
        *("_apart", "_noises", "_read", "_requests", "_slot_seconds", "_together", "_usual", "_write", "_written"),
        *("adapters", "answer", "answered", "backend", "backlog", "changes", "highest", "highest_written", "in_slot"),
        *("lessons", "lowest", "lowest_written", "per_token", "per_written", "used"),
    )

    def __init__(self, backend: str, usual: EngineState | None, changes: list[str]) -> None:
        self.backend = backend
        self.changes = changes
        self._usual = usual
        self.adapters: dict[str, int] = {}
        self.backlog = 0.0
        self.used = self.lessons = 0
        self.answered = -inf
        self.per_token = self.per_written = self.lowest = self.highest = self.in_slot = 0.0
        self.lowest_written = self.highest_written = self.answer = 0.0
        self._slot_seconds = self._requests = 0.0
        self._read, self._write = _FIRST_READ, _FIRST_WRITTEN
        self._apart = self._written = _ANY_SPEED + _ANY_RATIO
        self._together = _ANY_SPEED
        self._noises = [_FIRST_NOISE, _FIRST_NOISE, _FIRST_NOISE]

    def learn(self, seconds: float, read: float, written: float) -> None:
        """Learn from an answer, or a part of it, for which the engine ``read`` and wrote so many tokens.

        What is usual learns the same. Until the first lesson, an engine is expected to be as usual.
        """
        usual = self._usual
        if usual is not None and not self.per_token:
            self._read, self._write = usual._read, usual._write
            self._apart, self._together = usual._apart + _STRANGE, usual._together + _STRANGE
            self._written, self._noises = usual._written + _STRANGE, usual._noises.copy()
        self.changes.append(self.backend)
        kind = _READ if not written else _WHOLE if read else _WRITTEN
        each: EngineState | None = self
        while each is not None:
            if written:
                each.answer = written if not each.answer else _KEPT * each.answer + (1 - _KEPT) * written
            reading = read * exp(each._read)
            expected = reading + written * exp(each._write)
            if expected > 0:
                error = log(max(seconds, _SHORTEST) / max(expected, _SHORTEST))
                each._correct(error, reading / expected, kind)
            each.lessons += 1
            each = each._usual

    def _correct(self, error: float, share: float, kind: int) -> None:
        """Correct the rates. ``error``: the logarithm of what an answer took beside what was expected.

        ``share``: of reading in what was expected.
        """
        other = 1 - share
        apart, together = self._apart + _DRIFT + _APART, self._together + _DRIFT
        written = self._written + _DRIFT + _APART
        of_read, of_write = apart * share + together * other, together * share + written * other
        known, noise = of_read * share + of_write * other, self._noises[kind]
        both = known + noise
        most = _OUTLIER * sqrt(both)
        counted = max(-most, min(most, error))
        self._noises[kind] = max(
            _LEAST_NOISE, _NOISE_KEPT * noise + (1 - _NOISE_KEPT) * (min(error * error, 9 * both) - known)
        )
        self._read += of_read / both * counted
        self._write += of_write / both * counted
        doubt = _CHANGED if counted != error else 0.0
        self._apart = apart - of_read * of_read / both + doubt
        self._together = together - of_read * of_write / both + doubt
        self._written = written - of_write * of_write / both + doubt
        self._settle()

    def _settle(self) -> None:
        self.per_token, self.per_written = exp(self._read), exp(self._write)
        unsure = exp(sqrt(self._apart))
        self.lowest, self.highest = self.per_token / unsure, self.per_token * unsure
        unsure = exp(sqrt(self._written))
        self.lowest_written, self.highest_written = self.per_written / unsure, self.per_written * unsure

    def fade(self, share: float) -> None:
        """Keep ``share`` of what is known of the speed, so that the next answers decide the more."""
        doubt = _STRANGE * (1 - share)
        self._apart += doubt
        self._together += doubt
        self._written += doubt

    def ended(self, seconds: float) -> None:
        """Add a request that held its slot for so many ``seconds``, also to what is usual."""
        self.changes.append(self.backend)
        each: EngineState | None = self
        while each is not None:
            each._slot_seconds = _KEPT * each._slot_seconds + seconds
            each._requests = _KEPT * each._requests + 1
            each.in_slot = each._slot_seconds / each._requests
            each = each._usual

    @property
    def memory(self) -> list[float]:
        """All of its rates that it goes on from."""
        known = 1.0 if self.per_token else 0.0
        return [
            *(known, self._read, self._write, self._apart, self._together, self._written, *self._noises),
            *(self._slot_seconds, self._requests, self.answer),
        ]

    def recall(self, memory: Sequence[float]) -> None:
        """Go on from the ``memory`` of another one."""
        known, self._read, self._write, self._apart, self._together, self._written, *rest = memory
        self._noises, (self._slot_seconds, self._requests, self.answer) = rest[:3], rest[3:]
        if known:
            self._settle()
        if self._requests:
            self.in_slot = self._slot_seconds / self._requests

    def begin_adapter(self, name: str) -> None:
        """Count a request for an adapter."""
        known = self.adapters
        known[name] = known.pop(name, 0) + 1
        if len(known) > _MOST_ADAPTERS:
            for idle in [each for each, live in known.items() if not live]:
                del known[idle]
                break

    def end_adapter(self, name: str) -> None:
        """Count the end of a request for an adapter."""
        if name in self.adapters:
            self.adapters[name] -= 1

    def adapter_s(self, candidate: Candidate, usual_in_slot: float) -> float:
        """Seconds until the engine has loaded the adapter that ``candidate`` is; 0 if it has.

        An engine has the adapters that it was asked for last, as many as it runs at once. If all of these are in use,
        the next one waits until a request ends, which takes ``usual_in_slot`` seconds until this one has told.
        """
        name, load = candidate.name_there or candidate.model, candidate.load
        active: tuple[str, ...] = load.adapters
        most: int = load.max_adapters
        asked = list(self.adapters)
        if name in active or name in (asked[max(0, len(asked) - most) :] if most else asked):
            return 0.0
        busy = {each for each, live in self.adapters.items() if live}
        busy.update(active)
        if not most or len(busy) < most:
            return _ADAPTER_S
        return _ADAPTER_S + (self.in_slot or usual_in_slot or _ADAPTER_S)


class KnownEngines:
    """The engines by backend, the one that was used least recently first, and all of them together.

    ``changes``: the backends whose engines have changed; ``forgotten``: how many did before these.
    ``generation``: changes when other objects may stand for engines, or all have changed at once.
    ``turn``: how many requests were placed.
    ``loading``: for each host, the replicas that requests wait for there and the seconds that their loads take.
    """

    def __init__(self) -> None:
        self.changes: list[str] = []
        self.forgotten = self.generation = 0
        self.all = EngineState("", None, [])
        self.engines: OrderedDict[str, EngineState] = OrderedDict()
        self.now: Callable[[], float] = lambda: 0.0
        self.loading: dict[str, dict[str, float]] = {}
        self.turn = self._dues = 0
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def engine(self, backend: str) -> EngineState:
        """What is known of the engine of ``backend``."""
        known = self.engines.get(backend)
        if known is None:
            self._forget_gone()
            known = self.engines[backend] = EngineState(backend, self.all, self.changes)
        return known

    def _forget_gone(self) -> None:
        """Forget the engine that was used least recently if it is probably gone, or if there are too many."""
        oldest, number = next(iter(self.engines.values()), None), len(self.engines)
        if oldest and (number == _MOST_ENGINES or self.turn - oldest.used > _GONE_TURNS * number):
            del self.engines[oldest.backend]
            self.generation += 1

    def used(self, backend: str) -> EngineState:
        """Note that a request goes to ``backend``. Return what is known of its engine."""
        engine = self.engines.get(backend) or self.engine(backend)
        if self.turn - engine.used > len(self.engines):
            engine.fade(self.trust(engine) ** 2)  # the square: an old time may be a hundred times too long
        self.turn += 1
        engine.used = self.turn
        self.engines.move_to_end(backend)
        if len(self.changes) >= _MOST_CHANGES:
            self.forgotten += len(self.changes)
            self.changes.clear()
        self.changes.append(backend)
        return engine

    def trust(self, engine: EngineState) -> float:
        """How much what was learned of ``engine`` still counts, from 0 to 1: the less, the longer it was not used."""
        missed, round = self.turn - engine.used, len(self.engines)
        return exp(-missed / (_MISSED_TURNS * round)) if missed > round else 1.0

    def will_be_read(self, now: float, seconds: float, is_read: Callable[[], None]) -> None:
        """Have ``is_read`` called in so many ``seconds`` or later: by then a prompt probably is."""
        if len(self._due) >= _MANY_DUE:
            self.pass_time(now)
        self._dues += 1
        heappush(self._due, (now + seconds, self._dues, is_read))

    def pass_time(self, now: float) -> None:
        """Take the prompts for read that probably are by ``now``."""
        due = self._due
        while due and due[0][0] <= now:
            heappop(due)[2]()

    def learned(self) -> dict[str, dict[str, float]]:
        """What is known of each engine, by backend: times in milliseconds, the backlog in tokens."""
        return {
            backend: {
                **self.rates(backend),
                "slot_ms": round(1e3 * known.in_slot, 1),
                "backlog_tokens": round(known.backlog),
            }
            for backend, known in self.engines.items()
        }

    def rates(self, backend: str) -> dict[str, float]:
        """The milliseconds for a token that the engine reads, and for one that it writes; 0 if not known."""
        known = self.engines.get(backend)
        rates = (known.per_token, known.per_written) if known is not None else (0.0, 0.0)
        return {"ms_per_token": round(1e3 * rates[0], 4), "ms_per_output_token": round(1e3 * rates[1], 4)}

    def memory(self) -> dict[str, list[float]]:
        """What was learned of each engine, by backend; of all of them, by an empty name."""
        return {"": self.all.memory, **{backend: known.memory for backend, known in self.engines.items()}}

    def recall(self, memory: Mapping[str, Sequence[float]]) -> None:
        """Go on from what another one had learned, as ``memory`` returned it."""
        for backend, each in memory.items():
            (self.engine(backend) if backend else self.all).recall(each)
        self.generation += 1
