"""The settings of a simulated engine. Each is a flag of its command line, and an option of a launched one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, get_args

from msgspec import Meta, Struct, defstruct
from msgspec.structs import fields

from enginehouse.drivers import EngineOptions, LaunchSpec
from enginehouse_kit.drivers import option_arguments

DURATION = Annotated[str, "duration"]


class SchedulingPolicy(str, Enum):
    """The order of waiting requests: ``fcfs`` by arrival; ``priority`` by the smaller ``priority``, then by arrival."""

    FCFS = "fcfs"
    PRIORITY = "priority"


def _flag(help: str, least: float | None = None, most: float | None = None, **names: str) -> Meta:
    """The flag of a setting, whose numbers are from ``least`` to ``most``.

    ``name``: the flag's, if it is not the field's. ``alias``: a second flag. ``type``: that of the text.
    """
    return Meta(description=help, extra={"least": least, "most": most, **names})


class SchedulerConstants(Struct, frozen=True, kw_only=True):
    """The limits of one engine, under vLLM's names. Lengths are in tokens, sizes in blocks of ``block_size`` tokens.

    Drafts are made by EAGLE, whose keys and values need room ahead; 0 ``num_spec_tokens`` disable speculative decoding.
    ``reserve_full_sequence`` prevents thrashing, as vLLM's ``scheduler_reserve_full_isl`` does.
    """

    max_model_len: Annotated[int, _flag("most tokens of a prompt and its answer", 1, alias="context_length")] = 8192
    max_num_seqs: Annotated[int, _flag("most requests in a step; others wait", 1, alias="concurrency")] = 256
    max_loras: Annotated[int | None, _flag("most adapters in a step; default: any number", 1)] = None
    max_num_batched_tokens: Annotated[int, _flag("most tokens in a step", 1)] = 8192
    block_size: Annotated[int, _flag("tokens in a block of the KV cache", 1)] = 16
    total_gpu_blocks: Annotated[int, _flag("blocks of the KV cache", 2, name="num_gpu_blocks")] = 16384
    policy: Annotated[SchedulingPolicy, _flag("order of waiting requests")] = SchedulingPolicy.FCFS
    chunked_prefill_enabled: Annotated[bool, _flag("compute prompts in pieces", name="chunked_prefill")] = True
    enable_prefix_caching: Annotated[bool, _flag("share equal prefixes", name="prefix_caching")] = True
    long_prefill_token_threshold: Annotated[
        int, _flag("most tokens of one prompt in a step while others wait or run; 0 means no limit", 0)
    ] = 0
    max_num_active_seqs: Annotated[int | None, _flag("most running requests; default: --max-num-seqs", 1)] = None
    prefill_schedule_interval: Annotated[int, _flag("while others run, admit only in every Nth step", 1)] = 1
    reserve_full_sequence: Annotated[bool, _flag("admit a request only if all of its known tokens fit")] = True
    async_scheduling: Annotated[bool, _flag("plan each step before the result of the one before")] = True
    max_num_encoder_input_tokens: Annotated[int, _flag("most tokens of images to encode in a step", 1)] = 8192
    encoder_cache_size: Annotated[int, _flag("tokens of encoded images to keep", 1)] = 8192
    watermark: Annotated[float, _flag("share of all blocks that an admission leaves free", 0, 1)] = 0.0
    num_spec_tokens: Annotated[int, _flag("tokens drafted for each step of a request", 0)] = 0

    @property
    def token_capacity(self) -> int:
        """The tokens that all blocks hold together. Block 0 is vLLM's null block, which no request gets."""
        return (self.total_gpu_blocks - 1) * self.block_size

    @property
    def watermark_blocks(self) -> int:
        return int(self.watermark * self.total_gpu_blocks)

    @property
    def use_spec_decode(self) -> bool:
        return self.num_spec_tokens > 0


_Order = Literal["fewest_blocks", "most_remaining", "least_urgent"]


class OffloadSettings(Struct, frozen=True, kw_only=True):
    """When requests are offloaded to host memory, in passes of the model, and for how long.

    The distance between ``starvation_within`` and ``safe_for`` prevents requests from moving back and forth.
    """

    starvation_within: Annotated[int, _flag("passes before blocks run out to offload in", 1, name="offload_within")] = 8
    safe_for: Annotated[int, _flag("passes that blocks must last for a return", 1, name="offload_safe_for")] = 32
    order: Annotated[_Order, _flag("which requests are offloaded first", name="offload_order")] = "fewest_blocks"
    guaranteed_tokens: Annotated[
        int, _flag("tokens between two offloads of one", 0, name="offload_guaranteed_tokens")
    ] = 16


class CoreSettings(Struct, frozen=True, kw_only=True):
    """Limits, speed and text of an engine. Times are in seconds."""

    profile: Annotated[str, _flag("speed: the name of a profile, or a .toml file")] = ""
    ttft: Annotated[float, _flag("time to a first token, without a profile", 0, type="duration")] = 0.05
    tpot: Annotated[float, _flag("time from one token to the next, without a profile", 0, type="duration")] = 0.01
    speedup: Annotated[float, _flag("divides all times; 0 means no time at all", 0)] = 1.0
    seed: Annotated[int, _flag("decides all text and vectors")] = 0
    mean_length: Annotated[int | None, _flag("average tokens until an answer ends by itself; default: never", 1)] = None
    constants: SchedulerConstants = SchedulerConstants()
    draft_acceptance: Annotated[float, _flag("chance of each draft to be accepted", 0, 1)] = 0.7
    host_blocks: Annotated[int, _flag("blocks of host memory to which requests are offloaded", 0)] = 0
    host_bandwidth: Annotated[float, _flag("bytes per second to host memory", 1)] = 25e9
    offload: OffloadSettings = OffloadSettings()


class CoreFlag(NamedTuple):
    """A flag of the engine core, and the ``field`` of the settings that it sets. ``None``: no limit."""

    name: str
    field: str
    type: Any
    default: Any
    help: str
    least: float | None
    most: float | None
    alias: str


def _flags_of(settings: type[Struct]) -> Iterator[CoreFlag]:
    for field in fields(settings):
        if not get_args(field.type):
            yield from _flags_of(field.type)
            continue
        type, flag = get_args(field.type)
        default = field.default
        if flag.extra.get("type") == "duration":
            type, default = DURATION, f"{1000 * default:g}ms"
        elif type is SchedulingPolicy:
            type, default = Literal[tuple(each.value for each in SchedulingPolicy)], default.value
        elif None.__class__ in get_args(type):
            type = get_args(type)[0]
        own = {"name": field.name, "alias": "", **flag.extra}
        yield CoreFlag(
            own["name"], field.name, type, default, flag.description, own["least"], own["most"], own["alias"]
        )


CORE_FLAGS = tuple(_flags_of(CoreSettings))


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
