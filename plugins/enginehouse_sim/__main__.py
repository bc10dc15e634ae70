"""``python -m enginehouse_sim``: the simulated engine as a server process."""

from __future__ import annotations

import gc
import sys

from enginehouse import EnginehouseError
from enginehouse_sim.simulator.serve.command import serve

if __name__ == "__main__":
    gc.set_threshold(50_000, 20, 50)  # as for ``enginehouse``
    try:
        serve(prog_name="python -m enginehouse_sim")
    except EnginehouseError as error:
        sys.exit(f"enginehouse_sim: {error}")
