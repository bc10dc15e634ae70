"""The bundled rescheduling policies: Llumnix's seven, and ``kv_projection``."""

from __future__ import annotations

from enginehouse import Register, ReschedulingPolicy, hookimpl
from enginehouse_rescheduling.policies.binpacking import BinpackingConsolidation, BinpackingMitigation
from enginehouse_rescheduling.policies.failover import DecodeFailover, NeutralFailover, PrefillFailover
from enginehouse_rescheduling.policies.kv_projection import KvProjection
from enginehouse_rescheduling.policies.load import DecodeLoad, NeutralLoad


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
