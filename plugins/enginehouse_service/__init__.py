"""``enginehouse service``: the gateway as a service of systemd (Linux) or launchd (macOS).

::

    service_command   the commands
    services          a service, as systemd's unit or launchd's property list
"""
