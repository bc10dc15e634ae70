"""The usage store ``postgres``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import msgspec
import psycopg
from msgspec.structs import astuple
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from enginehouse import ConfigError
from enginehouse.callers import AuditEntry, UsageRow
from enginehouse_kit.usage_stores import UsageStore

_TABLES = """
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {schema}.usage (
  hour BIGINT, key TEXT, model TEXT, "user" TEXT, requests BIGINT, failed BIGINT, tokens_in BIGINT,
  tokens_cached BIGINT, tokens_out BIGINT, seconds DOUBLE PRECISION, cost DOUBLE PRECISION,
  wh DOUBLE PRECISION DEFAULT 0,
  PRIMARY KEY (hour, key, model, "user")
);
CREATE TABLE IF NOT EXISTS {schema}.audit (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, time DOUBLE PRECISION, who TEXT, address TEXT, act TEXT,
  status INTEGER, outcome TEXT
);
ALTER TABLE {schema}.usage ADD COLUMN IF NOT EXISTS wh DOUBLE PRECISION DEFAULT 0;
"""
"""The last statement is for tables of 0.1.0."""
_LOCK = 0x656E67696E65
"""Of gateways that make the tables at the same time."""
_COLUMNS = UsageRow.__struct_fields__
"""Always named: a newer version may have added one to the table."""
_FIGURES = _COLUMNS[4:]
_COUNTS = ("requests", "failed", "tokens_in", "tokens_cached", "tokens_out")
_NAMED = ", ".join(f'"{name}"' for name in _COLUMNS)
_ADD = f"""
INSERT INTO {{schema}}.usage AS known ({_NAMED}) VALUES ({", ".join("%s" for _ in _COLUMNS)})
ON CONFLICT (hour, key, model, "user") DO UPDATE SET
  {", ".join(f"{name} = known.{name} + excluded.{name}" for name in _FIGURES)}
"""
_NOTE = "INSERT INTO {schema}.audit (time, who, address, act, status, outcome) VALUES (%s, %s, %s, %s, %s, %s)"
_USAGE = f"SELECT {_NAMED} FROM {{schema}}.usage WHERE hour >= %s AND hour < %s"
_SUMS = f"""
SELECT {{hour}}, {{key}}, {{model}}, {{user}},
  {", ".join(f"sum({name}){'::bigint' if name in _COUNTS else ''}" for name in _FIGURES)}
FROM {{schema}}.usage WHERE hour >= %s AND hour < %s AND (%s::text IS NULL OR key = %s) GROUP BY 1, 2, 3, 4 LIMIT %s
"""
_AUDIT = """
SELECT time, who, address, act, status, outcome FROM {schema}.audit WHERE time >= %s ORDER BY id DESC LIMIT %s
"""
_DAY_S = 86400
_PATIENCE_S = 5
"""In seconds: until a connection or a statement is given up. The gateway tries again later."""
_REMEDY = 'write plugins.postgres.url = "postgresql://USER@HOST/DATABASE", or "env:NAME" for a variable that has it'


class PostgresUsage(UsageStore):
    """Keeps the sums of all gateways by hour, and what operators have done, in the order of its arrival."""

    class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """``url``: of the database, or ``env:NAME`` for a variable that has it. ``schema``: that of the tables."""

        url: str
        schema: str = "enginehouse"

    def __init__(self, config: Config) -> None:
        self._url = _address(config.url)
        self._schema = sql.Identifier(config.schema)
        self._connection: psycopg.Connection[Any] | None = None

    def add(self, rows: Sequence[UsageRow], entries: Sequence[AuditEntry]) -> None:
        with self._open().transaction(), self._open().cursor() as cursor:
            cursor.executemany(self._of(_ADD), sorted(map(_values, rows)))  # in one order: no deadlock
            cursor.executemany(self._of(_NOTE), map(_values, entries))

    def usage(self, since: float, until: float) -> Sequence[UsageRow]:
        return [UsageRow(*values) for values in self._open().execute(self._of(_USAGE), (since, until))]

    def sums(
        self, since: float, until: float, by: Sequence[str], key: str | None = None, most: int | None = None
    ) -> Sequence[UsageRow]:
        hour = "hour" if "hour" in by else f"hour / {_DAY_S} * {_DAY_S}" if "day" in by else "NULL::bigint"
        names = {
            name: sql.Identifier(name) if name in by else sql.SQL("NULL::text") for name in ("key", "model", "user")
        }
        asked = sql.SQL(_SUMS).format(schema=self._schema, hour=sql.SQL(hour), **names)
        return [UsageRow(*values) for values in self._open().execute(asked, (since, until, key, key, most))]

    def audit(self, since: float, most: int) -> Sequence[AuditEntry]:
        return [AuditEntry(*row) for row in self._open().execute(self._of(_AUDIT), (since, most))]

    def forget(self, before: float) -> None:
        with self._open().transaction():
            self._open().execute(self._of("DELETE FROM {schema}.usage WHERE hour < %s"), (before,))
            self._open().execute(self._of("DELETE FROM {schema}.audit WHERE time < %s"), (before,))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _of(self, text: str) -> sql.Composed:
        return sql.SQL(text).format(schema=self._schema)  # the texts are of this module

    def _open(self) -> psycopg.Connection[Any]:
        """The connection, a new one if the last one broke."""
        connection = self._connection
        if connection is None or connection.closed or connection.broken:
            options = f"-c statement_timeout={_PATIENCE_S * 1000}"
            self._connection = connection = psycopg.connect(
                self._url,
                autocommit=True,
                connect_timeout=_PATIENCE_S,
                tcp_user_timeout=2 * _PATIENCE_S * 1000,  # in ms: no answer comes from a machine that is gone
                options=options,
                application_name="enginehouse",
            )
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                connection.execute(self._of(_TABLES))
        return connection


def _values(kept: UsageRow | AuditEntry) -> tuple[Any, ...]:
    """The fields, with U+FFFD for U+0000: clients name end users, and PostgreSQL's texts cannot have it."""
    return tuple(value.replace("\0", "\ufffd") if isinstance(value, str) else value for value in astuple(kept))


def _address(url: str) -> str:
    """The address of the database that ``url`` says, which may name a variable."""
    found = os.environ.get(url.removeprefix("env:"), "") if url.startswith("env:") else url
    try:
        conninfo_to_dict(found)
    except psycopg.ProgrammingError:  # its message may have the password
        found = ""
    if not found:
        raise ConfigError("is not the address of a database", key="plugins.postgres.url", remedy=_REMEDY)
    return found
