from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-plugin.md"


def test_the_plugin_of_the_tutorial_works_and_passes_its_tests(install: Callable[..., None]) -> None:
    plugin, tests = re.findall(r"```python\n(.*?)```", HOW_TO.read_text(), re.DOTALL)
    install("calm", plugin.replace("from __future__ import annotations\n", ""))

    names: dict[str, Any] = {}
    exec(tests, names)
    written = [value for name, value in names.items() if name.startswith("test_")]
    for test in written:
        test()

    assert len(written) == 3
