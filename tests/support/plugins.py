"""The types of fixtures that install and run plugins."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol


class Install(Protocol):
    def __call__(
        self,
        entry_point: str,
        source: str,
        *,
        distribution: str | None = None,
        version: str = "1.2.3",
        module: str | None = None,
        commands: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Put a distribution with one plugin module on the import path, as if it were pip-installed.

        ``commands``: objects of the module, by the names of the commands that they are.
        """


class PipInstall(Protocol):
    def __call__(self, *sources: Path) -> Path:
        """Install the distributions in the folders ``sources`` with pip into a new folder, and return that."""


class RunPython(Protocol):
    def __call__(self, site: Path, *arguments: str, cwd: Path = ...) -> subprocess.CompletedProcess[str]:
        """Run Python with ``site`` on its import path, by default in a folder of the test."""


class RunTests(Protocol):
    def __call__(self, site: Path, project: Path) -> subprocess.CompletedProcess[str]:
        """Run the tests of the plugin in ``project``, which is installed in ``site``, with warnings as errors."""
