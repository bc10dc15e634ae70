"""Moves live requests between engines: rounds, Llumnix's seven policies and ``kv_projection``, and two migrators."""

from __future__ import annotations

from enginehouse import Register, Service, Strategy, hookimpl
from enginehouse_kit.rescheduling import Migrator, ReschedulingPolicy
from enginehouse_rescheduling.llumnix_load import LlumnixLoad
from enginehouse_rescheduling.migrators import Llumlet, Replay
from enginehouse_rescheduling.policies.binpacking import BinpackingConsolidation, BinpackingMitigation
from enginehouse_rescheduling.policies.failover import DecodeFailover, NeutralFailover, PrefillFailover
from enginehouse_rescheduling.policies.kv_projection import KvProjection
from enginehouse_rescheduling.policies.load import DecodeLoad, NeutralLoad
from enginehouse_rescheduling.service import Rescheduling
from enginehouse_rescheduling.slo import Slo


@hookimpl
def register_rescheduling_policies(register: Register[ReschedulingPolicy]) -> None:
    """Register the policies: ``rescheduling.policies`` says which run, in which order."""
    register("decode_load", DecodeLoad)
    register("neutral_load", NeutralLoad)
    register("prefill_failover", PrefillFailover)
    register("decode_failover", DecodeFailover)
    register("neutral_failover", NeutralFailover)
    register("binpacking_mitigation", BinpackingMitigation)
    register("binpacking_consolidation", BinpackingConsolidation)
    register("kv_projection", KvProjection)


@hookimpl
def register_migrators(register: Register[Migrator]) -> None:
    """Register the migrators: the first of ``rescheduling.migrators`` that can move a request does so."""
    register("llumlet", Llumlet)
    register("replay", Replay)


@hookimpl
def register_strategies(register: Register[Strategy]) -> None:
    """Register the strategies that route by engines' figures, for ``routing.strategy``."""
    register("llumnix_load", LlumnixLoad)
    register("slo", Slo)


@hookimpl
def register_services(register: Register[Service]) -> None:
    """Register the rounds."""
    register("rescheduling", Rescheduling)
