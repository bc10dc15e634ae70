"""Commands that need no running gateway, such as ``enginehouse explain``, and warnings of the configuration.

::

    check                     is the configuration right, and what is in effect
    checked_config            builds the gateway of a configuration, starts nothing, and finds all errors at once
    advice                    settings that are right, but probably not meant
    render                    a configuration as in a file and as a page, and its schema
    masks                     hides what may be a secret in these
    offline_gateway           decides as the gateway of a configuration would, and starts nothing
    explain                   what would be decided: route, swap
    pulled                    pull, list, show and rm: downloaded models
    run, served_files         serves models' files without a configuration
"""

from __future__ import annotations

from enginehouse import Register, Service, hookimpl


@hookimpl
def register_services(register: Register[Service]) -> None:
    """Offer what warns of settings that are probably not meant, for ``check``, a start and a reload."""
    from enginehouse_offline.advice import Advice

    register("advice", Advice)
