"""Launch lines written for llama-swap: their layout, the engine they launch, the port it listens on."""

from __future__ import annotations

import re

PORT = "${port}"
HEALTH_PAGES = {"llamacpp": "/health", "vllm": "/health", "sglang": "/health", "openai": "/v1/models"}
"""What each driver asks whether its engine is ready."""

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
    """``text`` without comments and without the backslashes that continue a line, which need none."""
    lines = (line.rstrip().removesuffix("\\").rstrip() for line in without_comments(text).splitlines())
    return "\n".join(lines).strip()


def driver_of(command: str) -> str:
    """The driver for the engine that ``command`` launches; ``openai`` for one that is not known here."""
    found = _ENGINES.search(command)
    return (found and found.lastgroup) or "openai"


def with_port(command: str, port: int | None) -> str | None:
    """``command`` with ``${port}`` where it has a fixed port, ``port`` if that is known.

    An engine that is launched by its own name and told no port is told one. ``None``: there is no telling where the
    port would have to go.
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
    """Whether an engine's own options follow: its name is the first word, or Python's first argument."""
    engine, first = _ENGINES.search(command), _FIRST_WORD.match(command)
    if engine is None or first is None:
        return False
    return engine.start() < first.end() or re.search(r"python[\d.]*$", first[1].strip("\"'")) is not None
