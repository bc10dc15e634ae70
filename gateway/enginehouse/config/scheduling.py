"""The tables [scheduling] and [rescheduling] of the configuration."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import field

from enginehouse.config.section import Count, Duration, Period, Positive, ProgressForm, Section, about

STATIC_FILES = r"\.(css|gif|ico|jpe?g|js|json|map|png|svg|txt|woff2?)$"
"""The files of an engine's page."""


class GroupSettings(Section, frozen=True):
    """A group of models for the `group` swapper."""

    members: Annotated[list[str], about("models of the group")]
    swap: Annotated[bool, about("run one member at a time")] = True
    exclusive: Annotated[bool, about("loading a member stops the models of other groups")] = True
    persistent: Annotated[bool, about("other groups never stop its members")] = False


class MatrixSettings(Section, frozen=True):
    """The combinations of models that may run together, for the `matrix` swapper."""

    vars: Annotated[dict[str, str], about("short names of models")] = {}
    costs: Annotated[dict[str, Positive], about("cost of stopping a model; 1 by default")] = {}
    sets: Annotated[dict[str, str], about("allowed combinations, best first: `(g | q) & v`")] = {}


class SchedulingSettings(Section, frozen=True):
    """How requests wait for models, and how models are loaded."""

    scheduler: Annotated[str, about("`fifo` or a plugin's")] = "fifo"
    swapper: Annotated[str, about("`group`, `matrix`, `memory` or a plugin's")] = "group"
    scaler: Annotated[
        str, about("decides for models with `replicas = { min, max }`: `expected_wait` or a plugin's")
    ] = "expected_wait"
    queue_timeout: Annotated[Duration, about("longest time that a request waits for its model; 0 for no limit")] = 600
    max_queue: Annotated[Count, about("most requests waiting on one host; 0 for no limit")] = 1000
    min_residency: Annotated[Duration, about("time before a loaded model may be evicted")] = 0
    max_wait: Annotated[
        Duration,
        about("after this time, a waiting request holds back newer requests for the models that block it; 0 for never"),
    ] = 60
    cancel_loads: Annotated[
        Literal["wanted", "always", "never"],
        about(
            "when a load that no request waits for any more is cancelled: `wanted`, if another model needs its memory; "
            "`always`, at once; or `never`"
        ),
    ] = "wanted"
    never_load_for: Annotated[
        list[str],
        about(
            "regular expressions of paths below `/upstream/MODEL` that never load a model: if it is not loaded, "
            "the answer is 409, so that an open page of an engine causes no swap"
        ),
    ] = field(default_factory=lambda: [STATIC_FILES])
    progress: Annotated[ProgressForm, about("form of the progress that waiting streams get")] = "off"
    progress_patience: Annotated[
        Duration, about("wait before the first report; an error before that keeps its HTTP status")
    ] = 5
    priorities: Annotated[dict[str, int], about("queue priorities of models; higher first")] = {}
    groups: Annotated[
        dict[str, GroupSettings],
        about("groups of the `group` swapper; by default, all models of a host form one group"),
    ] = {}
    matrix: Annotated[MatrixSettings, about("rules of the `matrix` swapper")] = MatrixSettings()


class ReschedulingSettings(Section, frozen=True):
    """How live requests move between instances. Without `enabled`, no other key has an effect."""

    enabled: Annotated[bool, about("move live requests")] = False
    mode: Annotated[
        Literal["colocated", "standalone"], about("plan in the gateway, or in `enginehouse reschedule`")
    ] = "colocated"
    interval: Annotated[Period, about("time between two rounds")] = 0.5
    policies: Annotated[list[str], about("policies to run, in order")] = field(
        default_factory=lambda: ["decode_load", "prefill_failover", "decode_failover", "neutral_failover"]
    )
    migrators: Annotated[list[str], about("migrators; the first that can move a request does so")] = field(
        default_factory=lambda: ["llumlet", "replay"]
    )
    decode_load_metric: Annotated[str, about("figure that measures the load of a decode instance")] = (
        "kv_cache_usage_ratio_projected"
    )
    neutral_load_metric: Annotated[str, about("figure that measures the load of a neutral instance")] = (
        "kv_cache_usage_ratio_projected"
    )
    prefill_load_metric: Annotated[str, about("figure that measures the load of a prefill instance")] = (
        "kv_cache_usage_ratio_projected"
    )
    decode_load_threshold: Annotated[float, about("load above which requests move away from a decode instance")] = 1.0
    neutral_load_threshold: Annotated[float, about("load above which requests move away from a neutral instance")] = 1.0
    load_balance_threshold: Annotated[float, about("smallest load difference that justifies a move")] = 0.0
    load_balance_scope: Annotated[
        Literal["cluster", "unit"], about("instances that a request may move to: all, or those of the same unit")
    ] = "cluster"
    failover_domain: Annotated[
        Literal["instance", "node", "instance-unit", "node-unit"],
        about(
            "instances that count as failed with a failed one: only that one, or those of its `node`; "
            "`-unit` adds, with data parallelism, those of their units"
        ),
    ] = "instance"
    instance_staleness: Annotated[Duration, about("age above which the figures of an instance are ignored")] = 60
    req_select_rule: Annotated[
        Literal["NUM_REQ", "TOKEN", "RATIO"],
        about("unit of `req_select_value`: requests, tokens, or a share of the tokens"),
    ] = "TOKEN"
    req_select_order: Annotated[
        Literal["LCR", "FCR", "LR", "SR", "FCW", "FCWSR"],
        about(
            "requests that move first: the last or first to come of the running ones (`LCR`, `FCR`), the "
            "longest or shortest of them (`LR`, `SR`), the first of the waiting ones (`FCW`), or these and then the "
            "shortest running ones (`FCWSR`)"
        ),
    ] = "SR"
    req_select_value: Annotated[float, about("amount to move, in the unit of `req_select_rule`")] = 1024
    adaptive_pd: Annotated[bool, about("let instances change between prefill and decode")] = False
    ttft_slo: Annotated[Duration, about("target for the time to first token")] = 6
    tpot_slo: Annotated[Duration, about("target for the time per output token")] = 0.05
    ttft_slo_dispatch_threshold: Annotated[
        float, about("share of `ttft_slo` up to which an instance accepts requests")
    ] = 0.85
    tpot_slo_dispatch_threshold: Annotated[
        float, about("share of `tpot_slo` up to which an instance accepts requests")
    ] = 0.85
    tpot_migrate_out_ceil_threshold: Annotated[
        float, about("share of `tpot_slo` above which requests move away from an instance")
    ] = 0.95
    tpot_migrate_out_floor_threshold: Annotated[
        float, about("share of `tpot_slo` below which an instance gives its requests away")
    ] = 0.60
    ttft_profile: Annotated[str, about("file of measured times to first token; bundled by default")] = ""
    tpot_profile: Annotated[str, about("file of measured times per output token; bundled by default")] = ""
    migrate_timeout: Annotated[Period, about("time limit of one migration")] = 5
    moves_at_once: Annotated[Positive, about("most streams that a drain moves together")] = 8
    cool_down: Annotated[Duration, about("pause of an instance after a migration; 0 for none")] = 2
