"""All that the scheduler remembers from step to step."""

from __future__ import annotations

from enginehouse_sim.scheduler.constants import SchedulerConstants
from enginehouse_sim.scheduler.encoder_cache import EncoderCache
from enginehouse_sim.scheduler.endings import Endings
from enginehouse_sim.scheduler.interfaces import KvCacheManager, KvConnector, StructuredOutputManager
from enginehouse_sim.scheduler.output import SchedulerOutput
from enginehouse_sim.scheduler.request import RequestState
from enginehouse_sim.scheduler.staging import Staging
from enginehouse_sim.scheduler.totals import Totals
from enginehouse_sim.scheduler.transfers import Transfers
from enginehouse_sim.scheduler.waiting_queue import waiting_queue


class SchedulerState:
    """Each request is in ``requests``, and in one of ``running`` (in order of admission), ``staging`` and ``paused``.

    ``in_flight``: the steps whose outcome is not known yet. ``max_newcomers``: how many requests that have made
    nothing yet may be admitted in a step; ``None`` is any number.
    """

    def __init__(
        self,
        constants: SchedulerConstants,
        kv_cache: KvCacheManager,
        connector: KvConnector | None = None,
        grammars: StructuredOutputManager | None = None,
    ) -> None:
        self.constants = constants
        self.kv_cache = kv_cache
        self.connector = connector
        self.grammars = grammars
        self.requests: dict[str, RequestState] = {}
        self.running: list[RequestState] = []
        self.paused: dict[str, RequestState] = {}
        self.staging = Staging(
            waiting_queue(constants.policy),
            kv_cache,
            connector,
            max_pinned_blocks=int(constants.staging_block_share * constants.total_gpu_blocks),
            depth=constants.staging_depth,
        )
        self.encoder_cache = EncoderCache(constants.encoder_cache_size)
        self.transfers = Transfers(kv_cache)
        self.endings = Endings(constants.include_finished_set)
        self.totals = Totals()
        self.in_flight: dict[int, SchedulerOutput] = {}
        self.next_step = 0
        self.max_newcomers: int | None = None

    def last_step_in_flight(self, request_id: str) -> int:
        """The latest step under way that computes for the request; -1 for none."""
        steps = (step for step, output in self.in_flight.items() if request_id in output.num_scheduled_tokens)
        return max(steps, default=-1)

    def take_blocks(self, request: RequestState) -> None:
        """The request loses its blocks, and with them all that was computed; its tokens stay."""
        self.kv_cache.free(request)
        self.encoder_cache.release_all(request)
        request.num_computed_tokens = 0
        request.num_output_placeholders = 0
        request.spec_token_ids = []
        request.quiet_until = 0
        request.stale_step = self.last_step_in_flight(request.request_id)
