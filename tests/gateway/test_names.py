"""One word, one meaning: class names of the core (DESIGN, section 1)."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.support.paths import ROOT

CORE = ROOT / "gateway/enginehouse"
WORDS = {
    "Model": None,
    "Host": "engines/host.py",
    "Backend": None,
    "Replica": None,
    "Driver": "interfaces/drivers.py",
    "Requirements": "domain/requirements.py",
    "Candidate": "domain/replica.py",
    "Route": "domain/route.py",
    "Ticket": "domain/ticket.py",
    "Swap": None,
    "Relay": "relay/relay.py",
    "Instance": None,
    "Continuation": "domain/continuation.py",
    "Migration": "domain/migration.py",
}
"""Each of the field's words, and the module whose class bears it alone, if there is one."""


def classes() -> dict[str, list[str]]:
    """The modules that define each class of the core, by its name without leading underscores."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted(CORE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].append(file.relative_to(CORE).as_posix())
    return found


def test_no_class_name_is_used_twice() -> None:
    assert {name: modules for name, modules in classes().items() if len(modules) > 1} == {}


def test_a_word_of_the_field_names_nothing_else() -> None:
    found = classes()
    assert {word: found.get(word, []) for word in WORDS} == {
        word: [module] if module else [] for word, module in WORDS.items()
    }
