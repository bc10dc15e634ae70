"""What looking at long prompts costs: microseconds for one request, by the engines that have its beginning.

``python benchmarks/long_prompts.py [--characters N]``: the fastest of 30 rounds of reading the prompt into chunks,
looking it up, and noting it. The index serves all engines, so their number hardly counts.
"""

from __future__ import annotations

import random
from time import process_time

import click
from rich.console import Console
from rich.table import Table

from enginehouse import Prompt, SharedPrefixIndex

_ROUNDS = 30
_TIMES = 10
_ROOM = 1_000_000


def measured(text: str, engines: int) -> tuple[float, float, float]:
    """Microseconds for chunks, look-up and note, with so many ``engines`` that have all of ``text``."""
    index = SharedPrefixIndex()
    for number in range(engines):
        index.note(f"engine-{number}", Prompt("m", text), _ROOM)
    rounds = []
    for _ in range(_ROUNDS):
        began = process_time()
        for _ in range(_TIMES):
            prompt = Prompt("m", text)
        cut = process_time()
        for _ in range(_TIMES):
            index.leading(prompt)
        looked = process_time()
        for _ in range(_TIMES):
            index.note("engine-0", prompt, _ROOM)
        rounds.append((cut - began, looked - cut, process_time() - looked))
    chunks, look, note = (min(each) * 1e6 / _TIMES for each in zip(*rounds, strict=True))
    return chunks, look, note


@click.command()
@click.option("--characters", default=200_000, show_default=True)
def main(characters: int) -> None:
    """Print a table."""
    text = "".join(random.Random(1).choices("abcdefghij klmnop", k=characters))
    table = Table("engines", "chunks, µs", "look-up, µs", "note, µs", "together, µs")
    for engines in (1, 4, 100):
        parts = measured(text, engines)
        table.add_row(str(engines), *(f"{each:.0f}" for each in (*parts, sum(parts))))
    Console().print(table)
    index = SharedPrefixIndex()
    index.note("engine", Prompt("m", text), _ROOM)
    known = index.leading(Prompt("m", text)).get("engine", 0)
    Console().print(f"{4 * known:,} of {characters:,} characters are recognised")


if __name__ == "__main__":
    main()
