"""The scheduler in the plugin's README keeps the rules of a scheduler."""

from __future__ import annotations

import re
from typing import Any

from enginehouse_kit.testing import check_scheduler
from tests.support.paths import ROOT

README = ROOT / "plugins" / "enginehouse_scheduling" / "README.md"


def test_the_scheduler_of_the_readme_is_one() -> None:
    [example] = re.findall(r"^```python\n(.*?)^```$", README.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(example, names)
    check_scheduler(names["Plain"])
