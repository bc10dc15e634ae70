"""Builds an engine core from its settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from enginehouse_sim.options import CoreSettings
from enginehouse_sim.simulator.core.engine_core import EngineCore
from enginehouse_sim.simulator.core.offloading import HostTier, Offloading
from enginehouse_sim.simulator.kv.block_pool import BlockHasher
from enginehouse_sim.simulator.kv.cache_manager import KvCacheManager
from enginehouse_sim.simulator.kv.connector import HandedOverPrompts, KvConnector, KvSource, TransferWorker
from enginehouse_sim.simulator.kv.events import KvEvent, KvEvents
from enginehouse_sim.simulator.model.grammar import GrammarManager
from enginehouse_sim.simulator.model.runner import ModelRunner
from enginehouse_sim.simulator.model.timing import TimingRunner
from enginehouse_sim.simulator.scheduler.scheduler import BatchScheduler
from enginehouse_sim.simulator.steps.costs import KvShape, KvTransfer
from enginehouse_sim.simulator.steps.models import ConstantSteps
from enginehouse_sim.simulator.steps.profile import NOTHING_OUTSIDE, OutsideCosts, load_profile


def build_core(
    settings: CoreSettings,
    on_kv_events: Callable[[Sequence[KvEvent]], None] | None = None,
    sources: Sequence[KvSource] = (),
    *,
    kv_bandwidth: float | None = None,
    makes_text: bool = True,
) -> EngineCore:
    """Build a core. ``on_kv_events`` gets the prefix cache's events with each step.

    ``sources``: sources of keys and values besides the host memory of the settings. ``kv_bandwidth``: bytes per second
    of the prompts that other engines hand over; ``None``: they hand none over. Without ``makes_text``, requests get
    tokens without a meaning, and no answer ends by itself: that is faster, and takes the same virtual time.

    Raises ``ConfigError`` for a profile that cannot be used.
    """
    constants = settings.constants
    events = KvEvents(on_kv_events) if on_kv_events is not None else None
    hasher = BlockHasher(constants.block_size, is_local=not makes_text)
    kv_cache = KvCacheManager(constants, events, hasher)
    tier = None
    if settings.host_blocks:
        link = KvTransfer(kv_shape(settings), settings.host_bandwidth)
        tier = HostTier(kv_cache, hasher, settings.host_blocks, link)
        sources = [*sources, tier]
    if kv_bandwidth is not None:
        sources = [HandedOverPrompts(KvTransfer(kv_shape(settings), kv_bandwidth)), *sources]
    worker = TransferWorker() if sources else None
    connector = KvConnector(sources) if worker is not None else None
    scheduler = BatchScheduler(constants, kv_cache, connector, GrammarManager() if makes_text else None)
    # The text decides which drafts are right.
    makes_tokens = makes_text or constants.use_spec_decode
    runner = ModelRunner(settings) if makes_tokens else TimingRunner(constants.token_capacity)
    steps = load_profile(settings.profile).steps if settings.profile else ConstantSteps(settings.ttft, settings.tpot)
    return EngineCore(
        scheduler,
        runner,
        steps,
        pace=1 / settings.speedup if settings.speedup else 0.0,
        transfer_worker=worker,
        before_step=Offloading(scheduler, tier, settings.offload).before_step if tier is not None else None,
    )


def kv_shape(settings: CoreSettings) -> KvShape:
    """The shape of the model's KV cache."""
    return load_profile(settings.profile).kv if settings.profile else KvShape()


def outside_costs(settings: CoreSettings) -> OutsideCosts:
    """The time that requests spend outside of the engine's steps."""
    return load_profile(settings.profile).outside if settings.profile else NOTHING_OUTSIDE
