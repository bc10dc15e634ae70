"""What users of Llumnix rely on: its defaults and its messages."""

from __future__ import annotations

from typing import Any

import pytest

from enginehouse.rescheduling import ReschedulingSettings
from enginehouse_kit.llumlet import llumlet_pb2
from enginehouse_kit.testing import create
from enginehouse_rescheduling.llumnix_load import LlumnixLoad


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("policies", ["decode_load", "prefill_failover", "decode_failover", "neutral_failover"]),
        ("interval", 0.5),
        ("decode_load_metric", "kv_cache_usage_ratio_projected"),
        ("prefill_load_metric", "kv_cache_usage_ratio_projected"),
        ("neutral_load_metric", "kv_cache_usage_ratio_projected"),
        ("decode_load_threshold", 1.0),
        ("neutral_load_threshold", 1.0),
        ("load_balance_threshold", 0.0),
        ("load_balance_scope", "cluster"),
        ("req_select_rule", "TOKEN"),
        ("req_select_order", "SR"),
        ("req_select_value", 1024),
        ("failover_domain", "instance"),
        ("instance_staleness", 60),
        ("migrate_timeout", 5),
        ("adaptive_pd", False),
        ("ttft_slo", 6),
        ("tpot_slo", 0.05),
        ("ttft_slo_dispatch_threshold", 0.85),
        ("tpot_slo_dispatch_threshold", 0.85),
        ("tpot_migrate_out_ceil_threshold", 0.95),
        ("tpot_migrate_out_floor_threshold", 0.60),
    ],
)
def test_the_defaults_of_rescheduling(key: str, value: Any) -> None:
    assert getattr(ReschedulingSettings(), key) == value


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("neutral_metric", "all_prefills_tokens_num"),
        ("neutral_threshold", 8192),
        ("prefill_metric", "all_prefills_tokens_num"),
        ("prefill_threshold", 2048),
        ("decode_metric", "kv_cache_usage_ratio_projected"),
        ("decode_threshold", 1.0),
        ("cache_aware", False),
        ("cache_aware_min_tokens", 1024),
        ("cache_locality_metric", "cache_aware_all_prefills_tokens_num"),
        ("predict_progress", False),
        ("progress_samples", 20),
    ],
)
def test_the_defaults_of_dispatch(key: str, value: Any) -> None:
    assert getattr(LlumnixLoad.Config(), key) == value


def test_the_default_policies_can_be_built() -> None:
    policies = ReschedulingSettings().policies
    made = [type(create("rescheduling_policy", each)).__name__ for each in policies]
    assert made == ["DecodeLoad", "PrefillFailover", "DecodeFailover", "NeutralFailover"]


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        (
            "MigrateRequest",
            {
                "src_engine_id": 1,
                "dst_engine_id": 2,
                "dst_engine_ip": 3,
                "dst_engine_port": 4,
                "migration_type": 5,
                "migration_req_policy": 6,
                "num_reqs": 7,
                "num_tokens": 8,
                "kv_cache_usage_ratio": 9,
                "trigger_policy": 10,
                "request_ids": 11,
            },
        ),
        ("MigrateResponse", {"success": 1, "message": 2, "request_ids": 3}),
        ("AbortRequests", {"request_ids": 1}),
        ("AbortResponse", {"success": 1, "message": 2}),
    ],
)
def test_the_fields_of_a_message_have_their_numbers(message: str, fields: dict[str, int]) -> None:
    assert {each.name: each.number for each in getattr(llumlet_pb2, message).DESCRIPTOR.fields} == fields


def test_the_service_has_its_name() -> None:
    service = llumlet_pb2.DESCRIPTOR.services_by_name["Llumlet"]
    assert service.full_name == "llumlet.Llumlet"
    assert [each.name for each in service.methods] == ["Migrate", "Abort"]
