"""The model runner: executes the plan of a step, as a worker with a GPU would."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from enginehouse_sim.options import CoreSettings
from enginehouse_sim.simulator.domain.outputs import (
    PADDING_DRAFT,
    ModelRunnerOutput,
    NewRequestData,
    SchedulerOutput,
    TokenLogprobs,
)
from enginehouse_sim.simulator.domain.request import CachedRequestData
from enginehouse_sim.simulator.model.text import EOS, TextSampler, text_of, vector
from enginehouse_sim.simulator.steps.costs import StepLoad

_DIMENSIONS = 64
"""The length of embeddings."""


class ModelRunner:
    """Samples one token for each request whose known tokens are all computed, and one more for each accepted draft.

    After a step, ``load`` is its load.
    """

    def __init__(self, settings: CoreSettings) -> None:
        self.load = StepLoad()
        self._settings = settings
        self._requests: dict[str, _CachedRequest] = {}

    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        requests = self._requests
        for request_id in output.finished_req_ids:
            requests.pop(request_id, None)
        step = _Step(output, self._settings)
        for new in output.new_requests:
            requests[new.request_id] = request = _CachedRequest(new, self._settings)
            step.run(request, new.num_computed_tokens)
        for cached in output.cached_requests:
            request = requests[cached.request_id]
            if cached.resumed_from_preemption:
                request.resume(cached, self._settings)
            step.run(request, cached.num_computed_tokens)
        self.load = step.load()
        return step.outcome()


class _CachedRequest:
    """A request as the model runner keeps it: its tokens, the sampler after them, and the drafts of its last step."""

    __slots__ = ("data", "drafted", "is_plain", "prompt_length", "sampler", "tokens")

    def __init__(self, data: NewRequestData, settings: CoreSettings) -> None:
        self.data = data
        self.is_plain = not (data.logprobs is not None or data.pooling or data.min_tokens)
        self.prompt_length = len(data.prompt_token_ids)
        self.tokens = [*data.prompt_token_ids, *data.output_token_ids]
        self.drafted: list[int] = []
        self.sampler = self._new_sampler(settings)

    def resume(self, data: CachedRequestData, settings: CoreSettings) -> None:
        self.tokens = list(data.token_ids)
        self.drafted = []
        self.sampler = self._new_sampler(settings)

    def _new_sampler(self, settings: CoreSettings) -> TextSampler:
        mean_length = None if self.data.ignore_eos else settings.mean_length
        return TextSampler(settings.seed, text_of(self.tokens), self.data.choice, mean_length)

    def sample(self, allowed: frozenset[int] | None) -> int:
        may_stop = len(self.tokens) - self.prompt_length >= self.data.min_tokens
        without = frozenset() if may_stop else self.data.stop_token_ids
        token = self.sampler.next(may_stop, without) if allowed is None else self.sampler.pick(allowed)
        self.tokens.append(token)
        return token

    def draft(self, settings: CoreSettings) -> list[int]:
        sampler = self.sampler.copy()
        self.drafted = [sampler.draft(settings.draft_acceptance) for _ in range(settings.constants.num_spec_tokens)]
        return self.drafted

    def drafts(self, planned: Sequence[int]) -> Sequence[int]:
        """The drafts of a plan. If they are placeholders, the request's own drafts replace as many as there are."""
        if not planned or planned[0] != PADDING_DRAFT:
            return planned
        own = self.drafted[: len(planned)]
        return [*own, *planned[len(own) :]]


class _Step:
    """One step while it is executed: its results and its load."""

    def __init__(self, output: SchedulerOutput, settings: CoreSettings) -> None:
        self._settings = settings
        self._scheduled = output.num_scheduled_tokens
        self._drafts = output.scheduled_spec_decode_tokens
        self._rows = output.structured_output_request_ids
        self._bitmask = output.grammar_bitmask or ()
        self._req_ids: list[str] = []
        self._sampled: list[list[int]] = []
        self._logprobs: dict[int, list[TokenLogprobs]] = {}
        self._spec: list[list[int]] = []
        self._pooled: dict[str, Any] = {}
        self._prefill = self._pairs = self._own_pairs = self._first = 0
        self._decodes = self._checked = self._active = 0
        self._is_plain = not (self._drafts or self._rows or settings.constants.num_spec_tokens)

    def run(self, request: _CachedRequest, computed: int) -> None:
        """Compute one request. The first branch is the usual case: one more token of free text."""
        known = len(request.tokens)
        if self._is_plain and request.is_plain and computed + 1 == known > request.prompt_length:
            self._decodes += 1
            self._active += known
            token = request.sampler.next()
            request.tokens.append(token)
            self._req_ids.append(request.data.request_id)
            self._sampled.append([token])
        else:
            self._run_general(request, computed)

    def _run_general(self, request: _CachedRequest, computed: int) -> None:
        request_id = request.data.request_id
        scheduled = self._scheduled[request_id]
        drafts = request.drafts(self._drafts.get(request_id, ())) if self._drafts else ()
        computed = min(computed, len(request.tokens) - 1)  # a plan ahead of the last result counts all drafts as right
        known = len(request.tokens)
        if known > request.prompt_length and computed + 1 >= known:
            self._decodes += 1
            self._checked += len(drafts)
            self._active += known
        else:
            self._prefill += scheduled
            self._pairs += scheduled * computed
            self._own_pairs += scheduled * (scheduled + 1) // 2
            self._first += computed + scheduled >= known
        if computed + scheduled < known + len(drafts):
            sampled = []
        elif drafts or request_id in self._rows or request.data.logprobs is not None or request.data.pooling:
            sampled = self._sample_special(request, drafts)
        else:
            sampled = [request.sample(None)]
        self._req_ids.append(request_id)
        self._sampled.append(sampled)
        if self._settings.constants.num_spec_tokens:
            self._spec.append(request.draft(self._settings) if sampled else [])

    def _sample_special(self, request: _CachedRequest, drafts: Sequence[int]) -> list[int]:
        data = request.data
        if data.pooling:
            self._pooled[data.request_id] = vector(self._settings.seed, text_of(request.tokens), _DIMENSIONS)
            return []
        sampled: list[int] = []
        logprobs: list[TokenLogprobs] = []
        row = self._rows.get(data.request_id)
        for at in range(len(drafts) + 1):
            before = None if data.logprobs is None else request.sampler.copy()
            token = request.sample(None if row is None else self._bitmask[row + at])
            sampled.append(token)
            if before is not None:
                logprobs.append(before.alternatives(token, max(1, data.logprobs or 0)))
            if token == EOS or at == len(drafts) or token != drafts[at]:
                break
        if data.logprobs is not None:
            self._logprobs[len(self._req_ids)] = logprobs
        return sampled

    def outcome(self) -> ModelRunnerOutput:
        return ModelRunnerOutput(
            req_ids=self._req_ids,
            req_id_to_index=dict(zip(self._req_ids, count())),
            sampled_token_ids=self._sampled,
            spec_token_ids=self._spec if self._settings.constants.num_spec_tokens else None,
            logprobs=[self._logprobs.get(at, []) for at in range(len(self._req_ids))] if self._logprobs else None,
            pooler_output=self._pooled,
        )

    def load(self) -> StepLoad:
        return StepLoad(
            prefill_tokens=self._prefill,
            prefill_pairs=self._pairs,
            own_pairs=self._own_pairs,
            first_tokens=self._first,
            decodes=self._decodes,
            draft_tokens=self._checked,
            active_kv_tokens=self._active,
            total_kv_tokens=self._settings.constants.token_capacity,
        )
