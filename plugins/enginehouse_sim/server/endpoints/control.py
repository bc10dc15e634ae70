"""The pages under ``/sim``: what a test sets and sees."""

from __future__ import annotations

from enginehouse_sim.server.call import Call
from enginehouse_sim.server.faults.kinds import AnyFault
from enginehouse_sim.server.simulation import Simulation


async def list_requests(simulation: Simulation, call: Call) -> None:
    """The last requests."""
    await call.json(simulation.requests.listing())


async def clear_requests(simulation: Simulation, call: Call) -> None:
    """Forget the last requests."""
    simulation.requests.clear()
    await call.json([])


async def list_faults(simulation: Simulation, call: Call) -> None:
    """The faults that are set."""
    await call.json(simulation.faults.listing())


async def set_fault(simulation: Simulation, call: Call) -> None:
    """Set one more fault; answers with all."""
    fault: AnyFault = call.decode(AnyFault)  # type: ignore[arg-type]
    simulation.faults.add(fault, can_be_cleared=simulation.settings.control_port is not None)
    await call.json(simulation.faults.listing())


async def clear_faults(simulation: Simulation, call: Call) -> None:
    """Clear all faults."""
    await simulation.faults.clear()
    await call.json([])
