"""From settings to a core that runs."""

from __future__ import annotations

from enginehouse_sim.core import EngineCore, StepModel
from enginehouse_sim.core_settings import CoreSettings
from enginehouse_sim.grammar.manager import GrammarManager
from enginehouse_sim.kv.cache_manager import PagedKvCacheManager
from enginehouse_sim.runner import ModelRunner, RunnerSettings
from enginehouse_sim.scheduler.scheduler import BatchScheduler
from enginehouse_sim.steps.models import ConstantSteps, SpedUp
from enginehouse_sim.steps.profile import load_profile


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
