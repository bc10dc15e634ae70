"""Makes the supervisor of a replica's engine."""

from __future__ import annotations

from collections.abc import Callable

from enginehouse.domain.replica import ReplicaState
from enginehouse.engines.managed_replica import ManagedReplica
from enginehouse.engines.ports import Ports
from enginehouse.engines.remote.remote_server import RemoteLauncher
from enginehouse.engines.supervisor import Supervisor
from enginehouse.interfaces.drivers import EngineClient
from enginehouse.interfaces.launchers import Launcher


def make_supervisor(
    replica: str,
    managed: ManagedReplica,
    launcher: Launcher,
    ports: Ports,
    connect: Callable[[str], EngineClient],
    on_state: Callable[[ReplicaState], None],
) -> Supervisor:
    """The supervisor of ``replica``. Its server loads the model if it has one, else ``launcher`` starts an engine."""
    server = managed.server
    if server is not None:
        launcher = RemoteLauncher(server, managed.model_name, managed.model.start_timeout)
    return Supervisor(
        managed.backend if server is None else replica,
        managed.model_name,
        managed.model,
        driver=managed.driver,
        launcher=launcher,
        ports=ports,
        connect=connect,
        on_state=on_state,
        rules=managed.rules,
        elsewhere=server is not None,
    )
