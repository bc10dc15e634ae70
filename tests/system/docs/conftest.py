from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.doc_sessions import PORTS, Terminal
from tests.support.held_port import held_port


@pytest.fixture
def ports() -> Iterator[Mapping[str, str]]:
    """The ports that the pages name, and free ones to use instead."""
    with ExitStack() as stack:
        yield {named: str(stack.enter_context(held_port())) for named in PORTS}


@pytest.fixture
def terminal(tmp_path: Path, ports: Mapping[str, str]) -> Iterator[Terminal]:
    for program in ("bash", "curl"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ENGINEHOUSE_")}
    opened = Terminal(
        tmp_path,
        {
            **inherited,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "XDG_CONFIG_HOME": str(tmp_path),
            "ENGINEHOUSE_SERVER_PORT": ports["8080"],
            "COLUMNS": "120",
            "NO_COLOR": "1",
        },
    )
    try:
        yield opened
    finally:
        opened.close()
