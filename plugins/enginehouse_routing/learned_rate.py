"""What is learned of one engine from its answers. Compiled: it runs for every request."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf, log, sqrt
from typing import Final

from enginehouse import Candidate

_KEPT: Final = 0.97
"""The weight that older answers keep when a new one comes."""
_FIRST_READ: Final = log(1e-4)
_FIRST_WRITTEN: Final = log(0.02)
"""Seconds for a token that is read, and for one that is written, before any engine has answered; as logarithms."""
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
_ADAPTER_S: Final = 0.1
"""Seconds to load a LoRA adapter. vLLM reads one of rank 16 for 8 billion parameters, 80 MB, from memory or a disk."""
_MOST_ADAPTERS: Final = 256
"""Adapters that are remembered of an engine."""
_READ: Final = 0
_WRITTEN: Final = 1
_WHOLE: Final = 2


class LearnedRates:
    """The seconds that an engine takes for a token that it reads, and for one that it writes; 0 before the first.

    A Kalman filter on their logarithms. Each answer tells the time of some tokens read and some written, with noise; a
    stream tells the two apart. What is known of both together, the speed of the engine, follows within some 25 answers;
    what is known of one against the other stays much longer.

    ``lowest`` and ``highest``: what a token that is read probably takes, within a standard deviation.
    ``lowest_written`` and ``highest_written``: one that is written. ``answer``: the mean number of those in an answer.
    ``in_slot``: the mean seconds from grant to end.
    """

    __slots__ = (
        *("_apart", "_noises", "_read", "_requests", "_slot_seconds", "_together", "_write", "_written", "answer"),
        *("highest", "highest_written", "in_slot", "lowest", "lowest_written", "per_token", "per_written"),
    )

    def __init__(self) -> None:
        self.per_token = self.per_written = self.lowest = self.highest = self.in_slot = 0.0
        self.lowest_written = self.highest_written = self.answer = 0.0
        self._slot_seconds = self._requests = 0.0
        self._read, self._write = _FIRST_READ, _FIRST_WRITTEN
        self._apart = self._written = _ANY_SPEED + _ANY_RATIO
        self._together = _ANY_SPEED
        self._noises = [_FIRST_NOISE, _FIRST_NOISE, _FIRST_NOISE]

    def begin_as(self, others: LearnedRates) -> None:
        """Expect what ``others`` have taught, until something is learned of this engine itself."""
        self._read, self._write = others._read, others._write
        self._apart, self._together = others._apart + _STRANGE, others._together + _STRANGE
        self._written = others._written + _STRANGE
        self._noises = others._noises.copy()

    def read(self, seconds: float, tokens: float) -> None:
        """Learn from a first token that came after so many ``seconds``, with so many ``tokens`` to read."""
        self._learn(seconds, tokens * exp(self._read), 0.0, _READ)

    def wrote(self, seconds: float, tokens: float) -> None:
        """Learn from so many ``tokens`` after the first one."""
        self._count(tokens)
        self._learn(seconds, 0.0, tokens * exp(self._write), _WRITTEN)

    def answered(self, seconds: float, read: float, written: float) -> None:
        """Learn from an answer that came whole, for which so many tokens were ``read`` and ``written``."""
        self._count(written)
        self._learn(seconds, read * exp(self._read), written * exp(self._write), _WHOLE)

    def _count(self, written: float) -> None:
        self.answer = written if not self.answer else _KEPT * self.answer + (1 - _KEPT) * written

    def _learn(self, seconds: float, reading: float, writing: float, kind: int) -> None:
        """Correct what is known by an answer that took ``seconds`` instead of ``reading`` and ``writing``."""
        expected = reading + writing
        if expected <= 0:
            return
        error = log(max(seconds, _SHORTEST) / max(expected, _SHORTEST))
        share = reading / expected
        other = 1 - share
        apart, together, written = (
            self._apart + _DRIFT + _APART,
            self._together + _DRIFT,
            self._written + _DRIFT + _APART,
        )
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
        self._apart = apart - of_read * of_read / both
        self._together = together - of_read * of_write / both
        self._written = written - of_write * of_write / both
        if counted != error:
            self._doubt(_CHANGED)
        self._settle()

    def _settle(self) -> None:
        self.per_token, self.per_written = exp(self._read), exp(self._write)
        unsure = exp(sqrt(self._apart))
        self.lowest, self.highest = self.per_token / unsure, self.per_token * unsure
        unsure = exp(sqrt(self._written))
        self.lowest_written, self.highest_written = self.per_written / unsure, self.per_written * unsure

    def fade(self, share: float) -> None:
        """Keep ``share`` of what is known of the speed, so that the next answers decide the more."""
        self._doubt(_STRANGE * (1 - share))

    def _doubt(self, more: float) -> None:
        """Add so much to the variance of the speed."""
        self._apart += more
        self._together += more
        self._written += more

    @property
    def state(self) -> list[float]:
        """All that it goes on from."""
        known = 1.0 if self.per_token else 0.0
        return [
            *(known, self._read, self._write, self._apart, self._together, self._written, *self._noises),
            *(self._slot_seconds, self._requests, self.answer),
        ]

    def recall(self, state: Sequence[float]) -> None:
        """Go on from the ``state`` of another one."""
        known, self._read, self._write, self._apart, self._together, self._written, *rest = state
        self._noises, (self._slot_seconds, self._requests, self.answer) = rest[:3], rest[3:]
        if known:
            self._settle()
        if self._requests:
            self.in_slot = self._slot_seconds / self._requests

    def ended(self, seconds: float) -> None:
        """Add a request that held its slot for so many ``seconds``."""
        self._slot_seconds = _KEPT * self._slot_seconds + seconds
        self._requests = _KEPT * self._requests + 1
        self.in_slot = self._slot_seconds / self._requests


class UnreadPrompt:
    """The tokens of a prompt that an engine has not read yet; 0 once it has."""

    __slots__ = ("engine", "tokens")

    def __init__(self, engine: EngineState, tokens: int) -> None:
        self.engine = engine
        self.tokens = tokens


class EngineState:
    """What is known of the engine of a backend. ``backlog``: tokens of prompts that are there without an answer yet.

    ``adapters``: the LoRA adapters that it was asked for, least recently asked for first, with their live requests.
    """

    __slots__ = ("adapters", "answered", "backend", "backlog", "learned", "used")

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.adapters: dict[str, int] = {}
        self.learned = LearnedRates()
        self.backlog = 0.0
        self.used = 0
        """The turn in which it was picked last; 0 for never."""
        self.answered = -inf
        """When something was last learned from an answer that came whole."""

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
        return _ADAPTER_S + (self.learned.in_slot or usual_in_slot or _ADAPTER_S)
