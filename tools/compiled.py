"""Compiles the hot path with mypyc: in place (``make compiled``), or for a platform wheel.

A wheel is compiled only if the environment has ``ENGINEHOUSE_COMPILE=1``; the pure one needs no compiler. Both have the
same modules of plain Python. mypyc cannot compile a class that plugins or tests inherit from, nor one that is copied,
such as most strategies, nor a msgspec struct: ``MODULES`` leaves their modules out, and those that gain under 2 %
(docs/performance.md).
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent.parent
GROUP = "enginehouse"
"""The library with the code of all modules is named after this: ``enginehouse__mypyc``."""
_FLAGS = ["-fvisibility=hidden", "-fno-plt"]
"""Functions of the library call each other, and Python's, at once: by default each call goes through a table."""
_TYPES = [
    "--config-file=",
    "--explicit-package-bases",
    "--follow-imports=silent",
    "--ignore-missing-imports",
]
"""How mypy reads types: also from the modules that are not compiled, but what these import need not be installed.

``make lint`` checks all modules, with everything installed. So an environment in which a wheel is built needs only the
gateway's own dependencies.
"""
MODULES = {
    "gateway/enginehouse/aio": ("clock", "write_batch"),
    "gateway/enginehouse/processes/workers": ("worker_request",),
    "gateway/enginehouse/domain": ("replica", "request_facts", "requirements", "tokens"),
    "gateway/enginehouse/fleet": ("fleet", "health", "stale_averages"),
    "gateway/enginehouse/http": (
        "admission",
        "client_connection",
        "cross_origin",
        "framing",
        "inbound",
    ),
    "gateway/enginehouse/relay": (
        "asides",
        "context",
        "engine_memory",
        "heads",
        "pick",
        "queue_slot",
        "relay",
        "relayed_request",
        "request",
        "web_socket_request",
    ),
    "gateway/enginehouse/relay/answers": ("json_in_pieces", "reply"),
    "gateway/enginehouse/relay/attempts": ("answer_judge", "attempt", "dispatch"),
    "gateway/enginehouse/relay/events": ("sse", "stream_check"),
    "gateway/enginehouse/relay/jobs": (
        "continuation_job",
        "engine_job",
        "form_job",
        "job",
    ),
    "gateway/enginehouse/relay/live": ("live_request",),
    "gateway/enginehouse/relay/upstream": ("connection", "upstream"),
    "gateway/enginehouse/routing": ("decision_plugins", "router"),
    "gateway/enginehouse/routing/body": ("read", "rewrite"),
    "gateway/enginehouse/telemetry": (
        "answer_meter",
        "counters",
        "log_context",
        "trace_context",
        "tracer",
    ),
    "plugins/enginehouse_access_log": ("access_line", "access_log"),
    "plugins/enginehouse_callers": ("accounts", "kept_keys", "keyring", "limit_set", "usage_meter"),
    "plugins/enginehouse_continuation": ("stream_history", "typed_history"),
    "plugins/enginehouse_kit": ("credentials",),
    "plugins/enginehouse_kit/prefixes": ("chunks", "prompt"),
    "plugins/enginehouse_sim/simulator/core": ("engine_core",),
    "plugins/enginehouse_sim/simulator/domain": ("request",),
    "plugins/enginehouse_sim/simulator/kv": ("block_pool", "cache_manager"),
    "plugins/enginehouse_sim/simulator/model": ("timing",),
    "plugins/enginehouse_sim/simulator/replay": (
        "answer",
        "played_engine",
        "played_server",
        "replay_world",
    ),
    "plugins/enginehouse_sim/simulator/replay/traces": ("prompts",),
    "plugins/enginehouse_sim/simulator/scheduler": (
        "encoder",
        "running",
        "scheduler",
        "state",
        "waiting",
    ),
    "plugins/enginehouse_sim/simulator/server": ("load_figures",),
    "plugins/enginehouse_sim/simulator/steps": ("models",),
    "plugins/enginehouse_routing": (
        "cache_aware",
        "choices",
        "cost_row",
        "engine_costs",
        "known_engines",
        "known_sections",
        "needs",
        "shared_index",
    ),
}


def build(folder: Path, optimization: str) -> Iterator[tuple[Path, Path]]:
    """Compile all modules, with ``folder`` for the output. Yields each library, and its place below ``ROOT``."""
    from mypyc.build import mypycify
    from setuptools import Distribution  # type: ignore[import-untyped, unused-ignore]

    os.chdir(ROOT)
    os.environ["MYPYPATH"] = os.pathsep.join(("gateway", "plugins"))
    sources = [f"{package}/{module}.py" for package, modules in MODULES.items() for module in modules]
    target, arguments = str(folder / "source"), [*_TYPES, *sources]
    extensions = mypycify(arguments, opt_level=optimization, group_name=GROUP, target_dir=target, multi_file=True)
    for extension in extensions:
        extension.extra_compile_args = [*extension.extra_compile_args, *_FLAGS]  # all share one list
    command: Any = Distribution({"name": "enginehouse", "ext_modules": extensions}).get_command_obj("build_ext")
    command.build_lib, command.build_temp = str(folder / "lib"), str(folder / "temp")
    command.ensure_finalized()
    command.run()
    roots = {Path(package).parts[1]: Path(package).parts[0] for package in MODULES}
    for library in sorted((folder / "lib").rglob(f"*{_suffix()}")):
        place = library.relative_to(folder / "lib")
        yield library, Path(roots.get(place.parts[0], "gateway")) / place


def remove() -> None:
    """Remove the libraries that were compiled in place."""
    for root in ("gateway", "plugins"):
        for library in (ROOT / root).rglob(f"*{_suffix()}"):
            library.unlink()


class CompiledWheel(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles the wheel if ``ENGINEHOUSE_COMPILE`` is 1."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """mypyc, and the packages whose types it reads."""
        if not _is_asked():
            return []
        return ["mypy[mypyc]>=1.15", *self.metadata.core.dependencies]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not _is_asked() or version == "editable":
            return
        self._folder = Path(tempfile.mkdtemp(prefix="enginehouse-"))
        for library, place in build(self._folder, "3"):
            build_data["force_include"][str(library)] = str(Path(*place.parts[1:]))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if _is_asked() and version != "editable":
            shutil.rmtree(self._folder)


def _is_asked() -> bool:
    return os.environ.get("ENGINEHOUSE_COMPILE", "") == "1"


def _suffix() -> str:
    from sysconfig import get_config_var

    return str(get_config_var("EXT_SUFFIX"))


def main() -> None:
    """Compile in place; with ``--remove``, only remove the libraries. ``$OPTIMIZATION``: gcc's level, 3 by default."""
    remove()
    if "--remove" in sys.argv[1:]:
        return
    with tempfile.TemporaryDirectory() as folder:
        for library, place in build(Path(folder), os.environ.get("OPTIMIZATION", "3")):
            shutil.copy(library, ROOT / place)
            print(place)


if __name__ == "__main__":
    main()
