from __future__ import annotations

import re
from contextlib import ExitStack
from typing import Any

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from enginehouse_kit.testing import check_filter, create
from tests.support import plain_httpx
from tests.support.paths import ROOT
from tests.support.plugins import Install

README = (ROOT / "README.md").read_text("utf-8")
CLIENT, PLUGIN = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
[CONFIGURATION] = re.findall(r"^```toml\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def test_the_client_of_the_readme_is_served_through_its_alias_and_fallback() -> None:
    names: dict[str, Any] = {}
    with ExitStack() as stack:
        engine = stack.enter_context(SimEngine("llama3:8b"))
        gateway = stack.enter_context(RunningGateway(CONFIGURATION.replace("http://127.0.0.1:8002", engine.url)))
        gateway.until_health(**{"gpu-2": "healthy"})
        exec(CLIENT.replace("http://127.0.0.1:8080", gateway.url), names)
        names["client"].close()
        [decision] = plain_httpx.get(f"{gateway.url}/api/decisions").json()["decisions"]
    assert names["answer"].model == "gpt-4"
    assert decision["chosen"] == "llama3:8b@gpu-2"


def test_the_plugin_of_the_readme_keeps_the_rules_of_a_filter(install: Install) -> None:
    install("only-local", PLUGIN)
    check_filter(lambda: create("filter", "only_local"))
