"""``enginehouse service``: the gateway as a service of systemd (Linux) or launchd (macOS)."""
