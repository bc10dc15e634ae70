"""Scheduling: each host's run loop between its scheduler, its engines and the requests that wait."""
