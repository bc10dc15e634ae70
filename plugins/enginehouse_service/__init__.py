"""``enginehouse service``: the gateway as a service of systemd (Linux) or launchd (macOS).

::

    service_command   the commands
    services          a service, as systemd's unit or launchd's property list
"""

from __future__ import annotations

from typing import Any

from enginehouse import Register, hookimpl


@hookimpl
def register_commands(register: Register[Any]) -> None:
    """Offer ``enginehouse service``."""
    register("service", _commands)


def _commands() -> Any:
    """Makes the gateway a service that starts by itself."""
    from enginehouse_service.service_command import service  # only when the command runs

    return service
