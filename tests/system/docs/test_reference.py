"""The pages that are written by hand and yet list what the code has."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from msgspec.inspect import DictType, ListType, Metadata, StructType, Type, UnionType
from starlette.routing import Route

from enginehouse.app import Gateway
from enginehouse.cli import enginehouse
from enginehouse.config.load_config import load_config
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.config.shape import config_type
from enginehouse.domain.errors import AliasCycle, EngineRefused, RequestError
from enginehouse.engines.launch_line import launch_line
from enginehouse.http.admission import FORM_PATHS, INFERENCE_PATHS
from enginehouse.http.guarded_pages import OperatorPages
from enginehouse.http.relayed_paths import ENGINE_PAGES
from enginehouse.interfaces.driver_support import support_of
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse_metrics.families import families
from enginehouse_operations.pages import event_stream
from tests.support import doc_pages
from tests.support.bundled_services import EVERY_METRIC, service_pages
from tests.support.doc_pages import page_text
from tests.support.paths import DOCS, ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *doc_pages.PAGES]
HTTP = (DOCS / "reference" / "http.md").read_text("utf-8")
REAL_ENGINES = (DOCS / "how-to" / "real-engines.md").read_text("utf-8")


@pytest.fixture(scope="module")
def gateway() -> Gateway:
    registry = load_plugins(PluginSettings(enabled=[], disabled=["dashboard"])).registry
    return Gateway(Config(services={"batches": {}, "energy": {}}), registry)


def errors(root: type[RequestError]) -> Iterator[type[RequestError]]:
    for error in root.__subclasses__():
        if error.__module__ == "enginehouse.domain.errors":
            yield error
            yield from errors(error)


def test_every_error_is_in_the_reference() -> None:
    told = {(int(status), code) for status, code in re.findall(r"^\| (\d+) \| `(\w+)` \|", HTTP, re.MULTILINE)}
    raised = {(error.status, error.code) for error in errors(RequestError) if error is not EngineRefused}  # any status
    by_the_application = {(500, "internal_error"), (405, "method_not_allowed")}
    by_a_reload = {(400, AliasCycle.code)}
    assert told == raised | by_the_application | by_a_reload


def test_every_endpoint_is_in_the_reference(gateway: Gateway) -> None:
    operators = [
        page for route in gateway.application.routes if isinstance(route, OperatorPages) for page in route.routes
    ]
    routes = [
        route for route in (*gateway.application.routes, *operators, *service_pages()) if isinstance(route, Route)
    ]
    relayed = [*INFERENCE_PATHS, *FORM_PATHS, *ENGINE_PAGES, *gateway.relay.context.protocols]
    relayed += [path for protocol in gateway.path.protocols.values() for _, path in protocol.pages]
    paths = {re.sub(r":\w+}", "}", path) for path in (*relayed, *[route.path for route in routes])}
    told = set(re.findall(r"^\| `(?:[A-Z]+ )?(/[^`?]*)[^`]*` \|", HTTP, re.MULTILINE))
    assert told == paths


def test_every_event_is_in_the_reference() -> None:
    sources = inspect.getsource(event_stream)
    sent = set(re.findall(r'(?:\.send|_frame)\(\s*"(\w+)"', sources))
    section = HTTP.partition("## Events\n")[2].partition("\n## ")[0]
    assert sent
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == sent


def test_the_page_of_metrics_has_all_that_are_listed(gateway: Gateway) -> None:
    listed = {metric.name: (metric.kind, metric.text) for metric in EVERY_METRIC}
    made = families(gateway.application.state.facts)
    assert {family.name: (family.type, family.documentation) for family in made} == listed


def test_the_launch_line_shown_is_the_one_that_runs(tmp_path: Path) -> None:
    [table] = [
        block
        for block in re.findall(r"^```toml\n(.*?)^```$", REAL_ENGINES, re.DOTALL | re.M)
        if "n_gpu_layers" in block
    ]
    file = tmp_path / "enginehouse.toml"
    file.write_text(table, encoding="utf-8")
    [(name, model)] = load_config(file, {}).config.models.items()
    driver = load_plugins(PluginSettings(enabled=[])).registry.create("driver", model.driver)
    command = " ".join(launch_line(name, model, support_of(driver).launch, 1234).command)
    shown = command.replace(os.path.expanduser(model.path), "PATH").replace("1234", "PORT")
    assert f"`{shown}`" in " ".join(REAL_ENGINES.split())


COMMANDS_OF_CONTRIB = {"envoy"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_a_page_names_exists(page: Path) -> None:
    named = set(re.findall(r"(?:^\$ |^|`)enginehouse (\w[\w-]*)", page_text(page), re.MULTILINE))
    assert named <= {*enginehouse.list_commands(click.Context(enginehouse)), *COMMANDS_OF_CONTRIB}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.parent.name != "coming-from"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_every_key_that_a_page_names_exists(page: Path) -> None:
    tables = "|".join({*Config.__struct_fields__} - {"plugins"})  # plugins have keys of their own
    named = re.findall(rf"`((?:{tables})(?:\.[\w*]+)+)`", page_text(page))
    assert [key for key in named if not is_key(key)] == []


def is_key(key: str) -> bool:
    """Whether the schema has such a key; where entries have names of their own, any name does."""
    kinds: list[Type] = [config_type()]
    for part in key.split("."):
        kinds = [inner for kind in kinds for inner in _inside(kind, part)]
    return bool(kinds)


def _inside(kind: Type, part: str) -> Iterator[Type]:
    if isinstance(kind, StructType):
        for field in kind.fields:
            if field.encode_name == part:
                yield from _plain(field.type)
    elif isinstance(kind, DictType):
        yield from _plain(kind.value_type)
    elif isinstance(kind, ListType):
        for inner in _plain(kind.item_type):
            yield from _inside(inner, part)


def _plain(kind: Type) -> Iterator[Type]:
    while isinstance(kind, Metadata):
        kind = kind.type
    if isinstance(kind, UnionType):
        for each in kind.types:
            yield from _plain(each)
    else:
        yield kind
