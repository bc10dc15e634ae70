"""Commands that need no running gateway, such as ``enginehouse explain``.

::

    check, config_page        is the configuration right, and what is in effect
    checked_config            builds the gateway of a configuration, and starts nothing
    all_errors                all errors of a configuration, also those that another one hides
    render                    a configuration as in a file, and the schema
    schema                    what a configuration may have, for editors
    offline_gateway           decides as the gateway of a configuration would, and starts nothing
    assumed_state             what runs, as a file says
    explain/                  what would be decided: route, swap
    pulled                    pull, list, show and rm: downloaded models
    run, served_files         serves models' files without a configuration
    installed_engines         the engines that this machine can launch
    model_folders             the folders in which programs keep models
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

from enginehouse import Register, hookimpl


@hookimpl
def register_commands(register: Register[Any]) -> None:
    """Offer each command. Its module is imported when it is used."""
    register("check", partial(_command, "check"))
    register("explain route", partial(_command, "explain.route", "route"))
    register("explain swap", partial(_command, "explain.swap", "swap"))
    register("list", partial(_command, "pulled", "list_models"))
    register("pull", partial(_command, "pulled", "pull"))
    register("rm", partial(_command, "pulled", "rm"))
    register("run", partial(_command, "run"))
    register("schema", partial(_command, "schema"))
    register("show", partial(_command, "pulled", "show"))


def _command(module: str, name: str = "") -> Any:
    """Needs no running gateway."""
    return getattr(import_module(f"enginehouse_offline.{module}"), name or module)
