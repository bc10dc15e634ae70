"""The flags of a simulated engine, which are the options of a launched one too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, defstruct

from enginehouse.drivers import EngineOptions, LaunchSpec
from enginehouse_kit.drivers import option_arguments

_Order = Literal["fewest_blocks", "most_remaining", "least_urgent"]


class CoreFlag(NamedTuple):
    """A flag of the engine core. Numbers are from ``least`` to ``most``; ``None``: no limit.

    ``field``: that of the settings, if it has another name. ``alias``: a second flag.
    """

    name: str
    type: Any
    default: Any
    help: str
    least: float | None = 1
    most: float | None = None
    field: str = ""
    alias: str = ""


DURATION = Annotated[str, "duration"]
CORE_FLAGS = (
    CoreFlag("profile", str, "", "speed: the name of a profile, or a .toml file"),
    CoreFlag("ttft", DURATION, "50ms", "time to a first token, without a profile"),
    CoreFlag("tpot", DURATION, "10ms", "time from one token to the next, without a profile"),
    CoreFlag("speedup", float, 1.0, "divides all times; 0 means no time at all", 0),
    CoreFlag("seed", int, 0, "decides all text and vectors", None),
    CoreFlag("mean_length", int, None, "average tokens until an answer ends by itself; default: never"),
    CoreFlag("max_model_len", int, 8192, "most tokens of a prompt and its answer", alias="context_length"),
    CoreFlag("max_num_seqs", int, 256, "most requests in a step; others wait", alias="concurrency"),
    CoreFlag("max_loras", int, None, "most adapters in a step; default: any number"),
    CoreFlag("max_num_batched_tokens", int, 8192, "most tokens in a step"),
    CoreFlag("block_size", int, 16, "tokens in a block of the KV cache"),
    CoreFlag("num_gpu_blocks", int, 16384, "blocks of the KV cache", 2, field="total_gpu_blocks"),
    CoreFlag("host_blocks", int, 0, "blocks of host memory to which requests are offloaded", 0),
    CoreFlag("host_bandwidth", float, 25e9, "bytes per second to host memory"),
    CoreFlag("offload_within", int, 8, "passes before blocks run out to offload in", field="starvation_within"),
    CoreFlag("offload_safe_for", int, 32, "passes that blocks must last for a return", field="safe_for"),
    CoreFlag("offload_order", _Order, "fewest_blocks", "which requests are offloaded first", field="order"),
    CoreFlag("offload_guaranteed_tokens", int, 16, "tokens between two offloads of one", 0, field="guaranteed_tokens"),
    CoreFlag("policy", Literal["fcfs", "priority"], "fcfs", "order of waiting requests"),
    CoreFlag("chunked_prefill", bool, True, "compute prompts in pieces", field="chunked_prefill_enabled"),
    CoreFlag("prefix_caching", bool, True, "share equal prefixes", field="enable_prefix_caching"),
    CoreFlag("long_prefill_token_threshold", int, 0, "most tokens of one prompt in a step; 0 means no limit", 0),
    CoreFlag("max_num_active_seqs", int, None, "most running requests; default: --max-num-seqs"),
    CoreFlag("prefill_schedule_interval", int, 1, "while others run, admit only in every Nth step"),
    CoreFlag("reserve_full_sequence", bool, True, "admit a request only if all of its known tokens fit"),
    CoreFlag("async_scheduling", bool, True, "plan each step before the result of the one before"),
    CoreFlag("max_num_encoder_input_tokens", int, 8192, "most tokens of images to encode in a step"),
    CoreFlag("encoder_cache_size", int, 8192, "tokens of encoded images to keep"),
    CoreFlag("watermark", float, 0.0, "share of all blocks that an admission leaves free", 0, 1),
    CoreFlag("num_spec_tokens", int, 0, "tokens drafted for each step of a request", 0),
    CoreFlag("draft_acceptance", float, 0.7, "chance of each draft to be accepted", 0, 1),
)


def _option(name: str, type: Any, help: str) -> tuple[str, Any, None]:
    return name, Annotated[type | None, Meta(description=help.partition("; default:")[0])], None


SimOptions: Any = defstruct(
    "SimOptions",
    [
        *(_option(flag.name, flag.type, flag.help) for flag in CORE_FLAGS if flag.name != "max_model_len"),
        _option("start_delay", str, "time until it listens, as if it loaded a model"),
        _option("kv_bandwidth", float, "bytes per second between engines"),
        _option("kv_events_config", dict[str, Any], "where the KV cache's events are published"),
    ],
    bases=(EngineOptions,),
    namespace={
        "__doc__": "Each field is the flag of the same name. The engine has a default for one that is left out."
    },
    module=__name__,
    frozen=True,
    forbid_unknown_fields=True,
)


def engine_flags(spec: LaunchSpec) -> Sequence[str]:
    """The flags that ``spec`` decides; those of its ``args`` follow them."""
    context = ["--context-length", str(spec.context_length)] if spec.context_length else []
    events = ["--kv-events-config", spec.kv_events] if spec.kv_events else []
    return [*context, *option_arguments(spec.options_as(SimOptions)), *events]
