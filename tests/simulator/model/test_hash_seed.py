"""The same in every process: nothing may depend on Python's own hashes."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import json
from enginehouse_sim.simulator.model.text import TextSampler
from enginehouse_sim.simulator.model.grammar import choice_grammar, valid_tokens
from enginehouse_sim.simulator.model.text import text_of
from enginehouse_sim.simulator.model.text import vector

schema = {"properties": {"a": {"anyOf": [{"type": "string"}, {"enum": ["x", "xy", 3]}]}, "b": {"type": "array"}}}
for grammar in ("json_object", json.dumps(schema), choice_grammar(["red", "blue"])):
    print(text_of(valid_tokens(grammar)))
place = TextSampler(1, "hello", mean_length=50)
print([(place.copy().draft(0.5), place.alternatives(5, 3), place.next()) for _ in range(100)], vector(1, "a", 3))
"""


def output(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=50).stdout


def test_every_process_makes_the_same_of_the_same() -> None:
    first, second = output("1"), output("2")
    assert first == second
    assert len(first.splitlines()) == 4
