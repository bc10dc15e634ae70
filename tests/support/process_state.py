"""The state of the process: a test that changes it must put it back, or tests after it depend on the order."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Generator, Iterator

import pytest

from enginehouse.config.environment import TEST_WORKERS

_LOGGERS = ("", "enginehouse", "uvicorn")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STATE = pytest.StashKey[dict[str, object]]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_STATE] = _state()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    result = yield
    before, after = item.stash[_STATE], _state()
    if before != after:
        names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        changes = "; ".join(f"{name}: {before.get(name)} became {after.get(name)}" for name in names)
        pytest.fail(f"the test leaves the process changed: {changes}", pytrace=False)
    return result


@pytest.fixture
def restored_logs() -> Iterator[None]:
    """Put the log back as it was, after a command that sets up the gateway's."""
    root, uvicorn = logging.getLogger(), logging.getLogger("uvicorn")
    levels, handlers = (root.level, uvicorn.level), root.handlers
    root.handlers = []  # so that those of pytest are not closed
    yield
    root.handlers = handlers
    root.setLevel(levels[0])
    uvicorn.setLevel(levels[1])


def _state() -> dict[str, object]:
    state: dict[str, object] = {"folder": os.getcwd()}
    for name in _LOGGERS:
        log = logging.getLogger(name)
        state[f"the log '{name}'"] = log.level, log.propagate, log.disabled, log.handlers[:]
    for number in _SIGNALS:
        state[number.name] = signal.getsignal(number)
    state |= os.environ
    for of_fixtures in ("PYTEST_CURRENT_TEST", TEST_WORKERS):  # they last longer than one test
        state.pop(of_fixtures, None)
    return state
