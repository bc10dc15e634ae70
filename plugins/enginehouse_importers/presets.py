"""llama-server's presets of models (``--models-preset``): an INI file whose keys are command-line options."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from enginehouse import ConfigError
from enginehouse_importers.kit.table import Converted, Note, Table, keys_in, seconds

_ALL: Final = "*"
_SECTION: Final = re.compile(r"\[(?P<name>.+)\]\s*$")
_MODEL: Final = ("model", "m", "LLAMA_ARG_MODEL")
_CONTEXT: Final = ("ctx-size", "c", "LLAMA_ARG_CTX_SIZE")
_HUBS: Final = keys_in(
    "hf hfr hf-repo mu model-url dr docker-repo LLAMA_ARG_HF_REPO LLAMA_ARG_MODEL_URL LLAMA_ARG_DOCKER_REPO"
)
"""Where a model without a file comes from."""
_OWN: Final = {
    "dedup-cache-models": "has no list of the models in the cache",
    **dict.fromkeys(("port", "host", "LLAMA_ARG_PORT", "LLAMA_ARG_HOST"), "says where an engine listens"),
    **dict.fromkeys(("alias", "a", "LLAMA_ARG_ALIAS"), "names the model; routing.aliases has others"),
    **dict.fromkeys(("api-key", "api-key-file", "LLAMA_API_KEY"), "alone reaches the engine; auth.keys is for clients"),
}
"""What llama-server's router sets or reads itself, and what the gateway does instead."""
_SWITCH: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("true", "on", "enabled", "1"), True),
    **dict.fromkeys(("false", "off", "disabled", "0"), False),
}
_BOTH_WAYS: Final = keys_in(
    "agent cache-idle-slots cache-prompt cont-batching context-shift cors-credentials direct-io escape jinja "
    "kv-offload kv-unified log-jsonl log-prefix log-timestamps mmap mmproj-auto mmproj-offload op-offload perf "
    "prefill-assistant reasoning-preserve repack skip-chat-parsing slots spec-draft-backend-sampling ui warmup webui"
)
"""Options without a value that have an opposite, with ``no-`` in front."""
_ONE_WAY: Final = keys_in(
    "backend-sampling check-tensors cpu-moe cpu-moe-draft embedding embeddings ignore-eos log-disable "
    "lora-init-without-apply metrics mlock no-host offline props rerank reranking reuse-port spec-default special "
    "spm-infill swa-full verbose"
)
"""Options without a value that are off by default."""
_SWITCHES: Final = {*_BOTH_WAYS, *(f"no-{name}" for name in _BOTH_WAYS), *_ONE_WAY}
_SHORT_SWITCHES: Final[Mapping[str, str]] = {
    "ag": "agent",
    "no-ag": "no-agent",
    "bs": "backend-sampling",
    "cb": "cont-batching",
    "nocb": "no-cont-batching",
    "cmoe": "cpu-moe",
    "cmoed": "cpu-moe-draft",
    "e": "escape",
    "kvo": "kv-offload",
    "nkvo": "no-kv-offload",
    "kvu": "kv-unified",
    "no-kvu": "no-kv-unified",
    "no-mmproj": "no-mmproj-auto",
    "nr": "no-repack",
    "sp": "special",
    "v": "verbose",
}
_SHORT: Final = keys_in(
    "Cb Cbd Cd Cr Crb Crd cms cram ctk ctkd ctv ctvd ctxcp dev devd dr dt fa fitc fitt hf hfd hff hfr hfrd hft jf lcd "
    "lcs lm lv lzm md mg mm mmdev mmu mu ncffn ncmoe ncmoed ngl ngld np ot otd rea sm sps tb tbd td to ts ub"
)
"""Options of several letters that have one dash."""


def convert(text: str, file: str = "") -> Converted:
    """Convert the INI ``text``; ``file`` is its name in errors. Raises ``ConfigError`` for a line that is none."""
    notes: list[Note] = []
    sections = _sections(text, file)
    shared = sections.pop(_ALL, {})
    top = Table(sections.pop("", {}), (), notes)
    top.value("version")
    top.leave_out(dict.fromkeys(top.names(), "left out: it is in no section"))
    common = Table(shared, (_ALL,), notes)
    tables = {name: Table({**shared, **own}, (name,), notes) for name, own in sections.items()}
    models = {name: model for name, table in tables.items() if (model := _model(table, name)) is not None}
    if not sections and shared:
        common.note("left out: there is no model")
    return Converted({"models": models} if models else {}, notes)


def _sections(text: str, file: str) -> dict[str, dict[str, str]]:
    """The keys of each section, those before the first one under an empty name."""
    sections: dict[str, dict[str, str]] = {}
    current = sections.setdefault("", {})
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line[0] in "#;":
            continue
        if found := _SECTION.match(line):
            current = sections.setdefault(found["name"].strip(), {})
            continue
        key, equals, value = line.partition("=")
        if not equals:
            remedy = "write [NAME] or KEY = VALUE there"
            raise ConfigError("not an INI file", file=f"{file}:{number}", remedy=remedy)
        current[key.strip()] = value.strip()
    return sections


def _model(table: Table, name: str) -> dict[str, Any] | None:
    """The model of the section ``name``; ``None`` if it names neither a file nor where one is."""
    model: dict[str, Any] = {"driver": "llamacpp"}
    path = table.text(key) if (key := _last(table, _MODEL)) else ""
    if (key := _last(table, _CONTEXT)) and (context := table.whole(key, 0)):
        model["context_length"] = context
    if path:
        model["path"] = path
    if table.flag("load-on-startup"):
        model["preload"] = True
    if stop := table.whole("stop-timeout", 0):
        model["stop_timeout"] = seconds(stop)
    for key, does in _OWN.items():
        table.leave_out_one(key, f"left out: the gateway {does}")
    if variables := {key: table.text(key) for key in table.names() if _is_variable(key)}:
        model["env"] = variables
    arguments = list(_arguments(table))
    if path:
        return model | ({"args": arguments} if arguments else {})
    if not _last(table, _HUBS):
        if "/" not in name:
            table.note("left out: it names no file (write model = PATH)")
            return None
        arguments = ["--hf-repo", name, *arguments]  # it is a model of the cache
    words = [_quoted(word) for word in ("llama-server", "--port", "${port}", *arguments)]
    return {"command": " ".join(words)} | model


def _is_variable(key: str) -> bool:
    """Whether ``key`` is a variable that llama-server reads, and nothing else has read it."""
    return key.startswith("LLAMA_ARG_") and key not in _MODEL and key not in _OWN


def _last(table: Table, keys: Collection[str]) -> str:
    """The last one of ``keys`` that is there, which counts for llama-server too; empty if none is."""
    return next((key for key in reversed(table.names()) if key in keys), "")


def _arguments(table: Table) -> Iterator[str]:
    """The words of the options that are not read otherwise; the context length is one of both."""
    for key in table.names():
        if key in (*_MODEL, "load-on-startup", "stop-timeout") or key in _OWN or _is_variable(key):
            table.value(key)
            continue
        value, switch = table.text(key), _SHORT_SWITCHES.get(key, key)
        if switch in _SWITCHES and value.lower() in _SWITCH:
            if _SWITCH[value.lower()]:
                yield f"--{switch}"
            elif switch in _BOTH_WAYS:
                yield f"--no-{switch}"
            elif switch in _ONE_WAY:
                table.note("left out: it is off by default", key)
            else:
                yield f"--{switch.removeprefix('no-')}"
        else:
            yield from (f"-{key}" if len(key) == 1 or key in _SHORT else f"--{key}", value)


def _quoted(word: str) -> str:
    plain = re.fullmatch(r"[\w./:=,@%+${}-]+", word)
    return word if plain else "'" + word.replace("'", "'\\''") + "'"
