"""The parts of an engine's core, each of which can be replaced."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from enginehouse_sim.scheduler.output import EngineCoreOutputs, ModelRunnerOutput, SchedulerOutput
from enginehouse_sim.scheduler.request import RequestState, RequestStatus


class RequestCounts(NamedTuple):
    """How many requests run, wait and are paused."""

    running: int
    waiting: int
    paused: int = 0


class ComputedBlocks(NamedTuple):
    """The longest known beginning of a request: its blocks, and how many tokens they hold."""

    block_ids: Sequence[int]
    num_tokens: int


NOTHING_COMPUTED = ComputedBlocks((), 0)


class ConnectorMatch(NamedTuple):
    """How many tokens can be had from outside behind those computed here.

    ``num_tokens`` is ``None`` when that is not known yet. ``load_async``: they arrive between steps, not within one.
    """

    num_tokens: int | None
    load_async: bool = False


class Scheduler(ABC):
    """Decides step by step. Not thread-safe."""

    @abstractmethod
    def add_request(self, request: RequestState) -> None:
        """Let it wait for its turn."""

    @abstractmethod
    def schedule(self) -> SchedulerOutput:
        """Plan the next step; may be called again before the outcome of the step before is known."""

    @abstractmethod
    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> Mapping[int, EngineCoreOutputs]:
        """Take in what a step made; what each client is to be told, by ``client_index``."""

    @abstractmethod
    def finish_requests(self, request_ids: Sequence[str], status: RequestStatus) -> None:
        """End requests from outside, wherever they are; unknown ones are no error."""

    @abstractmethod
    def get_request_counts(self) -> RequestCounts:
        """How many run, wait and are paused."""

    @abstractmethod
    def has_finished_requests(self) -> bool:
        """Whether requests ended that no step has told the model runner of yet."""

    @abstractmethod
    def reset_prefix_cache(self) -> bool:
        """Forget all cached prefixes; ``False``, and nothing done, while blocks are in use."""

    @abstractmethod
    def shutdown(self) -> None:
        """Let go of everything."""

    @abstractmethod
    def get_kv_connector(self) -> KvConnector | None:
        """The connector, if there is one."""


class KvCacheManager(ABC):
    """Blocks of device memory, who holds them, and what is known to be in them.

    Block 0 is never handed out: ``total_gpu_blocks`` configured are ``total_gpu_blocks - 1`` to use.
    """

    @abstractmethod
    def get_computed_blocks(self, request: RequestState, known: ComputedBlocks = NOTHING_COMPUTED) -> ComputedBlocks:
        """The longest cached beginning of the request, in full blocks, short of its last token. Holds nothing.

        ``known``: an earlier answer whose blocks are held, so that the search goes on behind it.
        """

    @abstractmethod
    def hold_blocks(self, block_ids: Sequence[int]) -> None:
        """Keep blocks that were just found, so that nobody gets them for something else."""

    @abstractmethod
    def release_blocks(self, block_ids: Sequence[int]) -> None:
        """Let go of held blocks, last one first."""

    @abstractmethod
    def allocate_slots(
        self,
        request: RequestState,
        num_new_tokens: int,
        *,
        computed: ComputedBlocks = NOTHING_COMPUTED,
        num_external_tokens: int = 0,
        num_lookahead_tokens: int = 0,
        delay_cache_blocks: bool = False,
        reserve_tokens: int = 0,
        leave_free: int = 0,
    ) -> Sequence[int] | None:
        """Make room for ``num_new_tokens`` behind what is computed, cached (``computed``) or loaded from outside.

        All or nothing: the ids of the blocks that the request got (those of ``computed`` among them), or ``None`` if
        there are too few. ``reserve_tokens``: refuse as well if that many tokens in all would not fit now.
        ``leave_free``: blocks that must remain free. ``delay_cache_blocks``: what is loaded is not there yet, so that
        nobody may find it.

        Not called for a single token behind the first and before the last place of a block that the request has.
        """

    @abstractmethod
    def cache_blocks(self, request: RequestState, num_computed_tokens: int) -> None:
        """The first ``num_computed_tokens`` are in the cache: others may find the full blocks of them."""

    @abstractmethod
    def free(self, request: RequestState) -> None:
        """Give all blocks of the request back, last one first; what is in them can be found until reuse."""

    @abstractmethod
    def get_block_ids(self, request_id: str) -> Sequence[int]:
        """The block table of a request; empty for one that holds nothing."""

    @abstractmethod
    def get_num_common_prefix_blocks(self, request_id: str, num_running_requests: int) -> int:
        """How many leading blocks of this request all running ones share."""

    @abstractmethod
    def freeable_blocks(self, request_id: str) -> int:
        """How many blocks would be free if this request gave its own back: those that nobody else holds."""

    @abstractmethod
    def reset_prefix_cache(self) -> bool:
        """Forget what is cached; ``False``, and nothing done, while blocks are in use."""

    @property
    @abstractmethod
    def num_free_blocks(self) -> int:
        """Blocks that can be had now, cached ones that nobody holds among them."""

    @property
    @abstractmethod
    def usage(self) -> float:
        """The share of blocks that somebody holds, 0 to 1."""

    def publish_events(self) -> None:
        """A step begins: tell whoever listens what came into the cache and went since the one before."""


class KvConnector(ABC):
    """Keys and values that come from, or go to, somewhere else."""

    @property
    def match_version(self) -> int:
        """Another number than before if what was matched earlier may be gone by now."""
        return 0

    @abstractmethod
    def get_num_new_matched_tokens(self, request: RequestState, num_computed_tokens: int) -> ConnectorMatch:
        """What can be had from outside behind the first ``num_computed_tokens``. Has no effect."""

    @abstractmethod
    def update_state_after_alloc(
        self, request: RequestState, block_ids: Sequence[int], num_external_tokens: int
    ) -> None:
        """The request has blocks now, and ``num_external_tokens`` are to be loaded into them."""

    @abstractmethod
    def build_connector_metadata(self, scheduler_output: SchedulerOutput) -> Any:
        """What the model runner's side of the connector has to do in this step."""

    @abstractmethod
    def request_finished(
        self, request: RequestState, block_ids: Sequence[int]
    ) -> tuple[bool, Mapping[str, Any] | None]:
        """Whether its blocks must be kept until they were sent, and what its client is told of the transfer."""

    @abstractmethod
    def update_connector_output(self, model_runner_output: ModelRunnerOutput) -> None:
        """What has arrived and left."""


class StructuredOutputManager(ABC):
    """Grammars, and where in its grammar each request is."""

    @abstractmethod
    def grammar_init(self, request: RequestState) -> None:
        """Begin to compile the request's grammar."""

    @abstractmethod
    def is_ready(self, request: RequestState) -> bool:
        """Whether its grammar is compiled. Raises ``ValueError`` when it never will be."""

    @abstractmethod
    def grammar_bitmask(
        self, requests: Sequence[RequestState], scheduled_spec_tokens: Mapping[str, Sequence[int]]
    ) -> tuple[Mapping[str, int], Sequence[frozenset[int]]]:
        """The tokens allowed next: the first row of each request, and the rows.

        A request with drafts has one row for each of them and one behind.
        """

    @abstractmethod
    def should_advance(self, request: RequestState) -> bool:
        """Whether the request's outputs have to be told to its grammar."""

    @abstractmethod
    def accept_tokens(self, request: RequestState, token_ids: Sequence[int]) -> bool:
        """Advance; ``False`` if the grammar does not allow them."""

    @abstractmethod
    def validate_tokens(self, request: RequestState, token_ids: Sequence[int]) -> Sequence[int]:
        """The drafts, up to the first one that the grammar does not allow."""

    @abstractmethod
    def finished(self, request: RequestState) -> None:
        """Forget the request."""
