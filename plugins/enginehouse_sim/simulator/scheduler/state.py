"""The state that the scheduler keeps from step to step."""

from __future__ import annotations

from enginehouse import EnginePolicy
from enginehouse_sim.simulator.domain.constants import SchedulerConstants
from enginehouse_sim.simulator.domain.outputs import EngineCoreOutput, SchedulerTotals
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.domain.steps import SchedulerOutput
from enginehouse_sim.simulator.grammar.manager import GrammarManager
from enginehouse_sim.simulator.kv.cache_manager import KvCacheManager
from enginehouse_sim.simulator.kv.connector import KvConnector
from enginehouse_sim.simulator.scheduler.encoder_cache import EncoderCache
from enginehouse_sim.simulator.scheduler.kv_transfers import KvTransfers
from enginehouse_sim.simulator.scheduler.policies import bundled_policy, overrides
from enginehouse_sim.simulator.scheduler.waiting_requests import WaitingRequests


class SchedulerState:
    """Each request is in ``requests``, and in one of ``running`` (in order of admission), ``waiting`` and ``paused``.

    ``plans_ahead``: as in ``SchedulerConstants``. ``tracks_prefills``: whether each step updates ``is_prefill_chunk``.
    ``finished``: the requests that have ended since the last plan, for the model runner. ``finished_outputs``: outputs
    from outside of a step. ``in_flight``: the steps whose results are not known yet.
    ``max_new_requests``: the most requests without outputs to admit in a step; ``None``: any number. ``policy``: by
    default the one of ``constants``. ``chooses_victims``: whether the policy does.
    """

    def __init__(
        self,
        constants: SchedulerConstants,
        kv_cache: KvCacheManager,
        connector: KvConnector | None = None,
        grammars: GrammarManager | None = None,
        policy: EnginePolicy | None = None,
    ) -> None:
        self.constants = constants
        self.policy = policy or bundled_policy(constants.policy)
        self.chooses_victims = overrides(self.policy, "victim")
        self.kv_cache = kv_cache
        self.connector = connector
        self.grammars = grammars
        self.plans_ahead = constants.plans_ahead
        self.tracks_prefills = connector is not None or constants.use_spec_decode
        self.requests: dict[str, RequestState] = {}
        self.running: list[RequestState] = []
        self.paused: dict[str, RequestState] = {}
        self.waiting = WaitingRequests(self.policy)
        self.encoder_cache = EncoderCache(constants.encoder_cache_size)
        self.transfers = KvTransfers(kv_cache)
        self.finished: list[str] = []
        self.finished_outputs: list[EngineCoreOutput] = []
        self.totals = SchedulerTotals()
        self.in_flight: dict[int, SchedulerOutput] = {}
        self.next_step = 0
        self.max_new_requests: int | None = None

    def last_step_in_flight(self, request_id: str) -> int:
        """The latest step in flight that computes for the request; -1 for none."""
        steps = (step for step, output in self.in_flight.items() if request_id in output.num_scheduled_tokens)
        return max(steps, default=-1)

    def free_blocks(self, request: RequestState) -> None:
        """Free the request's blocks, and reset its counts of computed tokens. The tokens stay."""
        self.kv_cache.free(request)
        self.encoder_cache.release_all(request)
        request.num_computed_tokens = 0
        request.num_output_placeholders = 0
        request.spec_token_ids = []
        request.fast_path_until = 0
        request.stale_step = self.last_step_in_flight(request.request_id)
