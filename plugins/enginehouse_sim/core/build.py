"""From settings to a core that runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from enginehouse_sim.core.engine_core import EngineCore, StepModel
from enginehouse_sim.core.settings import CoreSettings
from enginehouse_sim.grammar.manager import GrammarManager
from enginehouse_sim.kv.block_hashes import BlockHasher
from enginehouse_sim.kv.cache_manager import PagedKvCacheManager
from enginehouse_sim.kv.connector import SimKvConnector
from enginehouse_sim.kv.events import KvEvent, KvEvents
from enginehouse_sim.kv.host_tier import HostTier
from enginehouse_sim.kv.source import KvSource
from enginehouse_sim.kv.transfer_worker import TransferWorker
from enginehouse_sim.model.runner import ModelRunner, RunnerSettings
from enginehouse_sim.offload.offloading import Offloading
from enginehouse_sim.scheduler.scheduler import BatchScheduler
from enginehouse_sim.steps.models import ConstantSteps, SpedUp
from enginehouse_sim.steps.profile import load_profile
from enginehouse_sim.steps.transfer import KvShape, KvTransfer


def build_core(
    settings: CoreSettings,
    on_kv_events: Callable[[Sequence[KvEvent]], None] | None = None,
    sources: Sequence[KvSource] = (),
) -> EngineCore:
    """A core as the settings say; ``on_kv_events`` is told with each step what its prefix cache gained and lost.

    ``sources``: places from which keys and values can be had, besides the host memory that the settings give it.

    Raises ``ConfigError`` for a profile that cannot be used.
    """
    constants = settings.constants
    runner = RunnerSettings(
        seed=settings.seed,
        mean_length=settings.mean_length,
        num_spec_tokens=constants.num_spec_tokens,
        draft_acceptance=settings.draft_acceptance,
        total_kv_tokens=constants.token_capacity,
    )
    kv_cache = PagedKvCacheManager(constants, KvEvents(on_kv_events) if on_kv_events is not None else None)
    hasher = BlockHasher(constants.block_size)
    tier = _host_tier(settings, kv_cache, hasher)
    places = [*sources, tier] if tier is not None else sources
    connector = SimKvConnector(hasher, places) if places else None
    scheduler = BatchScheduler(constants, kv_cache, connector, GrammarManager())
    return EngineCore(
        scheduler,
        ModelRunner(runner),
        _steps(settings),
        mover=TransferWorker() if connector is not None else None,
        before_step=Offloading(scheduler, tier, settings.offload).before_step if tier is not None else None,
    )


def kv_shape(settings: CoreSettings) -> KvShape:
    """The size of a token's keys and values."""
    return load_profile(settings.profile).kv if settings.profile else KvShape()


def _host_tier(settings: CoreSettings, kv_cache: PagedKvCacheManager, hasher: BlockHasher) -> HostTier | None:
    if not settings.host_blocks:
        return None
    return HostTier(kv_cache, hasher, settings.host_blocks, KvTransfer(kv_shape(settings), settings.host_bandwidth))


def _steps(settings: CoreSettings) -> StepModel:
    steps = load_profile(settings.profile).steps if settings.profile else ConstantSteps(settings.ttft, settings.tpot)
    if settings.speedup == settings.decode_speedup == 1:
        return steps
    return SpedUp(steps, settings.speedup, settings.decode_speedup)
