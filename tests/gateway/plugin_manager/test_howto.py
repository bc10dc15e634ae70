from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from enginehouse_kit.pytest_plugin import StartEngine, StartGateway
from enginehouse_kit.testing import check_interceptor, check_strategy
from tests.support.paths import DOCS
from tests.support.plugins import Install

HOW_TO = DOCS / "how-to" / "write-a-plugin.md"


@pytest.mark.parametrize(
    ("page", "name", "count"),
    [
        ("write-a-plugin", "calm", 3),
        ("write-a-driver", "ping", 2),
        ("write-a-protocol", "story", 2),
        ("write-a-service", "impatient", 2),
        ("write-an-interceptor", "model_header", 2),
    ],
)
def test_the_plugin_of_a_page_works_and_passes_its_tests(install: Install, page: str, name: str, count: int) -> None:
    plugin, tests = re.findall(r"```python\n(.*?)```", (DOCS / "how-to" / f"{page}.md").read_text(), re.DOTALL)
    install(name, plugin.replace("from __future__ import annotations\n", ""))

    names: dict[str, Any] = {}
    exec(tests, names)
    written = [value for name, value in names.items() if name.startswith("test_")]
    for test in written:
        test()

    assert len(written) == count


@pytest.mark.parametrize(
    ("page", "types"),
    [
        ("observe-requests", {"observer": "tariff"}),
        ("observe-requests", {"observer": "finishes", "interceptor": "count_finishes"}),
        ("keys-and-limits", {"authenticator": "names"}),
    ],
)
def test_the_types_of_a_page_keep_the_rules_of_their_interfaces(
    install: Install, enginehouse_check: Callable[[str, str], None], page: str, types: dict[str, str]
) -> None:
    blocks = re.findall(r"```py(?:thon)?\n(.*?)```", (DOCS / "how-to" / f"{page}.md").read_text("utf-8"), re.DOTALL)
    [plugin] = [block for block in blocks if all(f'register("{type}", ' in block for type in types.values())]
    install("paged", plugin.replace("from __future__ import annotations\n", ""))
    for kind, type in types.items():
        enginehouse_check(kind, type)


@pytest.mark.parametrize(
    ("page", "name", "check"),
    [("write-a-plugin", "InTurn", check_strategy), ("write-an-interceptor", "Shouting", check_interceptor)],
)
def test_the_classes_of_a_page_keep_the_rules_of_their_interfaces(
    page: str, name: str, check: Callable[[Callable[[], Any]], None]
) -> None:
    blocks = re.findall(r"```py\n(.*?)```", (DOCS / "how-to" / f"{page}.md").read_text("utf-8"), re.DOTALL)
    [block] = [block for block in blocks if f"class {name}(" in block]
    names: dict[str, Any] = {}
    exec(block, names)
    check(names[name])


def test_the_gateway_of_the_tutorial_starts_with_the_plugin(
    install: Install,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    enginehouse_engine: StartEngine,
    enginehouse_gateway: StartGateway,
) -> None:
    text = HOW_TO.read_text()
    plugin, test = (re.findall(rf"```{tag}\n(.*?)```", text, re.DOTALL)[0] for tag in ("python", "py"))
    install("calm", plugin.replace("from __future__ import annotations\n", ""))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    names: dict[str, Any] = {}
    exec(test, names)
    started: list[object] = []

    def start(*arguments: Any, **settings: Any) -> Any:
        started.append(enginehouse_gateway(*arguments, **settings))
        return started[-1]

    names["test_the_gateway_starts_with_the_plugin"](enginehouse_engine, start)
    assert len(started) == 1
