"""Observations from the records of real traffic."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from enginehouse import ConfigError
from enginehouse_sim.simulator.calibration.fit import Kind, Observation, StepWork, prompt_work

_LEAST_TOKENS = 8
"""Answers with fewer tokens say little about the time between tokens."""


class ServedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a ``RequestRecord`` that a fit reads; times are in seconds."""

    model: str | None = None
    backend: str | None = None
    status: int | None = 200
    stream: bool = True
    sent: float | None = None
    first_byte: float | None = None
    ended: float | None = None
    tokens_in: int | None = None
    tokens_cached: int | None = None
    tokens_out: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it is a stream whose times and tokens are all known."""
        times = (self.sent, self.first_byte, self.ended, self.tokens_in, self.tokens_out)
        return self.stream and self.status == 200 and None not in times

    @property
    def computed(self) -> int:
        """The tokens of the prompt that were not cached."""
        return max(1, (self.tokens_in or 0) - (self.tokens_cached or 0))


class _History(msgspec.Struct):
    requests: list[ServedRequest]


def read_records(path: Path) -> list[ServedRequest]:
    """The records of ``/api/history``, as its JSON or one in each line. Raises ``ConfigError``."""
    try:
        content = path.read_bytes()
        try:
            return msgspec.json.decode(content, type=_History).requests
        except msgspec.DecodeError:
            return [msgspec.json.decode(line, type=ServedRequest) for line in content.splitlines() if line.strip()]
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(path)) from None
    except msgspec.DecodeError as error:
        remedy = "save the answer of /api/history, or one record in each line"
        raise ConfigError(f"has no records of requests: {error}", file=str(path), remedy=remedy) from None


def observations_of(records: Sequence[ServedRequest], model: str) -> list[Observation]:
    """What the records of ``model`` say about the time between tokens, and about prompts that no other one met.

    In the time of an answer, the engine made a pass for each of its tokens. In these passes it also computed the tokens
    of other answers, and the prompts whose first token came meanwhile.
    """
    found: list[Observation] = []
    whole = [record for record in records if record.is_whole and (not model or record.model == model)]
    for backend in dict.fromkeys(record.backend for record in whole):
        served = [record for record in whole if record.backend == backend]
        for number, record in enumerate(served):
            others = served[:number] + served[number + 1 :]
            found += _of_answer(record, others, number)
            found += _of_prompt(record, others, number)
    return found


def _of_answer(record: ServedRequest, others: Sequence[ServedRequest], number: int) -> list[Observation]:
    begin, end, tokens = _answer(record)
    if tokens < _LEAST_TOKENS or end <= begin:
        return []
    decodes, kv_tokens = 1.0, _context(record, begin, end)
    works, mixed = [], 0
    for other in others:
        first, last, _ = _answer(other)
        share = max(0.0, min(end, last) - max(begin, first)) / (end - begin)
        decodes += share
        kv_tokens += share * _context(other, max(begin, first), min(end, last)) if share else 0.0
        if begin < first <= end:
            mixed += 1
            works.append(other)
    passes = [StepWork(passes=max(0.0, tokens - 1 - mixed), decodes=decodes, kv_tokens=kv_tokens)]
    passes += [_read(other, decodes, kv_tokens) for other in works]
    kind: Kind = "mixed" if mixed else "decode"
    return [Observation(point=f"answer {number}", kind=kind, work=passes, ms=1000 * (end - begin))]


def _of_prompt(record: ServedRequest, others: Sequence[ServedRequest], number: int) -> list[Observation]:
    """A prompt that the engine read alone: no other request was there."""
    sent, first = record.sent or 0.0, record.first_byte or 0.0
    if first <= sent or any((other.sent or 0) < first and (other.ended or 0) > sent for other in others):
        return []
    return [
        Observation(
            point=f"prompt {number}", kind="prompt", work=[_read(record, 0, 0)], requests=1, ms=1000 * (first - sent)
        )
    ]


def _answer(record: ServedRequest) -> tuple[float, float, int]:
    """When the answer of a whole record began and ended, and its tokens."""
    return record.first_byte or 0.0, record.ended or 0.0, record.tokens_out or 0


def _context(record: ServedRequest, begin: float, end: float) -> float:
    """The mean tokens that the request reads between two times of its answer."""
    first, last, tokens = _answer(record)
    progress = ((begin + end) / 2 - first) / (last - first) if last > first else 0.0
    return (record.tokens_in or 0) + progress * tokens


def _read(record: ServedRequest, decodes: float, kv_tokens: float) -> StepWork:
    computed, cached = record.computed, record.tokens_cached or 0
    return msgspec.structs.replace(prompt_work(computed, cached), decodes=decodes, kv_tokens=kv_tokens)
