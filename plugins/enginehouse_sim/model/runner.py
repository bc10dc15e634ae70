"""The model runner: does what the scheduler planned for one step, as a worker with a GPU would."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import msgspec

from enginehouse_sim.model.continuation import Continuation
from enginehouse_sim.model.kv_memory import KvMemory, Occupant
from enginehouse_sim.model.text import EOS, text_of
from enginehouse_sim.model.vectors import vector
from enginehouse_sim.scheduler.output import (
    CachedRequestData,
    ModelRunnerOutput,
    NewRequestData,
    SchedulerOutput,
    TokenLogprobs,
)
from enginehouse_sim.steps.load import StepLoad


class RunnerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the model is like.

    ``mean_length``: tokens until an answer ends by itself, on average; ``None``: it never does. ``num_spec_tokens``:
    drafts for each step; ``draft_acceptance``: the chance of each to be right if those before it are.
    ``total_kv_tokens``: what the cache holds, for the step's load. ``dimensions``: of embeddings.
    """

    seed: int = 0
    mean_length: int | None = None
    num_spec_tokens: int = 0
    draft_acceptance: float = 0.7
    total_kv_tokens: int = 0
    dimensions: int = 64


class ModelRunner:
    """Keeps the requests that it was told of, and makes one token for each whose known tokens are all read by a step.

    And one more for each draft in a row that turns out right. After a step ``load`` is what it had to do. With
    ``memory``, every block that is read must hold what was computed for this very beginning of a text.
    """

    def __init__(self, settings: RunnerSettings, memory: KvMemory | None = None) -> None:
        self.load = StepLoad()
        self._settings = settings
        self._memory = memory
        self._requests: dict[str, _Request] = {}

    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        """One step. Raises ``InconsistentBlocks`` if there is a ``memory`` to tell."""
        requests = self._requests
        for request_id in output.finished_req_ids:
            requests.pop(request_id, None)
        step = _Step(output, self._settings, self._memory)
        for new in output.new_requests:
            requests[new.request_id] = request = _Request(new, self._settings)
            step.run(request, new.num_computed_tokens)
        for cached in output.cached_requests:
            request = requests[cached.request_id]
            if cached.resumed_from_preemption:
                request.resume(cached, self._settings)
            elif cached.new_block_ids:
                request.block_ids.extend(cached.new_block_ids)
            step.run(request, cached.num_computed_tokens)
        self.load = step.load()
        return step.outcome()


class _Request:
    """A request as the model runner keeps it: all its tokens, and the place behind them."""

    __slots__ = ("block_ids", "data", "is_plain", "place", "prompt_length", "tokens")

    def __init__(self, data: NewRequestData, settings: RunnerSettings) -> None:
        self.data = data
        self.is_plain = not (data.logprobs is not None or data.pooling or data.min_tokens)
        self.prompt_length = len(data.prompt_token_ids)
        self.tokens = [*data.prompt_token_ids, *data.output_token_ids]
        self.block_ids = list(data.block_ids)
        self.place = self._place(settings)

    def resume(self, data: CachedRequestData, settings: RunnerSettings) -> None:
        """Begin again, with other blocks."""
        self.tokens = list(data.token_ids)
        self.block_ids = list(data.new_block_ids)
        self.place = self._place(settings)

    def _place(self, settings: RunnerSettings) -> Continuation:
        mean_length = None if self.data.ignore_eos else settings.mean_length
        return Continuation.of_tokens(settings.seed, self.tokens, self.data.choice, mean_length)

    def sample(self, allowed: frozenset[int] | None) -> int:
        """One more token."""
        if allowed is None:
            token = self.place.next(len(self.tokens) - self.prompt_length >= self.data.min_tokens)
        else:
            token = self.place.pick(allowed)
        self.tokens.append(token)
        return token

    def drafts(self, settings: RunnerSettings) -> list[int]:
        """Guesses at the next tokens."""
        place = self.place.copy()
        return [place.draft(settings.draft_acceptance) for _ in range(settings.num_spec_tokens)]


class _Step:
    """One step under way: what comes out of it, and what it has to do."""

    def __init__(self, output: SchedulerOutput, settings: RunnerSettings, memory: KvMemory | None) -> None:
        self._settings = settings
        self._memory = memory
        self._scheduled = output.num_scheduled_tokens
        self._drafts = output.scheduled_spec_decode_tokens
        self._rows = output.structured_output_request_ids
        self._bitmask = output.grammar_bitmask or ()
        self._req_ids: list[str] = []
        self._sampled: list[list[int]] = []
        self._logprobs: dict[int, list[TokenLogprobs]] = {}
        self._spec: list[list[int]] = []
        self._pooled: dict[str, Any] = {}
        self._reads: list[tuple[Occupant, int]] = []
        self._prefill = self._pairs = self._first = self._decodes = self._checked = self._active = 0
        self._is_plain = not (self._drafts or self._rows or memory or settings.num_spec_tokens)

    def run(self, request: _Request, computed: int) -> None:
        """The part of one request: almost always one more token of free text, and that is done at once."""
        known = len(request.tokens)
        if self._is_plain and request.is_plain and computed + 1 == known > request.prompt_length:
            self._decodes += 1
            self._active += known
            token = request.place.next()
            request.tokens.append(token)
            self._req_ids.append(request.data.request_id)
            self._sampled.append([token])
        else:
            self._run_any(request, computed)

    def _run_any(self, request: _Request, computed: int) -> None:
        request_id = request.data.request_id
        scheduled = self._scheduled[request_id]
        drafts = self._drafts.get(request_id, ()) if self._drafts else ()
        if self._memory:
            self._compute(self._memory, request, drafts, computed, scheduled)
        known = len(request.tokens)
        if known > request.prompt_length and computed + 1 >= known:
            self._decodes += 1
            self._checked += len(drafts)
            self._active += known
        else:
            self._prefill += scheduled
            self._pairs += scheduled * computed
            self._first += computed + scheduled >= known
        if computed + scheduled < known + len(drafts):
            sampled = []
        elif drafts or request_id in self._rows or request.data.logprobs is not None or request.data.pooling:
            sampled = self._with_care(request, drafts)
        else:
            sampled = [request.sample(None)]
        self._req_ids.append(request_id)
        self._sampled.append(sampled)
        if self._settings.num_spec_tokens:
            self._spec.append(request.drafts(self._settings) if sampled else [])

    def _with_care(self, request: _Request, drafts: Sequence[int]) -> list[int]:
        data = request.data
        if data.pooling:
            self._pooled[data.request_id] = vector(
                self._settings.seed, text_of(request.tokens), self._settings.dimensions
            )
            return []
        sampled: list[int] = []
        logprobs: list[TokenLogprobs] = []
        row = self._rows.get(data.request_id)
        for at in range(len(drafts) + 1):
            before = None if data.logprobs is None else request.place.copy()
            token = request.sample(None if row is None else self._bitmask[row + at])
            sampled.append(token)
            if before is not None:
                logprobs.append(before.alternatives(token, max(1, data.logprobs or 0)))
            if token == EOS or at == len(drafts) or token != drafts[at]:
                break
        if data.logprobs is not None:
            self._logprobs[len(self._req_ids)] = logprobs
        return sampled

    def _compute(
        self, memory: KvMemory, request: _Request, drafts: Sequence[int], computed: int, scheduled: int
    ) -> None:
        """Write now and read later: within a step, requests read what others compute in it."""
        data = request.data
        salt = f"{data.lora or ''}/{data.cache_salt or ''}"
        occupant = Occupant(data.request_id, [*request.tokens, *drafts], request.block_ids, salt)
        memory.write(occupant, computed, computed + scheduled)
        self._reads.append((occupant, computed + scheduled))

    def outcome(self) -> ModelRunnerOutput:
        """What the scheduler is told."""
        if self._memory:
            for occupant, stop in self._reads:
                self._memory.read(occupant, stop)
        return ModelRunnerOutput(
            req_ids=self._req_ids,
            req_id_to_index=dict(zip(self._req_ids, count())),
            sampled_token_ids=self._sampled,
            spec_token_ids=self._spec if self._settings.num_spec_tokens else None,
            logprobs=[self._logprobs.get(at, []) for at in range(len(self._req_ids))] if self._logprobs else None,
            pooler_output=self._pooled,
        )

    def load(self) -> StepLoad:
        """What there was to do."""
        return StepLoad(
            prefill_tokens=self._prefill,
            prefill_pairs=self._pairs,
            first_tokens=self._first,
            decodes=self._decodes,
            draft_tokens=self._checked,
            active_kv_tokens=self._active,
            total_kv_tokens=self._settings.total_kv_tokens,
        )
