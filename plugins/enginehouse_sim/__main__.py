"""``python -m enginehouse_sim``: the simulated engine as a server process."""

from __future__ import annotations

from enginehouse_sim.simulator.serve.command import serve

if __name__ == "__main__":
    serve(prog_name="python -m enginehouse_sim")
