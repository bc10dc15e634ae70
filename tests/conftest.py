from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put a distribution with one plugin module on the import path, as if it were pip-installed."""
    monkeypatch.syspath_prepend(tmp_path)
    modules = []

    def put(
        entry_point: str,
        source: str,
        *,
        distribution: str | None = None,
        version: str = "1.2.3",
        module: str | None = None,
    ) -> None:
        distribution = distribution or f"enginehouse-{entry_point}"
        module = module or distribution.replace("-", "_")
        modules.append(module)
        header = "from enginehouse import *\n"
        (tmp_path / f"{module}.py").write_text(header + dedent(source))
        info = tmp_path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[enginehouse]\n{entry_point} = {module}\n")
        monkeypatch.syspath_prepend(tmp_path)

    yield put
    for module in modules:
        sys.modules.pop(module, None)


@pytest.fixture(scope="session")
def pip_install(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """pip-install a distribution's folder into a new place, which is returned."""

    def put(source: Path) -> Path:
        target = tmp_path_factory.mktemp("site")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
        subprocess.run([*pip, "--target", str(target), str(source)], check=True)
        return target

    return put
