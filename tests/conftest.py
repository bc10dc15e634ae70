from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent
from types import MappingProxyType

import pytest

from tests.support.bytecode import keep_bytecode
from tests.support.entry_points import missing_entry_points
from tests.support.hypothesis_profiles import load_profile
from tests.support.operated_gateway import Stage
from tests.support.plugins import Install, PipInstall, RunPython, RunTests

pytest_plugins = [
    "tests.support.fork_server",
    "tests.support.plugin_failures",
    "tests.support.process_state",
    "tests.support.shared_work",
    "tests.support.virtual_time",
]

keep_bytecode()
load_profile()
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs and their children ignore it


def pytest_configure() -> None:
    """Refuse to run with the plugins of an older installation: each test of a gateway would fail for that reason."""
    if missing := missing_entry_points():
        remedy = "run `.venv/bin/pip install --no-deps --editable .`"
        raise pytest.UsageError(f"not installed yet: the bundled plugins {', '.join(missing)}; {remedy}")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exempt thousands of collected tests from garbage collection, which walks through them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    monkeypatch.syspath_prepend(tmp_path)
    modules = []

    def put(
        entry_point: str,
        source: str,
        *,
        distribution: str | None = None,
        version: str = "1.2.3",
        module: str | None = None,
        commands: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        distribution = distribution or f"enginehouse-{entry_point}"
        module = module or distribution.replace("-", "_")
        modules.append(module)
        modules_of_kit = (
            "discoverers",
            "guards",
            "interceptors",
            "limit_stores",
            "rescheduling",
            "scalers",
            "usage_stores",
        )
        imports = ["enginehouse", *(f"enginehouse_kit.{name}" for name in modules_of_kit)]
        header = "; ".join(f"from {name} import *" for name in imports) + "\n"
        (tmp_path / f"{module}.py").write_text(header + dedent(source))
        info = tmp_path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(
            "\n".join(
                [
                    f"[enginehouse]\n{entry_point} = {module}\n[enginehouse.commands]",
                    *(f"{name} = {module}:{it}" for name, it in commands.items()),
                ]
            )
        )
        monkeypatch.syspath_prepend(tmp_path)

    yield put
    for module in modules:
        sys.modules.pop(module, None)


@pytest.fixture(scope="session")
def pip_install(tmp_path_factory: pytest.TempPathFactory) -> PipInstall:
    def put(*sources: Path) -> Path:
        target = tmp_path_factory.mktemp("site")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
        subprocess.run([*pip, "--target", str(target), *map(str, sources)], check=True)
        return target

    return put


@pytest.fixture(scope="session")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=32) as pool:
        yield pool


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.open()


@pytest.fixture
def run_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RunPython:
    def run(site: Path, *arguments: str, cwd: Path = tmp_path) -> subprocess.CompletedProcess[str]:
        monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
        return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=cwd)

    return run


@pytest.fixture
def run_tests(run_python: RunPython, monkeypatch: pytest.MonkeyPatch) -> RunTests:
    def run(site: Path, project: Path) -> subprocess.CompletedProcess[str]:
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        return run_python(site, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", str(project / "tests"))

    return run


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """A named pipe. A process that holds it open for writing runs until the reader gets to its end."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path
