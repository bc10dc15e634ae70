"""Strategies: pick the candidate that serves a request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from enginehouse.config.scheduling import ReschedulingSettings
from enginehouse.domain.explanation import PrefixFacts, Verdict
from enginehouse.domain.replica import Candidate
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.tokens import Tokens
from enginehouse.interfaces.engine_caches import EngineCaches
from enginehouse.interfaces.extractors import Extractor
from enginehouse.interfaces.scorers import WeightedScorer

MOST_REMEMBERED = 16 << 20
"""In bytes: what one strategy may have kept."""


class Placement:
    """One request at the replica that was picked for it, as a strategy that learns follows it.

    The gateway calls the methods in this order, each at most once; after ``queued`` always ``ended``. A request that is
    sent elsewhere or refused after all is never queued. A request that is sent again has a new placement.
    """

    prefix: PrefixFacts | None = None
    """What the replica had of the prompt when the request was placed, if the strategy knows."""

    def queued(self) -> None:
        """The request begins to wait for the replica. It may be granted at once."""

    def granted(self) -> None:
        """The replica has a slot for the request, which is sent now."""

    def first_byte(self) -> None:
        """The body of the answer begins. Not called for one with an error status."""

    def counted(self, tokens: Tokens) -> None:
        """The answer is complete and good, and had these ``tokens``.

        Not called if the engine counted none and the answer is not a stream, or if another engine gave a part of it.
        """

    def ended(self) -> None:
        """The request has left the replica: it is answered, failed, withdrawn or moved."""


class Strategy(ABC):
    """Picks one candidate. May keep state, such as a rotation or a random source, which ``placed`` moves on.

    The gateway picks more often than it sends requests: to explain, to drain, to hedge, to decide about a retry, and
    for requests that wait. So ``pick`` and ``pick_decode`` must change nothing that another pick reads; ``placed`` may.

    Raise a ``RequestError`` to refuse the request; any other exception becomes ``plugin_failed`` (500).
    """

    reads_session: ClassVar[bool] = False
    """Whether it reads ``Requirements.session``, which is not looked for otherwise."""
    binds_late: ClassVar[bool] = False
    """Whether a request waits for its model, not for a replica, while the picked one has no free slot.

    The gateway then calls ``pick`` again whenever a slot may be free, with the requests ahead counted as pending where
    they were picked for."""

    def use(self, scorers: Sequence[WeightedScorer]) -> None:
        """Receive the configured scorers, once, at start. The gateway checks the figures that they return."""

    def start(self, clock: Callable[[], float]) -> None:
        """Receive the gateway's clock, once, at start. It returns seconds; in a replay they are virtual."""

    def use_caches(self, caches: EngineCaches) -> None:
        """Receive the prefix caches of engines that publish events, once, at start, if any engine does."""

    def use_waiting(self, waiting: Mapping[str, int]) -> None:
        """Receive how many requests wait for each model, once, at start.

        The figures change as requests come and go. Models that none waits for are left out. With workers, those of the
        others count too, of at most six models each; a model that only they wait for has a count, but is not listed.
        """

    def extractors(self) -> Sequence[Extractor]:
        """Return extractors for this strategy, which run after all installed ones. Called once, at start."""
        return ()

    def on_view(self, view: Any, settings: ReschedulingSettings) -> None:
        """Receive the figures of all engines, in every round of rescheduling, if ``rescheduling.enabled`` is set.

        ``view``: what the rescheduling service publishes, the bundled one a ``ClusterView`` of the kit.
        """

    @abstractmethod
    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        """Return one of ``candidates``, which are never empty."""

    def placed(self, requirements: Requirements, chosen: Candidate) -> Placement | None:
        """Note that a request goes to ``chosen``; return what follows it there, or ``None``.

        The gateway calls this once for every pick that it carries out, before the request is sent, and only if it is
        overridden.
        """
        return None

    def placed_pair(self, requirements: Requirements, prefill: Candidate, chosen: Candidate) -> Placement | None:
        """Note, in place of ``placed``, that ``prefill`` reads the prompt of a request and ``chosen`` answers it."""
        self.placed(requirements, prefill)
        return self.placed(requirements, chosen)

    def pick_decode(
        self, requirements: Requirements, candidates: Sequence[Candidate], prefill: Candidate
    ) -> Candidate | None:
        """Return the candidate that answers after ``prefill``, which ``pick`` returned, has read the prompt.

        ``None`` or ``prefill`` means that the same one does both. The gateway calls this method only if it is
        overridden.
        """
        return None

    def prefix(self, requirements: Requirements, chosen: Candidate) -> PrefixFacts | None:
        """Return what ``chosen`` has of the prompt now, for explanations; ``None`` if the strategy does not know."""
        return None

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        """Return a verdict on each candidate, in their order, without changing any state."""
        return [Verdict()] * len(candidates)

    def learned(self) -> Mapping[str, Mapping[str, float]]:
        """Return what it has learned of each backend, figures by name. ``/api/status`` shows them."""
        return {}

    def news(self) -> bytes:
        """Return what it has learned since the last call, for the same strategy in other workers; empty for nothing.

        Called ten times a second in a gateway with several workers, else never. Keep it small: it goes to all of them.
        """
        return b""

    def hear(self, news: bytes) -> None:
        """Take what another worker returned from ``news``."""

    def remembered(self) -> bytes:
        """Return what another instance of this strategy should know; empty for nothing. At most 16 MiB are kept.

        The gateway keeps it through a reload, a take-over and a restart. It asks every minute and at its end, on its
        event loop.
        """
        return b""

    def recall(self, remembered: bytes) -> None:
        """Take what another instance returned from ``remembered``: another version's, perhaps, in another process.

        Called after ``start``, before the first request if there is something. Raise any exception if it cannot be
        used, before anything is changed: the gateway logs it, and the strategy learns from scratch.
        """

    def score(self, requirements: Requirements, candidates: Sequence[Candidate], chosen: Candidate) -> float | None:
        """Return the score of ``chosen``, which ``pick`` has just returned; ``None`` if there is none. For traces.

        Override it if a single score costs less than all verdicts.
        """
        verdicts = self.explain(requirements, candidates)
        return next(verdict.score for each, verdict in zip(candidates, verdicts, strict=True) if each is chosen)
