from __future__ import annotations

import asyncio

import pytest

from enginehouse import Capabilities
from enginehouse.config.schema import ModelSettings
from enginehouse.drivers import LaunchSpec, ModelFacts, SupportsLaunch
from enginehouse.engines.host_context import ManagedReplica
from enginehouse.engines.model_files import ModelFiles
from enginehouse.interfaces.driver_support import support_of
from tests.support.fake_engines import ScriptedDriver
from tests.support.waiting import until

FACTS = ModelFacts(capabilities=Capabilities(context_length=4096), memory=5000)


class Inspector(ScriptedDriver, SupportsLaunch):
    """Tells ``facts``, or raises them."""

    def __init__(self) -> None:
        super().__init__()
        self.facts: ModelFacts | Exception = FACTS
        self.inspected: list[str] = []

    def command(self, spec: LaunchSpec) -> None:
        return None

    def inspect(self, spec: LaunchSpec) -> ModelFacts:
        self.inspected.append(spec.path)
        if isinstance(self.facts, Exception):
            raise self.facts
        return self.facts


def _managed(driver: Inspector, path: str = "/m", command: str = "") -> ManagedReplica:
    return ManagedReplica("m", "m", ModelSettings(driver="x", path=path, command=command), support_of(driver))


async def test_facts_are_passed_on_and_the_size_is_kept() -> None:
    told: dict[str, ModelFacts] = {}
    files, driver = ModelFiles(told.__setitem__), Inspector()
    files.follow({"m@m": _managed(driver)}, {})
    files.follow({"m@m": _managed(driver)}, {})  # unchanged: not read again
    await until(lambda: "m@m" in told)
    assert told == {"m@m": FACTS}
    assert files.estimated == {"m@m": 5000}
    assert driver.inspected == ["/m"]
    files.follow({}, {})
    assert (files.estimated, files.facts) == ({}, {})


async def test_other_settings_are_read_again() -> None:
    told: dict[str, ModelFacts] = {}
    files, driver = ModelFiles(told.__setitem__), Inspector()
    files.follow({"m@m": _managed(driver)}, {})
    await until(lambda: "m@m" in told)
    driver.facts = ModelFacts()
    files.follow({"m@m": _managed(driver, "/n")}, {})
    await until(lambda: told["m@m"] == ModelFacts())
    assert files.estimated == {}


async def test_a_file_that_cannot_be_read_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    told: dict[str, ModelFacts] = {}
    files, driver = ModelFiles(told.__setitem__), Inspector()
    driver.facts = OSError("no such file")
    files.follow({"m@m": _managed(driver)}, {})
    await until(lambda: "The files of model 'm' cannot be read: no such file" in caplog.text)
    assert told == {}


async def test_a_model_with_a_command_of_its_own_is_not_read() -> None:
    files, driver = ModelFiles(lambda replica, facts: None), Inspector()
    files.follow({"m@m": _managed(driver, command="engine ${port}")}, {})
    await asyncio.sleep(0)
    files.close()
    assert driver.inspected == []
