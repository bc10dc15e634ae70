"""Gateways whose configuration changes while they run.

Most tests of a module share one gateway process. Each test gives it a configuration first.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from enginehouse.config.environment import STATE_DIR
from enginehouse_kit.gateway import RunningGateway
from tests.support.operated_gateway import ADMIN_KEY, MARK, kill_engines, reconfigured
from tests.support.reloaded_gateway import OpenAlone, OpenShared, ReloadedGateway


@pytest.fixture(scope="module")
def shared_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningGateway, str]]:
    """The gateway of a module, and the mark of its engines."""
    mark = str(tmp_path_factory.mktemp("shared"))
    with RunningGateway("", {MARK: mark, STATE_DIR: mark}, key=ADMIN_KEY) as process:
        yield process, mark


@pytest.fixture
def open_shared(shared_process: tuple[RunningGateway, str], pool: ThreadPoolExecutor) -> Iterator[OpenShared]:
    """Give the module's gateway a configuration: ``open_shared(table("a"))``."""
    process, mark = shared_process
    with reconfigured(ReloadedGateway(process, pool, mark)) as reconfigure:
        yield reconfigure


@pytest.fixture
def open_alone(tmp_path: Path, pool: ThreadPoolExecutor) -> Iterator[OpenAlone]:
    """Start gateways of the test's own, with a configuration or none. All take over one another's engines."""
    mark = str(tmp_path)
    with ExitStack() as stack:
        stack.callback(kill_engines, mark)

        def start(config: str | None, key: str = ADMIN_KEY) -> ReloadedGateway:
            process = stack.enter_context(RunningGateway(config, {MARK: mark, STATE_DIR: mark}, key=key))
            gateway = stack.enter_context(ReloadedGateway(process, pool, mark))
            gateway.http.headers["x-api-key"] = key
            return gateway

        yield start
