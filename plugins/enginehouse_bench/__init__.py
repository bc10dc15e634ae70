"""``enginehouse bench``: measures what the gateway costs, compared with the engine alone and with other gateways.

::

    bench_command  the command and its options
    report         one run, and its report as an object or as tables
    rounds         measures the contenders in turn, and compares their figures round by round
    contenders     the servers that are measured, and the processes whose time is counted
    clients        many clients in one process, and their measurements
    engine         a minimal engine
"""

from __future__ import annotations

from typing import Any

from enginehouse import Register, hookimpl


@hookimpl
def register_commands(register: Register[Any]) -> None:
    """Offer ``enginehouse bench``."""
    register("bench", _command)


def _command() -> Any:
    """Measures what the gateway costs on this machine."""
    from enginehouse_bench.bench_command import bench  # imports the measurements: only when the command runs

    return bench
