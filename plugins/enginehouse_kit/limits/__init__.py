"""Limits that several gateways share, each with a lease."""
