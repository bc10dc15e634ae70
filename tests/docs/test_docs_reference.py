"""The pages that are written by hand and yet list what the code has."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.routing import Route

from enginehouse.api.metrics import Metrics
from enginehouse.app import Gateway
from enginehouse.config.load import load_config
from enginehouse.config.schema import Config, Plugins
from enginehouse.domain.errors import RequestError
from enginehouse.engines.launch_line import launch_line
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.telemetry import broadcast

DOCS = Path(__file__).parents[2] / "docs"
HTTP = (DOCS / "reference" / "http.md").read_text("utf-8")
WATCH = (DOCS / "how-to" / "watch.md").read_text("utf-8")
REAL_ENGINES = (DOCS / "how-to" / "real-engines.md").read_text("utf-8")


@pytest.fixture(scope="module")
def gateway() -> Gateway:
    return Gateway(Config(), load_plugins(Plugins(enabled=[])).registry)


def errors(root: type[RequestError]) -> Iterator[type[RequestError]]:
    for error in root.__subclasses__():
        if error.__module__ == "enginehouse.domain.errors":
            yield error
            yield from errors(error)


def test_every_error_is_in_the_reference() -> None:
    told = {(int(status), code) for status, code in re.findall(r"^\| (\d+) \| `(\w+)` \|", HTTP, re.MULTILINE)}
    raised = {(error.status, error.code) for error in errors(RequestError)}
    by_the_application = {(500, "internal_error"), (405, "method_not_allowed")}
    assert told == raised | by_the_application


def test_every_endpoint_is_in_the_reference(gateway: Gateway) -> None:
    paths = {re.sub(r":\w+}", "}", route.path) for route in gateway.application.routes if isinstance(route, Route)}
    told = set(re.findall(r"^\| `(?:[A-Z]+ )?(/[^`?]*)[^`]*` \|", HTTP, re.MULTILINE))
    assert told == paths


def test_every_event_is_in_the_reference() -> None:
    sent = set(re.findall(r'(?:_send|_frame)\(\s*"(\w+)"', inspect.getsource(broadcast)))
    section = HTTP.partition("## Events\n")[2].partition("\n## ")[0]
    assert sent
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == sent


def test_every_metric_is_explained(gateway: Gateway) -> None:
    families = {
        family.name + ("_total" if family.type == "counter" else "") for family in Metrics(gateway.relay).collect()
    }
    assert set(re.findall(r"^\| `(enginehouse_\w+)` \|", WATCH, re.MULTILINE)) == families


def test_the_launch_line_shown_is_the_one_that_runs(tmp_path: Path) -> None:
    [table] = [
        block for block in re.findall(r"^```toml\n(.*?)^```$", REAL_ENGINES, re.DOTALL | re.M) if "-ngl" in block
    ]
    file = tmp_path / "enginehouse.toml"
    file.write_text(table, encoding="utf-8")
    [(name, model)] = load_config(file, {}).config.models.items()
    driver = load_plugins(Plugins(enabled=[])).registry.create("driver", model.driver)
    command = " ".join(launch_line(name, model, driver, 1234).command)
    shown = command.replace(os.path.expanduser(model.path), "PATH").replace("1234", "PORT")
    assert f"`{shown}`" in " ".join(REAL_ENGINES.split())
