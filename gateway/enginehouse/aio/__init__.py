"""Tasks and timeouts that every floor uses."""
