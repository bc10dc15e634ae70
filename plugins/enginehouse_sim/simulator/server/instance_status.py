"""The instance status for a cluster's rescheduler, under Llumnix's names."""

from __future__ import annotations

import time

import msgspec

from enginehouse import InstanceMetadata, InstanceStatus
from enginehouse_sim.simulator.core.engine_core import CoreStep
from enginehouse_sim.simulator.core.migration import MigrationSlots
from enginehouse_sim.simulator.server.batching_engine import BatchingEngine
from enginehouse_sim.simulator.server.load_figures import load_figures


class ConstantStatus(InstanceMetadata, frozen=True, kw_only=True):
    """The constant part of the status."""

    instance_id: str
    instance_type: str
    backend_type: str = "sim"
    data_parallel_size: int = 1
    tensor_parallel_size: int = 1


class StatusReporter:
    """Keeps the result of the last step, and makes the status on request."""

    def __init__(self, metadata: ConstantStatus, engine: BatchingEngine) -> None:
        self.metadata = metadata
        self._slots: MigrationSlots | None = None
        self._engine = engine
        self._last: CoreStep | None = None

    def set_address(self, address: str) -> None:
        """Use ``address`` (host and port) as the instance id if none was configured."""
        if not self.metadata.instance_id:
            self.metadata = msgspec.structs.replace(self.metadata, instance_id=address)

    def set_llumlet(self, host: str, port: int, slots: MigrationSlots) -> None:
        """Publish where the llumlet takes commands and other engines' requests, and its migrations."""
        self._slots = slots
        self.metadata = msgspec.structs.replace(self.metadata, ip=host, llumlet_port=port, kvt_port=port)

    def on_step(self, result: CoreStep) -> None:
        self._last = result

    def status(self) -> InstanceStatus:
        engine, last = self._engine, self._last
        return InstanceStatus(
            instance_id=self.metadata.instance_id,
            schedulable=not engine.failure and not engine.sleep_level,
            timestamp_ms=int(time.time() * 1000),
            update_id=engine.num_updates,
            recent_waiting_requests=tuple(engine.recent_requests()),
            step_id=last.scheduled.step if last is not None else 0,
            step_duration=last.seconds * 1000 if last is not None else 0.0,
            num_scheduled_prefill_tokens=last.load.prefill_tokens if last is not None else 0,
            **load_figures(engine.state),
            **(self._slots.figures() if self._slots is not None else {}),
        )
