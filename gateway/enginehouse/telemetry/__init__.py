"""Telemetry: what is recorded of each request, and what is made of it."""
