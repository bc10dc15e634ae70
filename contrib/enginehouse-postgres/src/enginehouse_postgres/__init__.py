"""Keeps usage and the audit log in PostgreSQL."""

from __future__ import annotations

from enginehouse import Register, hookimpl
from enginehouse_kit.usage_stores import UsageStore


@hookimpl
def register_usage_stores(register: Register[UsageStore]) -> None:
    """Offer ``usage.store = "postgres"``."""
    from enginehouse_postgres.postgres_usage import PostgresUsage

    register("postgres", PostgresUsage)
