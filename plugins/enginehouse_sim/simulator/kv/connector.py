"""The KV connector: the scheduler's side of transfers to and from other memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.domain.steps import ModelRunnerOutput, SchedulerOutput


class ConnectorMatch(NamedTuple):
    """The tokens available from outside, after those in the local cache.

    ``num_tokens`` is ``None`` while the answer is not known. ``load_async``: they arrive between steps, not within one.
    """

    num_tokens: int | None
    load_async: bool = False


class KvConnector(ABC):
    """The scheduler's side of a KV connector, with vLLM's life cycle (``KVConnectorBase_V1``)."""

    @abstractmethod
    def get_num_new_matched_tokens(self, request: RequestState, num_computed_tokens: int) -> ConnectorMatch:
        """The tokens available after the first ``num_computed_tokens``. Has no side effect."""

    @abstractmethod
    def update_state_after_alloc(
        self, request: RequestState, block_ids: Sequence[int], num_external_tokens: int
    ) -> None:
        """The request has blocks now; ``num_external_tokens`` are to be loaded into them."""

    @abstractmethod
    def build_connector_metadata(self, scheduler_output: SchedulerOutput) -> Any:
        """The work of the connector's worker side in this step."""

    @abstractmethod
    def request_finished(
        self, request: RequestState, block_ids: Sequence[int]
    ) -> tuple[bool, Mapping[str, Any] | None]:
        """Return whether the blocks must be kept until they are sent, and the client's ``kv_transfer_params``."""

    @abstractmethod
    def update_connector_output(self, model_runner_output: ModelRunnerOutput) -> None:
        """Process the loads and sends that a step completed."""
