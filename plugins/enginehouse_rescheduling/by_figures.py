"""The common part of the strategies: the account between two views, and two instances for one request."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from enginehouse import Candidate, Requirements, Role, Strategy
from enginehouse.rescheduling import ReschedulingSettings
from enginehouse.routing_facts import Verdict
from enginehouse_kit.rescheduling import ClusterView, InFlight, InstanceView
from enginehouse_rescheduling.latency import LatencyPredictor
from enginehouse_rescheduling.metrics import PromptFigures
from enginehouse_rescheduling.policies.instances import failed_domain

FREE, FULL, UNKNOWN = range(3)
"""The classes of ranks: below the threshold, at or above it, and without figures."""

_SPLIT = {Role.PREFILL, Role.DECODE}


class Rank(NamedTuple):
    """The place of an instance for a request; the least comes first.

    ``locality``: if prefix caches count, the load with the uncached part of the prompt; else 0.
    """

    full: int
    locality: float = 0.0
    load: float = 0.0


class StrategyByFigures(Strategy):
    """Picks the candidate with the least load. Candidates that fail or report nothing come last, by pending requests.

    Where instances with the roles prefill and decode serve a model, one of each serves a request: the first one reads
    the prompt, and the second one answers. Between two views, each request is added to the figures of its instances.

    ``predicts``: whether it needs predicted times, from the configured profiles.
    """

    def __init__(self, *, predicts: bool) -> None:
        self._settings = ReschedulingSettings()
        self._latency = LatencyPredictor.of(self._settings) if predicts else None
        self._instances: dict[str, InstanceView] = {}
        self._failed: frozenset[str] = frozenset()
        self._now_ms = 0

    def on_view(self, view: ClusterView, settings: ReschedulingSettings) -> None:
        before = self._settings
        if self._latency is not None and _profiles(settings) != _profiles(before):
            self._latency = LatencyPredictor.of(settings)
        failed = failed_domain(view, settings.failover_domain, settings.instance_staleness)
        self._settings = settings
        self._failed = frozenset(failed)
        self._now_ms = view.now_ms
        self._instances = {each.id: each for each in view.instances if each.id not in failed}

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        readers, _ = self._stages(candidates)
        return self._least(readers, [self._rank_of(each, requirements) for each in readers])

    def placed(self, requirements: Requirements, chosen: Candidate) -> None:
        role = self._role(chosen)
        self._place(chosen, requirements, prefill=role is not Role.DECODE, decode=role is not Role.PREFILL)

    def placed_pair(self, requirements: Requirements, prefill: Candidate, chosen: Candidate) -> None:
        self._place(prefill, requirements, prefill=True, decode=False)
        self._place(chosen, requirements, prefill=False, decode=True)

    def pick_decode(
        self, requirements: Requirements, candidates: Sequence[Candidate], prefill: Candidate
    ) -> Candidate | None:
        _, answerers = self._stages(candidates)
        if self._role(prefill) is not Role.PREFILL or not answerers:
            return None
        ranks = [self._decode_rank_of(each, requirements) for each in answerers]
        return self._least(answerers, ranks, decodes=True)

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        """Return each candidate's parts; less is better.

        ``load``: for reading the prompt. ``locality``: the same with the uncached part of it. ``decode_load``: for the
        answer to a prompt that another one reads.
        """
        readers, answerers = self._stages(candidates)
        reads, answers = {each.replica for each in readers}, {each.replica for each in answerers}
        return [
            Verdict(None, dict(self._parts(each, requirements, each.replica in reads, each.replica in answers)))
            for each in candidates
        ]

    @abstractmethod
    def _rank(self, instance: InstanceView, requirements: Requirements) -> Rank:
        """The rank of an instance that reports figures."""

    def _decode_rank(self, instance: InstanceView, requirements: Requirements) -> Rank:
        """Its rank for an answer whose prompt another instance has read."""
        return self._rank(instance, requirements)

    def _stages(self, candidates: Sequence[Candidate]) -> tuple[Sequence[Candidate], Sequence[Candidate]]:
        """The candidates that may read the prompt, and those that may answer after another one has read it."""
        if not {self._role(each) for each in candidates} >= _SPLIT:
            return candidates, ()
        decoding = [each for each in candidates if self._role(each) is Role.DECODE]
        return [each for each in candidates if self._role(each) is not Role.DECODE], decoding

    def _check(self, best: Rank, *, decodes: bool) -> None:
        """Raise a ``RequestError`` if even the best candidate must not get the request, or its answer only."""

    def _figures(self, instance: InstanceView, requirements: Requirements) -> PromptFigures:
        """The figures of the prompt, for metrics."""
        return PromptFigures(tokens=requirements.estimated_tokens)

    def _parts(
        self, candidate: Candidate, requirements: Requirements, reads: bool, answers: bool
    ) -> Iterator[tuple[str, float]]:
        instance = self._instances.get(candidate.backend)
        if instance is None:
            return
        if reads:
            rank = self._rank(instance, requirements)
            yield "load", rank.load
            if rank.locality:
                yield "locality", rank.locality
        if answers:
            yield "decode_load", self._decode_rank(instance, requirements).load

    def _rank_of(self, candidate: Candidate, requirements: Requirements) -> Rank:
        instance = self._instances.get(candidate.backend)
        return Rank(UNKNOWN) if instance is None else self._rank(instance, requirements)

    def _decode_rank_of(self, candidate: Candidate, requirements: Requirements) -> Rank:
        instance = self._instances.get(candidate.backend)
        return Rank(UNKNOWN) if instance is None else self._decode_rank(instance, requirements)

    def _least(self, candidates: Sequence[Candidate], ranks: Sequence[Rank], *, decodes: bool = False) -> Candidate:
        place = min(range(len(ranks)), key=lambda place: (ranks[place], candidates[place].load.pending, place))
        self._check(ranks[place], decodes=decodes)
        return candidates[place]

    def _role(self, candidate: Candidate) -> Role | None:
        """The role of an instance; that of one without figures is configured. ``None`` for one that fails."""
        instance = self._instances.get(candidate.backend)
        if instance is not None:
            return instance.role
        return None if candidate.backend in self._failed else candidate.role

    def _place(self, candidate: Candidate, requirements: Requirements, *, prefill: bool, decode: bool) -> None:
        """Count the request at an instance until the next view."""
        instance = self._instances.get(candidate.backend)
        if instance is not None:
            figures = self._figures(instance, requirements)
            self._instances[candidate.backend] = _with_request(instance, figures, prefill, decode)


def _profiles(settings: ReschedulingSettings) -> tuple[str, str]:
    return settings.ttft_profile, settings.tpot_profile


def _with_request(instance: InstanceView, prompt: PromptFigures, prefill: bool, decode: bool) -> InstanceView:
    """The instance with one more request that its engine does not report yet."""
    before = instance.inflight
    inflight = InFlight(
        num_inflight_dispatch_requests=before.num_inflight_dispatch_requests + prefill,
        num_inflight_dispatch_prefill_requests=before.num_inflight_dispatch_prefill_requests + prefill,
        num_inflight_dispatch_decode_requests=before.num_inflight_dispatch_decode_requests + decode,
        num_uncomputed_tokens_inflight_dispatch_prefill_requests=(
            before.num_uncomputed_tokens_inflight_dispatch_prefill_requests + (prompt.tokens - prompt.cached) * prefill
        ),
        num_tokens_inflight_dispatch_decode_requests=(
            before.num_tokens_inflight_dispatch_decode_requests + prompt.tokens * decode
        ),
    )
    return msgspec.structs.replace(instance, inflight=inflight)
