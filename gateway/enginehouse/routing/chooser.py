"""The configured strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy

from enginehouse.domain.errors import PluginFailed, RequestError
from enginehouse.domain.replica import Candidate
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.route import Verdict
from enginehouse.interfaces.strategies import Strategy
from enginehouse.routing.failures import failures_of, plugin_failed


class Chooser:
    """Runs the strategy. One that raises anything but a ``RequestError`` becomes a ``PluginFailed``."""

    def __init__(self, name: str, strategy: Strategy) -> None:
        self._name = name
        self._strategy = strategy
        self._pick = strategy.pick

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        """The one of ``candidates`` that serves."""
        try:
            return self._pick(requirements, candidates)
        except RequestError:
            raise
        except Exception as error:
            raise plugin_failed("strategy", self._name, error) from error

    def rehearse(
        self, requirements: Requirements, candidates: Sequence[Candidate]
    ) -> tuple[Candidate, Mapping[str, Verdict]]:
        """What ``pick`` would return now, and what the strategy thinks of each candidate, by replica.

        The pick is made by a copy, so that a rotation or a random source stays where it is.
        """
        with failures_of("strategy", self._name):
            verdicts = self._strategy.explain(requirements, candidates)
            by_replica = {each.replica: verdict for each, verdict in zip(candidates, verdicts, strict=True)}
            return self._copy().pick(requirements, candidates), by_replica

    def _copy(self) -> Strategy:
        try:
            return deepcopy(self._strategy)
        except Exception as error:
            text = f"The strategy '{self._name}' cannot be explained: it cannot be copied, give it a __deepcopy__"
            raise PluginFailed(text, details={"kind": "strategy", "plugin": self._name}) from error
