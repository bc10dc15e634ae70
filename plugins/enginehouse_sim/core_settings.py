"""What an engine's core was told at its launch, and the core made of it."""

from __future__ import annotations

import msgspec

from enginehouse_sim.core import EngineCore, StepModel
from enginehouse_sim.grammar.manager import GrammarManager
from enginehouse_sim.kv.cache_manager import PagedKvCacheManager
from enginehouse_sim.runner import ModelRunner, RunnerSettings
from enginehouse_sim.scheduler.constants import SchedulerConstants
from enginehouse_sim.scheduler.scheduler import BatchScheduler
from enginehouse_sim.steps.models import ConstantSteps, SpedUp
from enginehouse_sim.steps.profile import load_profile


class CoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits, speed and character of an engine.

    ``profile``: the name or file of a speed profile; empty: ``ttft`` seconds until a request's first token, and ``tpot``
    from one to the next. ``speedup`` divides all times, ``decode_speedup`` those of decodes as well; 0 is no time at all.
    ``seed``: what all text is made from. ``mean_length``: tokens after which an answer ends by itself, on average;
    ``None`` is never. ``draft_acceptance``: the chance of a draft to be right.
    """

    constants: SchedulerConstants = SchedulerConstants()
    profile: str = ""
    ttft: float = 0.05
    tpot: float = 0.01
    speedup: float = 1.0
    decode_speedup: float = 1.0
    seed: int = 0
    mean_length: int | None = None
    draft_acceptance: float = 0.7


def build_core(settings: CoreSettings) -> EngineCore:
    """A core as the settings say. Raises ``ConfigError`` for a profile that cannot be used."""
    constants = settings.constants
    runner = RunnerSettings(
        seed=settings.seed,
        mean_length=settings.mean_length,
        num_spec_tokens=constants.num_spec_tokens,
        draft_acceptance=settings.draft_acceptance,
        total_kv_tokens=constants.token_capacity,
    )
    scheduler = BatchScheduler(constants, PagedKvCacheManager(constants), grammars=GrammarManager())
    return EngineCore(scheduler, ModelRunner(runner), _steps(settings))


def _steps(settings: CoreSettings) -> StepModel:
    steps = load_profile(settings.profile).steps if settings.profile else ConstantSteps(settings.ttft, settings.tpot)
    if settings.speedup == settings.decode_speedup == 1:
        return steps
    return SpedUp(steps, settings.speedup, settings.decode_speedup)
