"""``python -m enginehouse_sim``: the simulated engine as a server process."""

from __future__ import annotations

import gc

from enginehouse_sim.simulator.serve.command import serve

if __name__ == "__main__":
    gc.set_threshold(50_000, 20, 50)  # as for ``enginehouse``
    serve(prog_name="python -m enginehouse_sim")
