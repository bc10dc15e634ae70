"""The pages under ``/sim``: requests and faults, for tests."""

from __future__ import annotations

from enginehouse_sim.simulator.server.faults.kinds import AnyFault
from enginehouse_sim.simulator.server.http.call import Call
from enginehouse_sim.simulator.server.simulation import Simulation


async def list_requests(simulation: Simulation, call: Call) -> None:
    """List the last requests."""
    await call.json(simulation.requests.listing())


async def clear_requests(simulation: Simulation, call: Call) -> None:
    """Clear the list of requests."""
    simulation.requests.clear()
    await call.json([])


async def list_faults(simulation: Simulation, call: Call) -> None:
    """List the active faults."""
    await call.json(simulation.faults.listing())


async def set_fault(simulation: Simulation, call: Call) -> None:
    """Activate a fault, and list all."""
    fault: AnyFault = call.decode(AnyFault)  # type: ignore[arg-type]
    simulation.faults.add(fault, can_be_cleared=simulation.settings.control_port is not None)
    await call.json(simulation.faults.listing())


async def clear_faults(simulation: Simulation, call: Call) -> None:
    """Clear all faults."""
    await simulation.faults.clear()
    await call.json([])
