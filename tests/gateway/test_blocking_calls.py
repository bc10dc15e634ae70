"""Nothing that may block runs on the event loop.

Each file of the core and of the bundled plugins that opens files, databases or programs, or looks up names, stands here
with the reason why no stream waits for that. A call in another file belongs into a thread: ``aio/slow_work.py``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

FUNCTION = re.compile(
    r"(open|input|sleep|time\.sleep|(\w+\.)*(urlopen|getaddrinfo|Popen)|sqlite3\.connect|tempfile\.mkdtemp"
    r"|subprocess\.(run|call|check_call|check_output)|shutil\.(which|copy|move|rmtree)"
    r"|socket\.(gethostbyname|create_connection)|os\.path\.(exists|isfile|isdir|getsize|samefile)"
    r"|os\.(system|popen|waitpid|open|stat|listdir|scandir|walk|fsync|replace|rename|unlink|remove|mkdir|makedirs))"
)
METHOD = re.compile(
    r"(read|write)_(text|bytes)|l?stat|exists|is_file|is_dir|iterdir|r?glob|unlink|mkdir|rmdir|samefile|(sym|hard)link_to"
)
BEFORE = "before requests come, and after they have gone"
THREAD = "in a thread: run_slowly, asyncio.to_thread or an executor"
COMMAND = "in a command, which has no loop or no streams"
OWN = "in a process of its own"
KERNEL = "of files that the kernel keeps in memory"
ALLOWED = {
    "gateway/enginehouse/app/callers.py": BEFORE,
    "gateway/enginehouse/app/strategy_memory.py": THREAD,
    "gateway/enginehouse/app/reload.py": THREAD,
    "gateway/enginehouse/processes/listen.py": BEFORE,
    "gateway/enginehouse/cli/plugin_commands.py": COMMAND,
    "gateway/enginehouse/processes/replacement.py": "starts a process without a copy of this one's memory (vfork)",
    "gateway/enginehouse/config/load_config.py": "at the start, and in a thread at a reload",
    "gateway/enginehouse/config/secrets.py": "as load_config",
    "gateway/enginehouse/config/server.py": BEFORE,
    "gateway/enginehouse/engines/engine_cache.py": THREAD,
    "gateway/enginehouse/engines/pulled_models.py": "in a thread, but for the note of a launched model",
    "gateway/enginehouse/engines/state_file.py": "small files of the state folder, written before an engine starts",
    "gateway/enginehouse/plugin_manager/installed.py": BEFORE,
    "gateway/enginehouse/plugin_manager/known_plugins.py": BEFORE,
    "gateway/enginehouse/processes/take_over/channel.py": "a socket of the state folder, once for a take-over",
    "plugins/enginehouse_batches/input_file.py": THREAD,
    "plugins/enginehouse_batches/store.py": THREAD,
    "plugins/enginehouse_callers/kept_keys.py": "a small file of the state folder, when an operator changes a key",
    "plugins/enginehouse_callers/token_authenticator.py": THREAD,
    "plugins/enginehouse_callers/sqlite_usage.py": THREAD,
    "plugins/enginehouse_dashboard/__init__.py": BEFORE,
    "plugins/enginehouse_discovery/static.py": THREAD,
    "plugins/enginehouse_energy/meters.py": THREAD,
    "plugins/enginehouse_kit/drivers/model_folder.py": THREAD,
    "plugins/enginehouse_kept_caches/service.py": THREAD,
    "plugins/enginehouse_llamacpp/driver.py": THREAD,
    "plugins/enginehouse_llamacpp/found_models.py": COMMAND,
    "plugins/enginehouse_llamacpp/model_file.py": THREAD,
    "plugins/enginehouse_local/launcher.py": "starts a process without a copy of this one's memory; files in a thread",
    "plugins/enginehouse_local/log_file.py": "one file of the state folder for each launch",
    "plugins/enginehouse_local/processes.py": KERNEL,
    "plugins/enginehouse_otlp/process": OWN,
    "plugins/enginehouse_protocols/responses/stored.py": THREAD,
    "plugins/enginehouse_pull": THREAD,
    "plugins/enginehouse_rescheduling/latency.py": BEFORE,
    "plugins/enginehouse_bench": COMMAND,
    "plugins/enginehouse_importers": COMMAND,
    "plugins/enginehouse_kit/checks": COMMAND,
    "plugins/enginehouse_kit/gateway.py": COMMAND,
    "plugins/enginehouse_kit/scaffold.py": COMMAND,
    "plugins/enginehouse_offline": COMMAND,
    "plugins/enginehouse_operations": COMMAND,
    "plugins/enginehouse_service": COMMAND,
    "plugins/enginehouse_sim": OWN,
}


def blocking_calls(source: str) -> Iterator[tuple[int, str]]:
    """The lines and texts of calls that may block."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            text = ast.unparse(node.func)
            attribute = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if FUNCTION.fullmatch(text) or METHOD.fullmatch(attribute):
                yield node.lineno, text


def entry_of(file: str) -> str | None:
    """The entry of ``ALLOWED`` for a file, or for a folder that it is in."""
    path = Path(file)
    return next((str(each) for each in (path, *path.parents) if str(each) in ALLOWED), None)


def test_what_may_block_stands_where_no_stream_waits_for_it() -> None:
    found, used = [], set()
    for root in ("gateway", "plugins"):
        for path in sorted((ROOT / root).rglob("*.py")):
            file = str(path.relative_to(ROOT))
            if "template" in path.parts:
                continue
            calls = [*blocking_calls(path.read_text())]
            entry = entry_of(file)
            if entry is not None and calls:
                used.add(entry)
            elif calls:
                found += [f"{file}:{line} {text}" for line, text in calls]
    assert not found
    assert used == set(ALLOWED), "entries that are not needed any more"


def test_such_a_call_would_be_found() -> None:
    source = "async def f():\n    a = Path(x).read_text()\n    await asyncio.sleep(1)\n    subprocess.run(['x'])\n"
    assert [*blocking_calls(source)] == [(2, "Path(x).read_text"), (4, "subprocess.run")]
