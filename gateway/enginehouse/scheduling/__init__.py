"""Scheduling: tickets, and each host's run loop between its scheduler and its engines."""
