"""Launch commands of llama-swap: their layout, their engine and its port."""

from __future__ import annotations

import re

PORT = "${port}"
HEALTH_PATHS = {"llamacpp": "/health", "vllm": "/health", "sglang": "/health", "openai": "/v1/models"}
"""The path that each driver probes for health."""

_ENGINES = re.compile(
    r"""(?P<llamacpp> (?:^|[\s/\\"']) llama-server | llama\.cpp:(?:server|full) )
      | (?P<vllm>     (?:^|[\s/\\"']) vllm (?=[\s:"']|$) | vllm\.entrypoints | vllm-openai | vllm-wrapper )
      | (?P<sglang>   (?:^|[\s/\\"']) sglang (?=[\s:"']|$) | sglang\.launch_server )""",
    re.VERBOSE,
)
_FIRST_WORD = re.compile(r"""\s*("[^"]*"|'[^']*'|\S+)""")


def without_comments(text: str) -> str:
    """``text`` without the lines that start with ``#``."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def one_command(text: str) -> str:
    """``text`` without comments and without the backslashes at line ends, which the gateway does not need."""
    lines = (line.rstrip().removesuffix("\\").rstrip() for line in without_comments(text).splitlines())
    return "\n".join(lines).strip()


def driver_of(command: str) -> str:
    """The driver for the engine that ``command`` launches; ``openai`` for an unknown engine."""
    found = _ENGINES.search(command)
    return (found and found.lastgroup) or "openai"


def with_port(command: str, port: int | None) -> str | None:
    """``command`` with its fixed port replaced by ``${port}``. ``port`` is the number to replace, if it is known.

    If the command launches a known engine without a port, ``--port ${port}`` is added. ``None`` if the position of the
    port is unclear.
    """
    if port is None:
        option = r"(?<!\S)(--port(?:\s+|=))\d+(?!\S)"
    else:
        option = rf"((?<!\S)(?:--[\w-]*port|-p|--publish)(?:\s+|=)|(?<=[\w.\]]):){port}(?![\w.])"
    replaced, count = re.subn(option, lambda match: match[1] + PORT, command, count=1)
    if count:
        return replaced
    return f"{command} --port {PORT}" if _launches_engine(command) and "--port" not in command else None


def _launches_engine(command: str) -> bool:
    """Whether the command runs an engine directly, or as a Python module, so that it takes the engine's options."""
    engine, first = _ENGINES.search(command), _FIRST_WORD.match(command)
    if engine is None or first is None:
        return False
    return engine.start() < first.end() or re.search(r"python[\d.]*$", first[1].strip("\"'")) is not None
