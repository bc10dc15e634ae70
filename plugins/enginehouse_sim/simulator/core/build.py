"""Builds an engine core from its settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from enginehouse import CachedBlock, EnginePolicy
from enginehouse_sim.simulator.core.engine_core import EngineCore
from enginehouse_sim.simulator.core.settings import CoreSettings
from enginehouse_sim.simulator.grammar.manager import GrammarManager
from enginehouse_sim.simulator.kv.block_hashes import BlockHasher
from enginehouse_sim.simulator.kv.cache_manager import KvCacheManager
from enginehouse_sim.simulator.kv.disaggregation import Disaggregation, KvAddress
from enginehouse_sim.simulator.kv.events import KvEvent, KvEvents
from enginehouse_sim.simulator.kv.external_store import BlockStore, ExternalStore, StoreSource
from enginehouse_sim.simulator.kv.host_tier import HostTier
from enginehouse_sim.simulator.kv.source import KvSource
from enginehouse_sim.simulator.kv.source_connector import SourceConnector
from enginehouse_sim.simulator.kv.transfer_worker import TransferWorker
from enginehouse_sim.simulator.model.runner import ModelRunner, RunnerSettings
from enginehouse_sim.simulator.model.timing import TimingRunner
from enginehouse_sim.simulator.offload.offloading import Offloading
from enginehouse_sim.simulator.scheduler.policies import checked_index, overrides
from enginehouse_sim.simulator.scheduler.scheduler import BatchScheduler
from enginehouse_sim.simulator.steps.models import ConstantSteps, PolicySteps, SpedUp, StepModel
from enginehouse_sim.simulator.steps.profile import NOTHING_OUTSIDE, OutsideCosts, load_profile
from enginehouse_sim.simulator.steps.transfer import KvShape, KvTransfer


def build_core(
    settings: CoreSettings,
    on_kv_events: Callable[[Sequence[KvEvent]], None] | None = None,
    sources: Sequence[KvSource] = (),
    *,
    kv_address: KvAddress | None = None,
    kv_bandwidth: float = 64e9,
    store: BlockStore | None = None,
    makes_text: bool = True,
    policy: EnginePolicy | None = None,
) -> EngineCore:
    """Build a core. ``on_kv_events`` gets the prefix cache's events with each step.

    ``sources``: sources of keys and values besides the host memory of the settings. ``kv_address``: where other engines
    find the blocks that this one keeps for them, over links of ``kv_bandwidth`` bytes per second. ``store``: the store
    of the settings, if other engines share it. Without ``makes_text``, requests get tokens without a meaning, and no
    answer ends by itself: that is faster, and takes the same virtual time. ``policy``: decides inside the engine; by
    default the one of the settings.

    Raises ``ConfigError`` for a profile that cannot be used.
    """
    constants = settings.constants
    events = KvEvents(on_kv_events) if on_kv_events is not None else None
    hasher = BlockHasher(constants.block_size, is_local=not makes_text)
    kv_cache = KvCacheManager(constants, events, _evict(policy), hasher)
    tier = _host_tier(settings, kv_cache, hasher)
    if store is None and settings.store_blocks:
        store = ExternalStore(settings.store_blocks)
    all_sources = [*sources, *([tier] if tier is not None else ()), *_stored(settings, store, hasher)]
    disaggregation = None
    if kv_address is not None:
        transfer = KvTransfer(kv_shape(settings), kv_bandwidth)
        disaggregation = Disaggregation(kv_address, hasher, transfer, lambda: core.now)
    sent: Callable[[], Sequence[str]] = tuple if disaggregation is None else disaggregation.finished_sending
    connector = _connector(hasher, all_sources, disaggregation, saves=store is not None)
    scheduler = BatchScheduler(constants, kv_cache, connector, GrammarManager() if makes_text else None, policy)
    core = EngineCore(
        scheduler,
        _runner(settings, makes_text),
        _steps(settings, policy),
        transfer_worker=TransferWorker(store, sent) if connector is not None else None,
        before_step=Offloading(scheduler, tier, settings.offload).before_step if tier is not None else None,
    )
    return core


def _runner(settings: CoreSettings, makes_text: bool) -> ModelRunner | TimingRunner:
    constants = settings.constants
    if not makes_text and not constants.use_spec_decode:  # the text decides which drafts are right
        return TimingRunner(constants.token_capacity)
    return ModelRunner(
        RunnerSettings(
            seed=settings.seed,
            mean_length=settings.mean_length,
            num_spec_tokens=constants.num_spec_tokens,
            draft_acceptance=settings.draft_acceptance,
            total_kv_tokens=constants.token_capacity,
        )
    )


def _stored(settings: CoreSettings, store: BlockStore | None, hasher: BlockHasher) -> Sequence[KvSource]:
    if store is None:
        return ()
    return (StoreSource(store, hasher, KvTransfer(kv_shape(settings), settings.store_bandwidth)),)


def _connector(
    hasher: BlockHasher, sources: Sequence[KvSource], disaggregation: Disaggregation | None, *, saves: bool
) -> SourceConnector | None:
    if not sources and disaggregation is None:
        return None
    return SourceConnector(hasher, sources, disaggregation=disaggregation, saves=saves)


def kv_shape(settings: CoreSettings) -> KvShape:
    """The shape of the model's KV cache."""
    return load_profile(settings.profile).kv if settings.profile else KvShape()


def outside_costs(settings: CoreSettings) -> OutsideCosts:
    """The time that requests spend outside of the engine's steps."""
    return load_profile(settings.profile).outside if settings.profile else NOTHING_OUTSIDE


def _host_tier(settings: CoreSettings, kv_cache: KvCacheManager, hasher: BlockHasher) -> HostTier | None:
    if not settings.host_blocks:
        return None
    return HostTier(kv_cache, hasher, settings.host_blocks, KvTransfer(kv_shape(settings), settings.host_bandwidth))


def _steps(settings: CoreSettings, policy: EnginePolicy | None) -> StepModel:
    steps = load_profile(settings.profile).steps if settings.profile else ConstantSteps(settings.ttft, settings.tpot)
    if settings.speedup != 1 or settings.decode_speedup != 1:
        steps = SpedUp(steps, settings.speedup, settings.decode_speedup)
    return PolicySteps(steps, policy) if policy is not None and overrides(policy, "seconds") else steps


def _evict(policy: EnginePolicy | None) -> Callable[[Sequence[CachedBlock]], int] | None:
    """The policy's choice of blocks, if it makes one."""
    if policy is None or not overrides(policy, "evict"):
        return None
    return lambda blocks: checked_index(policy, "evict", policy.evict(blocks), len(blocks))
